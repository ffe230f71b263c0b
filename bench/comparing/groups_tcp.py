"""TCP over loopback, polled: messages of all sizes, and the other side's memory."""

from .group import Goal, Group
from .groups_shm import K, M, size_text
from .samples import AVERAGE, BANDWIDTH, RATE, mpi, raw, raw_stream, ucx, weft


def with_ucx(here, members, test, iterations, what=AVERAGE, size=8, extra=()):
    for release in here.ucx():
        members[release.name] = ucx(release, test, "tcp,self", iterations, what, size, extra)
    return members


def latency(here, size):
    members = {"weft": weft(here, "am_lat", "tcp", size=size), "raw tcp": raw(here, "tcp_spin", size)}
    with_ucx(here, members, "ucp_am_lat", 20000, AVERAGE, size)
    goals = [Goal(0.88, "ucx newest"), Goal(1.05, "raw tcp")]
    return Group(f"tcp loopback, active message of {size_text(size)}, half round trip", "us", members, goals, limit="raw tcp")


def rate(here):
    members = {"weft": weft(here, "am_rate", "tcp", "mmsg_s")}
    with_ucx(here, members, "tag_bw", 50000, RATE)
    return Group("tcp loopback, messages of 8 B one way", "M/s", members, [Goal(50, "ucx newest")])


def bandwidth(here, size, iterations, factor):
    members = {"weft": weft(here, "tag_bw", "tcp", "gb_s", size=size), "raw tcp": raw_stream(here, "tcp", size)}
    with_ucx(here, members, "tag_bw", iterations, BANDWIDTH, size)
    return Group(f"tcp loopback, bandwidth of {size_text(size)} messages", "GB/s", members, [Goal(factor, "ucx newest")],
                 limit="raw tcp")


def one_sided(here):
    put = {"weft": weft(here, "put_lat", "tcp"), "raw tcp": raw(here, "tcp_spin")}
    with_ucx(here, put, "ucp_put_lat", 5000)
    get_bw = {"weft": weft(here, "get_bw", "tcp", "gb_s", size=M), "raw tcp": raw_stream(here, "tcp", M)}
    with_ucx(here, get_bw, "ucp_get", 300, BANDWIDTH, M)
    twice = lambda: (lambda half: 2 * half if half else None)(raw(here, "tcp_spin")())  # noqa: E731
    fadd = {"weft": weft(here, "atomic_lat", "tcp"), "raw round trip": twice}
    with_ucx(here, fadd, "ucp_fadd", 10000, extra=("-O", "1"))
    return {
        "tcp_put": Group("tcp loopback, put of 8 B, half round trip", "us", put, [Goal(0.6, "ucx newest")], limit="raw tcp"),
        "tcp_get_bw": Group("tcp loopback, gets of 1 MiB", "GB/s", get_bw, [Goal(3, "ucx newest")], limit="raw tcp"),
        "tcp_fadd": Group("tcp loopback, fetching add of 8 B, one at a time", "us", fadd, [Goal(1.05, "raw round trip")],
                          limit="raw round trip"),
    }


def groups(here):
    small = latency(here, 8)
    if here.mpi:
        small.members["open mpi"] = mpi(here, "self,tcp", "mpi am")
    return {
        "tcp": small,
        "tcp_1k": latency(here, K),
        "tcp_rate": rate(here),
        "tcp_bw_4k": bandwidth(here, 4 * K, 40000, 15),
        "tcp_bw_64k": bandwidth(here, 64 * K, 6000, 2),
        "tcp_bw_1m": bandwidth(here, M, 1000, 1),
        **one_sided(here),
    }
