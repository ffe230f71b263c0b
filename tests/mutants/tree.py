"""Builds test programs of a source tree with the C compiler alone, and rebuilds only what a patch changes."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

# The product, without the transport that needs its own hardware.
ROOMS = ["fsm", "base", "reactor", "transports", "endpoints", "collectives", "resource", "runtime"]
LEFT_OUT = ["transports/rdma"]
COPIED = ROOMS + ["include", "tests", "tools", "examples"]
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE=", "-fvisibility=hidden", "-O1", "-g1", "-I.", "-Iinclude"]
FLAGS += ["-Wall", "-Wextra", "-Wno-unused", "-Wno-unused-parameter"]
LIBRARIES = ["libev", "talloc", "libcrypto"]
SANITIZERS = {"plain": [], "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]}


class BuildError(Exception):
    """The text is what the compiler printed."""


def _call(command, cwd):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise BuildError(done.stdout[-4000:])


def _c_files(root, folder, suffixes_left_out=()):
    for path, folders, names in os.walk(os.path.join(root, folder)):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".c") and not name.endswith(suffixes_left_out):
                yield os.path.relpath(os.path.join(path, name), root)


def _libraries():
    flags = []
    for library in LIBRARIES:
        known = subprocess.run(["pkg-config", "--libs", library], capture_output=True, text=True)
        flags += known.stdout.split() if known.returncode == 0 else ["-l" + library.removeprefix("lib")]
    return flags + ["-lm", "-lpthread"]


def _built_objects(root, folder):
    """The objects below `folder`, by source; without those of files that differ where RDMA is built."""
    objects = {}
    for room in ROOMS:
        for path, _, names in os.walk(os.path.join(folder, room)):
            for name in (name for name in names if name.endswith(".pic.d")):
                obj = os.path.join(path, name[:-2] + ".o")
                with open(os.path.join(path, name), encoding="utf-8") as written:
                    source = written.read().split(":", 1)[1].replace("\\\n", " ").split()[0]
                if os.path.exists(obj) and os.path.exists(os.path.join(root, source)):
                    with open(os.path.join(root, source), encoding="utf-8") as text:
                        if "WEFT_HAVE_" not in text.read():
                            objects[source] = obj
    return objects


class Tree:
    """The sources below `root`, compiled into `out`. `base` is an unchanged tree whose objects serve where they fit.

    `built` is a folder with what Bazel built of this tree (`bazel info bazel-bin`): its objects of the product serve, too.
    """

    def __init__(self, root, out, kind="plain", jobs=2, base=None, changed=(), built=None):
        self.root, self.out, self.kind, self.jobs = root, out, kind, jobs
        self.base, self.changed = base, set(changed)
        self.flags = FLAGS + SANITIZERS[kind]
        self.built = _built_objects(root, built) if built else {}

    # ---- what is compiled

    def _object(self, source):
        return self.built.get(source) or os.path.join(self.out, self.kind, source[:-2] + ".o")

    @staticmethod
    def _dependencies(obj):
        """The files that an object was compiled from, as the compiler wrote them down; None: not known."""
        try:
            with open(obj[:-2] + ".d", encoding="utf-8") as written:
                text = written.read()
        except OSError:
            return None
        files = text.split(":", 1)[1].replace("\\\n", " ").split()
        return [os.path.normpath(file) for file in files]

    def _is_fresh(self, obj):
        files = self._dependencies(obj)
        if files is None or not os.path.exists(obj):
            return False
        built = os.stat(obj).st_mtime_ns
        try:
            return all(os.stat(os.path.join(self.root, file)).st_mtime_ns < built for file in files)
        except OSError:
            return False

    def _compile(self, source):
        """The object of one source; that of the base tree where the patch does not reach."""
        if self.base and source not in self.changed:
            there = self.base._object(source)
            if not self.changed.intersection(self._dependencies(there) or self.changed):
                return there
        obj = self._object(source)
        if source not in self.built and not self._is_fresh(obj):
            os.makedirs(os.path.dirname(obj), exist_ok=True)
            _call(["cc", *self.flags, "-MMD", "-MF", obj[:-2] + ".d", "-c", source, "-o", obj], self.root)
        return obj

    def _compile_all(self, sources):
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(self._compile, sources))

    # ---- what is linked

    def _library(self):
        sources = [s for room in ROOMS for s in _c_files(self.root, room, ("_main.c",))]
        return [s for s in sources if not s.startswith(tuple(LEFT_OUT))]

    def _image(self):
        """The object in place of the kernels for a GPU: it has none, as where there is no compiler for them."""
        if self.base:
            return self.base._image()
        source = os.path.join(self.out, self.kind, "cuda_image.c")
        obj = source[:-2] + ".o"
        if not os.path.exists(obj):
            os.makedirs(os.path.dirname(obj), exist_ok=True)
            _call([os.path.join(self.root, "tools", "cuda_image"), source], self.root)
            _call(["cc", *self.flags, "-c", source, "-o", obj], self.root)
        return obj

    def _link(self, sources, program):
        objects = self._compile_all(sources + self._library()) + [self._image()]
        os.makedirs(os.path.dirname(program), exist_ok=True)
        _call(["cc", *SANITIZERS[self.kind], "-o", program, *objects, *_libraries()], self.root)
        return program

    def test(self, name):
        """tests/<room>/<what>_test.c with what its folder shares. Tests of tools may use what the simulation shares."""
        folder = "tests/" + os.path.dirname(name)
        sources = ["tests/%s.c" % name, *_c_files(self.root, folder, ("_test.c", "_fuzz.c", "_main.c"))]
        if name.startswith(("sim/", "tools/")):
            sources += _c_files(self.root, "tools", ("_main.c",))
        if name.startswith("fuzz/live/"):
            sources.append("tests/random/shape.c")
        if name.startswith("endpoints/window_"):
            sources += _c_files(self.root, "tests/transports", ("_test.c",))
        if name.startswith("cuda/"):
            self._build_driver_double()
        return self._link(sources, os.path.join(self.out, self.kind, "tests", name))

    def _build_driver_double(self):
        """The double of the CUDA driver, which tests of cuda/ load from beside them."""
        out = os.path.join(self.out, self.kind)
        double = os.path.join(out, "tests/cuda/driver_double/libcuda.so.1")
        _call(["make", "-s", "-f", "tools/build.mk", "OUT=" + out, double], self.root)

    def tool(self, name):
        """tools/<name>_main.c."""
        main = "tools/%s_main.c" % name.replace("-", "_")
        sources = [main, *_c_files(self.root, "tools", ("_main.c",))]
        return self._link(sources, os.path.join(self.out, self.kind, "tools", name))

    def compile_library(self):
        self._compile_all(self._library())


def copy(root, to, files):
    """The sources below `root`, as links, but for `files`, which are copies."""
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for folder in COPIED:
        leave_out = shutil.ignore_patterns("__pycache__", "*.o", "bazel-*")  # bazel-*: links to all that Bazel built
        shutil.copytree(os.path.join(root, folder), os.path.join(to, folder), symlinks=True, copy_function=os.link,
                        ignore=leave_out)
    for file in files:
        os.unlink(os.path.join(to, file))
        shutil.copyfile(os.path.join(root, file), os.path.join(to, file))
