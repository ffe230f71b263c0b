"""What every folder of Weft says in one line: room(), transport(), programs(), tests()."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

# "" at home, "external/weft" where Weft is a dependency: rooms include each other as <reactor/reactor.h>.
_ROOT = Label("//:BUILD.bazel").workspace_root or "."

COPTS = [
    "-std=gnu11",
    "-D_GNU_SOURCE=",  # empty, as the sources that say it themselves do
    "-fvisibility=hidden",
    "-I" + _ROOT,
] + select({
    "//:with_rdma": ["-DWEFT_HAVE_RDMA"],
    "//conditions:default": [],
}) + select({
    "//:with_cuda": ["-DWEFT_HAVE_CUDA"],
    "//conditions:default": [],
}) + select({
    "//:threads_single": ["-DWEFT_THREADS_FIXED=WEFT_THREAD_SINGLE"],
    "//:threads_serialized": ["-DWEFT_THREADS_FIXED=WEFT_THREAD_SERIALIZED"],
    "//conditions:default": [],
})

# In order: a room may use those before it.
_ROOMS = ["fsm", "base", "reactor", "transports", "endpoints", "collectives", "resource", "runtime"]
_OUTSIDE = ["//:__pkg__", "//bench:__subpackages__", "//examples:__pkg__", "//tests:__subpackages__", "//tools:__pkg__"]
_TABLES = ["**/*.def", "**/*.fsm", "**/*.inc"]

def sources():
    """What tests read as text: the check of includes, pictures, tables."""
    native.filegroup(
        name = "sources",
        srcs = native.glob(["**"], exclude = ["BUILD.bazel", "**/__pycache__/**"], allow_empty = True),
        visibility = ["//visibility:public"],
    )

def _library(name, visibility, deps, target_compatible_with = [], srcs = [], textual = []):
    cc_library(
        name = name,
        srcs = native.glob(["**/*.c"], exclude = ["**/*_main.c"], allow_empty = True) + srcs,
        hdrs = native.glob(["**/*.h"], allow_empty = True),
        copts = COPTS,
        linkstatic = True,
        target_compatible_with = target_compatible_with,
        textual_hdrs = native.glob(_TABLES, allow_empty = True) + textual,
        visibility = visibility,
        deps = ["//:headers"] + deps,
        # Machines and transports register by tables, and libweft.so is made of these.
        alwayslink = True,
    )
    sources()

def room(name, deps = [], srcs = [], textual = []):
    """All of a folder as one library, seen only by itself and the rooms below it; with generated `srcs`."""
    below = _ROOMS[_ROOMS.index(name):]
    _library(
        name,
        ["//%s:__subpackages__" % other for other in below] + _OUTSIDE,
        ["//" + other for other in _ROOMS[:_ROOMS.index(name)]] + deps,
        srcs = srcs,
        textual = textual,
    )

def transport(name, deps = [], flag = None):
    """One transport: no room and no other transport may name it. With a flag it is left out of a build without that."""
    need = select({flag: [], "//conditions:default": ["//bazel:left_out"]}) if flag else []
    _library(name, _OUTSIDE, ["//fsm", "//base", "//reactor", "//transports"] + deps, target_compatible_with = need)

def program(name, srcs, deps = [], data = []):
    cc_binary(
        name = name,
        srcs = srcs,
        copts = COPTS,
        data = data,
        linkstatic = True,
        visibility = ["//visibility:public"],
        deps = ["//:weft", "//:inside"] + deps,
    )

def programs(suffix, names = {}, deps = {}):
    """Each *SUFFIX.c of the folder is a program, `weft_run_main.c` is `weft-run`; other *.c are shared by all.

    So is each *SUFFIX.cpp, in C++17 and by the public headers alone.

    Args:
      suffix: "_main", or "" where every file is a program.
      names: programs not called after their file, by file.
      deps: what single programs need besides Weft, by program.
    """
    mains = native.glob(["*%s.c" % suffix], allow_empty = True)
    shared = native.glob(["**/*.c"], exclude = mains, allow_empty = True) if suffix else []
    cc_library(
        name = "shared",
        srcs = shared,
        hdrs = native.glob(["**/*.h"], allow_empty = True),
        copts = COPTS,
        linkopts = ["-lm"],
        linkstatic = True,
        textual_hdrs = native.glob(_TABLES, allow_empty = True),
        visibility = ["//tests:__subpackages__"],
        deps = ["//:weft", "//:inside"],
    )
    built = []
    for main in mains:
        name = names.get(main, main[:-len(suffix + ".c")].replace("_", "-"))
        program(name, [main], [":shared"] + deps.get(name, []))
        built.append(name)
    for main in native.glob(["*%s.cpp" % suffix], allow_empty = True):
        name = main[:-len(suffix + ".cpp")].replace("_", "-")
        cc_binary(
            name = name,
            srcs = [main],
            copts = ["-std=c++17"],
            linkopts = ["-lstdc++"],
            linkstatic = True,
            visibility = ["//visibility:public"],
            deps = ["//:weft"],
        )
        built.append(name)
    native.filegroup(
        name = "programs",
        srcs = built,
        visibility = ["//visibility:public"],
    )
    sources()

def _tags(name, lists):
    return [tag for tag, names in lists.items() if name in names or name.split("/")[0] in names]

def tests(programs_of = [], deps = {}, data = {}, exclusive = [], modes = [], once = [], sanitized = [], shards = {}, threads = []):
    """One test program for each <room>/*_test.c, linked with the whole library, named "room/file_test".

    Other *.c of such a folder (scenarios, a checker) are linked to all of its tests. A *_test.sh or
    *_test.py is run as it is, where the tree's text lies as in the checkout; so are the C tests of `programs_of`, with
    `tools/` and `examples/`. Of the other C tests few read a file of the tree, and a link to each file for each of them
    takes longer than most of them do.

    Args:
      programs_of: folders whose tests start programs of tools/ and examples/.
      deps: what single tests need besides Weft, by name.
      data: files that single tests read besides the tree's text, by name.
      exclusive: tests that measure time and want no other test beside them.
      modes: tests that pass in builds of one thread mode (//:threads) too, and are run there.
      once: slow tests, and those that prove a table and run no code of the library: a run of all stages has them in its
        first build alone, without a sanitizer.
      sanitized: other slow tests: a run of all stages has them under AddressSanitizer, and not in its first build.
      shards: in how many parts, which run at the same time, the longest are run, by name.
      threads: tests, or whole folders, with more than one thread: those that ThreadSanitizer can tell about.
    """
    tags = {"exclusive": exclusive, "modes": modes, "once": once, "sanitized": sanitized, "threads": threads}
    sources = native.glob(["*/*_test.c"], allow_empty = True)
    scripts = native.glob(["*_test.sh", "*/*_test.sh", "*_test.py", "*/*_test.py"], allow_empty = True)
    folders = {path.split("/")[0]: True for path in sources}
    cc_library(
        name = "headers",
        testonly = True,
        hdrs = native.glob(["*.h", "*/*.h"], allow_empty = True),
        textual_hdrs = native.glob(_TABLES, allow_empty = True),
        visibility = ["//tests:__subpackages__"],
        deps = ["//:inside"],
    )
    for folder in folders:
        cc_library(
            name = folder + "/shared",
            testonly = True,
            srcs = native.glob([folder + "/*.c"], exclude = [folder + "/*_test.c", folder + "/*_fuzz.c", folder + "/*_main.c"], allow_empty = True),
            copts = COPTS,
            linkstatic = True,
            deps = [":headers", "//:weft", "//:inside"],
        )
    programs_built = ["//tools:programs", "//examples:programs", "//examples:sources"]
    for source in sources:
        folder, name = source.split("/")[0], source[:-2]
        cc_test(
            name = name,
            srcs = [source],
            copts = COPTS,
            data = (["//:text"] + programs_built if folder in programs_of else []) + data.get(name, []),
            linkopts = ["-lm"],
            linkstatic = True,
            shard_count = shards.get(name),
            tags = _tags(name, tags),
            # first, since libev exports names of libevent
            deps = deps.get(name, []) + [folder + "/shared"],
        )
    for script in scripts:
        folder, name = script.split("/")[0], script[:script.rindex(".")]
        native.sh_test(
            name = name,
            srcs = [script],
            data = ["//:text"] + native.glob(["*.py", "*.sh"], exclude = [script]) +
                   (programs_built if folder in programs_of else []) + data.get(name, []),
            shard_count = shards.get(name),
            tags = _tags(name, tags),
        )

def fuzz_targets():
    """Each *_fuzz.c is a libFuzzer program; built only with --config=fuzz."""
    for source in native.glob(["*_fuzz.c"], allow_empty = True):
        cc_binary(
            name = source[:-2],
            srcs = [source],
            copts = COPTS,
            linkopts = ["-fsanitize=fuzzer"],
            linkstatic = True,
            tags = ["manual"],
            deps = ["//:weft", "//:inside", ":shared"],
        )
    cc_library(
        name = "shared",
        srcs = native.glob(["*.c"], exclude = ["*_fuzz.c"], allow_empty = True),
        hdrs = native.glob(["*.h"], allow_empty = True),
        copts = COPTS,
        linkstatic = True,
        deps = ["//:weft", "//:inside"],
    )
