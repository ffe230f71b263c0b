"""The same libraries of the system for MODULE.bazel. WORKSPACE never loads this: module_extension is newer."""

load("//bazel:dependencies.bzl", "SYSTEM_LIBRARIES")
load("//bazel:system_library.bzl", "system_library")

def _system_impl(_ctx):
    for name, described in SYSTEM_LIBRARIES.items():
        system_library(name = name, target = name, **described)

system = module_extension(implementation = _system_impl)
