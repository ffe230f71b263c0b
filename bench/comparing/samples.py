"""One sample of each system: functions that make functions which run once and return a number, or None."""

import json
import os
import random
import subprocess
import time

from . import hosts

ADDRESS_SPACE = range(20000, 30000)
run_seconds = 0.3  # of one sample; --quick makes it shorter
by_median = False  # --median: medians within a sample, which other load disturbs less


def cores():
    return sorted(os.sched_getaffinity(0))[:2]


def output_of(command, **options):
    """What it printed; None when it failed or hung."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60, **options)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def weft(here, test, transport, key="avg_us", mode="poll", size=8, extra=()):
    def run():
        out = output_of([here.weft, "--test", test, "--transport", transport, "--mode", mode, "--size", str(size),
                         "--seconds", str(run_seconds), "--json", *extra])
        told = "p50_us" if by_median and key == "avg_us" else key
        return json.loads(out)[told] if out else None

    return run


def tabbed(command, line=0, scale=1, env=None):
    """The value of a program that prints name TAB value TAB unit; of the line so named, or of that number."""

    def run():
        for number, row in enumerate((output_of([*command], env=env) or "").splitlines()):
            name, value = row.split("\t")[:2]
            if line in (number, name):
                return float(value) * scale
        return None

    return run


# Its first line is the average, its second the median.
def raw(here, what, size=8):
    return lambda: tabbed([here.raw, what, str(run_seconds), str(size)], 1 if by_median else 0)()


def raw_stream(here, what, size=8):
    return lambda: tabbed([here.raw_stream, what, str(run_seconds), str(size)])()


def line_way(here):
    """Of one cache line between the two cores, us."""

    def run():
        out = output_of([here.place])
        return float(out) / 1e3 if out else None

    return run


# ---- ucx_perftest ----------------------------------------------------------------------------------------------------

# What is taken of its last line. The average, not the median: that one is of single operations and leaves out the slow ones.
AVERAGE = "average"
RATE = "rate"
BANDWIDTH = "bandwidth"


def ucx_row(release, tls, arguments):
    """ucx_perftest's server on the first core, its client on the second; the numbers of its last line."""
    port = str(random.choice(ADDRESS_SPACE))
    first, second = cores()
    environment = release.environment(tls)
    common = [*arguments, "-p", port, "-f"]
    server = subprocess.Popen(["taskset", "-c", str(first), release.perftest, *common], env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.2)
    out = output_of(["taskset", "-c", str(second), release.perftest, "127.0.0.1", *common], env=environment)
    try:
        server.wait(3)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    rows = [line.split() for line in (out or "").splitlines()]
    rows = [row for row in rows if len(row) == 8 and row[0].isdigit()]
    return [float(value) for value in rows[-1]] if rows else None


def ucx(release, test, tls, iterations, what=AVERAGE, size=8, extra=()):
    warm = max(iterations // 20, 10)
    arguments = ["-t", test, "-s", str(size), "-n", str(iterations), "-w", str(warm), *extra]

    def run():
        row = ucx_row(release, tls, arguments)
        if not row:
            return None
        _, median, average, _, _, bandwidth, _, rate = row
        return {AVERAGE: median if by_median else average, RATE: rate / 1e6, BANDWIDTH: bandwidth * 2**20 / 1e9}[what]

    return run


def ucx_endpoints(release, tls, line, count, links=None, scale=1):
    command = [release.endpoints, str(count), *([str(links)] if links else [])]

    def run():
        out = output_of(command, env=release.environment(tls))
        values = dict(row.split("\t")[:2] for row in (out or "").splitlines())
        return float(values[line]) * scale if line in values else None

    return run


# ---- Open MPI and gloo -----------------------------------------------------------------------------------------------


def mpi(here, btl, line, size=8):
    return lambda: tabbed(["mpirun", "--allow-run-as-root", "-n", "2", "--bind-to", "core", "--mca", "pml", "ob1", "--mca",
                           "btl", btl, here.mpi, str(size), str(run_seconds)], line + " median" if by_median else line)()


def mpi_collective(library, operation, size, ranks, over="shm", extra=()):
    return lambda: tabbed([*library.command(ranks, over), library.collectives, operation, str(size), str(run_seconds), *extra])()


def weft_over_hosts(here, operation, size, per_host, extra=None):
    def run():
        program = [here.weft, "--test", operation, "--mode", "wait", "--size", str(size), "--seconds", str(run_seconds), "--json"]
        out = output_of(hosts.four_hosts().weft(here.weft_run, per_host, program), env=dict(os.environ, **(extra or {})))
        return json.loads(out)["p50_us"] if out else None

    return run


def mpi_over_hosts(library, operation, size, per_host):
    def run():
        program = [library.collectives, operation, str(size), str(run_seconds)]
        return tabbed(hosts.four_hosts().mpi(library, per_host, program))()

    run.is_apart = True  # the daemons' ranks are no children of mpiexec
    return run


def bare_barrier(here, how, ranks):
    return lambda: tabbed([here.bare_barrier, how, str(ranks), str(run_seconds)])()


def gloo_collective(here, operation, size, ranks, extra=()):
    return lambda: tabbed([here.gloo, operation, str(ranks), str(size), str(run_seconds), *extra])()


def ucc_collective(here, operation, size, ranks, over="shm", extra=()):
    command = [here.ucc.collectives, operation, str(ranks), str(size), str(run_seconds), *extra]
    return lambda: tabbed(command, env=here.ucc.environment(over))()
