"""A library of the system as a repository with one target, named like the repository.

Looked for in the folder that the environment variable names (its include/ and lib/), else by pkg-config, else as a
header in the compiler's own folders. What is not found fails only when something that needs it is built, so a machine
without rdma or cuda still loads every package.
"""

_FOUND = """
cc_library(
    name = "{name}",
    hdrs = glob({globs}, allow_empty = True),
    includes = {includes},
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

_MISSING = """
genrule(
    name = "missing",
    outs = ["missing.h"],
    cmd = "echo '{complaint}' >&2; false",
)

cc_library(
    name = "{name}",
    hdrs = ["missing.h"],
    srcs = ["missing.h"],
    visibility = ["//visibility:public"],
)
"""

def _pkg_config(ctx, *flags):
    tool = ctx.which("pkg-config")
    if not tool or not ctx.attr.pc:
        return None
    result = ctx.execute([tool] + list(flags) + [ctx.attr.pc])
    return [f for f in result.stdout.strip().split(" ") if f] if result.return_code == 0 else None

def _compiler_sees(ctx, header):
    """Whether the C compiler finds the header without being told where."""
    named = ctx.os.environ.get("CC", "cc")
    compiler = (ctx.path(named) if named.startswith("/") else ctx.which(named)) or ctx.which("gcc") or ctx.which("clang")
    if not compiler:
        return False
    ctx.file("probe.c", "#include <%s>\n" % header)
    return ctx.execute([compiler, "-fsyntax-only", "probe.c"]).return_code == 0

def _search(ctx):
    """Folders of headers and flags for the linker, or None."""
    folder = ctx.os.environ.get(ctx.attr.variable)
    if folder:
        if not ctx.path(folder + "/include/" + ctx.attr.header).exists:
            return None
        links = ["-L%s/lib" % folder, "-Wl,-rpath,%s/lib" % folder] if ctx.attr.libs else []
        return [folder + "/include"], links + ["-l" + lib for lib in ctx.attr.libs]
    cflags, links = _pkg_config(ctx, "--cflags-only-I"), _pkg_config(ctx, "--libs")
    if cflags != None and links != None:
        return [flag[2:] for flag in cflags], links if ctx.attr.libs else []
    if _compiler_sees(ctx, ctx.attr.header):
        return [], ["-l" + lib for lib in ctx.attr.libs]
    return None

def _complaint(ctx):
    folder = ctx.os.environ.get(ctx.attr.variable)
    if folder:
        return "%s says %s, but there is no include/%s in it" % (ctx.attr.variable, folder, ctx.attr.header)
    return "%s is not on this system: install %s, or point %s at a folder with its include and lib" % (
        ctx.attr.header,
        ctx.attr.package,
        ctx.attr.variable,
    )

def _system_library_impl(ctx):
    found = _search(ctx)
    if not found:
        ctx.file("BUILD.bazel", _MISSING.format(name = ctx.attr.target, complaint = _complaint(ctx)))
        return
    folders, linkopts = found

    # Headers outside the compiler's own folders must lie inside the repository to be declared.
    includes = []
    for number, folder in enumerate(folders):
        ctx.symlink(folder, "include%d" % number)
        includes.append("include%d" % number)
    ctx.file("BUILD.bazel", _FOUND.format(
        name = ctx.attr.target,
        globs = repr([folder + "/**/*.h" for folder in includes]),
        includes = repr(includes),
        linkopts = repr(linkopts),
    ))

_VARIABLES = ["WEFT_%s_PATH" % lib for lib in ["EV", "TALLOC", "IBVERBS", "RDMACM", "CUDA", "OPENSSL", "UV", "GLIB", "SYSTEMD", "EVENT", "PYTHON"]]

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "target": attr.string(mandatory = True, doc = "what to call it; with modules the repository has a longer name"),
        "variable": attr.string(mandatory = True, doc = "the environment variable that overrides the place"),
        "header": attr.string(mandatory = True),
        "pc": attr.string(doc = "its name for pkg-config, where it has one (libev has none in Debian)"),
        "libs": attr.string_list(doc = "to link with; none: its headers only"),
        "package": attr.string(mandatory = True, doc = "Debian's package, for the complaint"),
    },
    environ = _VARIABLES + ["CC", "PATH", "PKG_CONFIG_PATH"],
    local = True,
)
