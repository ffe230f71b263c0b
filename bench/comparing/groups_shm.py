"""Shared memory, polled: messages of all sizes and the other side's memory. UCX by default, and with its one-copy off."""

from .group import Goal, Group
from .samples import AVERAGE, BANDWIDTH, RATE, line_way, mpi, raw, raw_stream, ucx, weft

DEFAULT, TWO_COPIES = "shm,self", "posix,sysv,self"
K, M = 1 << 10, 1 << 20


def with_ucx(here, members, test, iterations, what=AVERAGE, size=8, extra=()):
    """Adds the newest release in both settings, and Debian's."""
    for release in here.ucx():
        members[release.name] = ucx(release, test, DEFAULT, iterations, what, size, extra)
    if here.newest:
        members["ucx two copies"] = ucx(here.newest, test, TWO_COPIES, iterations, what, size, extra)
    return members


UCX = ("ucx newest", "ucx two copies")


def latency(here, title, ours, theirs, iterations, size, factor, limit=None, extra=(), test_size=None):
    members = {"weft": weft(here, ours, "shm", size=test_size or size)}
    with_ucx(here, members, theirs, iterations, AVERAGE, size, extra)
    if limit:
        members.update(limit)
    return Group(title, "us", members, [Goal(factor, *UCX)], limit=next(iter(limit)) if limit else None)


def rate(here, title, ours, theirs):
    members = {"weft": weft(here, ours, "shm", "mmsg_s")}
    with_ucx(here, members, theirs, 2000000, RATE)
    members["raw ring"] = raw_stream(here, "ring")
    return Group(title, "M/s", members, [Goal(3, *UCX)], limit="raw ring")


def bandwidth(here, size, iterations, factor, one_at_a_time=False):
    """One at a time: the messages of a window are all of one buffer, and Weft sends a piece of each in turn, out of the cache."""
    members = {"weft": weft(here, "tag_bw", "shm", "gb_s", size=size, extra=("--window", "1") if one_at_a_time else ())}
    with_ucx(here, members, "tag_bw", iterations, BANDWIDTH, size, ("-O", "1") if one_at_a_time else ())
    members["raw pipe"] = raw_stream(here, "pipe", size)
    members["raw halves"] = raw_stream(here, "halves", size)
    goals = [Goal(factor, *UCX), Goal(2, "ucx newest")]
    return Group(f"shared memory, bandwidth of {size_text(size)} messages", "GB/s", members, goals, limit="raw halves")


def size_text(size):
    return f"{size // M} MiB" if size >= M else f"{size // K} KiB" if size >= K else f"{size} B"


def groups(here):
    ring, line = {"raw ring": raw(here, "ring")}, {"cache line": line_way(here)}
    put_bw = {"weft": weft(here, "put_bw", "shm", "gb_s", size=M)}
    with_ucx(here, put_bw, "ucp_put_bw", 8000, BANDWIDTH, M)
    put_bw["raw copy"] = raw_stream(here, "copy", M)
    am = latency(here, "shared memory, active message of 8 B, half round trip", "am_lat", "ucp_am_lat", 1000000, 8, 0.8, ring)
    if here.mpi:
        am.members["open mpi"] = mpi(here, "self,vader", "mpi am")
    return {
        "shm": am,
        "shm_tag": latency(here, "shared memory, tagged message of 8 B, half round trip", "tag_lat", "tag_lat", 1000000, 8,
                           0.85, ring),
        "shm_tag_1k": latency(here, "shared memory, tagged message of 1 KiB, half round trip", "tag_lat", "tag_lat", 500000, K,
                              0.85),
        "shm_tag_64k": latency(here, "shared memory, tagged message of 64 KiB, half round trip", "tag_lat", "tag_lat", 20000,
                               64 * K, 0.9),
        "shm_rate": rate(here, "shared memory, active messages of 8 B one way", "am_rate", "ucp_am_bw"),
        "shm_tag_rate": rate(here, "shared memory, tagged messages of 8 B one way", "tag_rate", "tag_bw"),
        "shm_bw_64k": bandwidth(here, 64 * K, 40000, 0.95),
        "shm_bw_1m": bandwidth(here, M, 4000, 1.4),
        "shm_bw_16m": bandwidth(here, 16 * M, 120, 1.1, one_at_a_time=True),
        "shm_put": latency(here, "shared memory, put of 8 B, half round trip", "put_lat", "ucp_put_lat", 1000000, 8, 1, line),
        "shm_get": latency(here, "shared memory, get of 8 B, one at a time", "get_lat", "ucp_get", 300000, 8, 1,
                           extra=("-O", "1")),
        "shm_fadd": latency(here, "shared memory, fetching add of 8 B, one at a time", "atomic_lat", "ucp_fadd", 1000000, 8, 1,
                            extra=("-O", "1")),
        "shm_put_bw": Group("shared memory, puts of 1 MiB", "GB/s", put_bw, [Goal(1, *UCX)], limit="raw copy"),
    }
