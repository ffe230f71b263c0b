"""Many endpoints, many links, many clients: memory, how fast they open, what a look costs, what one core serves."""

from .group import Goal, Group
from .samples import tabbed, ucx_endpoints, weft

ENDPOINTS, LINKS, CLIENTS = 5000, 1000, 64
UCX_LINKS = 200  # a thousand of its workers in one process take minutes to make
TLS = {"shm": "shm,self", "tcp": "tcp,self"}
UCX = ("ucx newest", "ucx debian")
SHORT = ("--seconds", "0.001")  # one round


def with_ucx(here, members, transport, line, count, links=None, scale=1):
    for release in here.ucx():
        if release.endpoints:
            members[release.name] = ucx_endpoints(release, TLS[transport], line, count, links, scale)
    return members


def endpoints(here, transport):
    count = ("--count", str(ENDPOINTS), *SHORT)
    memory = {"weft": weft(here, "ep_memory", transport, "bytes", extra=count),
              "weft, the other side": weft(here, "ep_memory", transport, "peer_bytes", extra=count)}
    speed = {"weft": weft(here, "connect_rate", transport, "per_s", extra=count)}
    return {
        f"memory_{transport}": Group(f"{transport}, resident memory of an endpoint, {ENDPOINTS} to one peer", "B",
                                     with_ucx(here, memory, transport, "bytes", ENDPOINTS), most=300),
        f"connect_{transport}": Group(f"{transport}, endpoints opened with a first message, {ENDPOINTS} to one peer", "1/s",
                                      with_ucx(here, speed, transport, "per_s", ENDPOINTS), [Goal(5, *UCX)]),
    }


def links(here, transport):
    many = ("--links", str(LINKS), *SHORT)
    memory = {"weft": weft(here, "ep_memory", transport, "bytes", extra=many)}
    fds = {"weft": weft(here, "ep_memory", transport, "fds", extra=many)}
    speed = {"weft": weft(here, "connect_rate", transport, "per_s", extra=many)}
    return {
        f"link_memory_{transport}": Group(f"{transport}, resident memory of a link, to {LINKS} workers (UCX: {UCX_LINKS})", "B",
                                          with_ucx(here, memory, transport, "bytes", UCX_LINKS, UCX_LINKS), most=1024),
        f"link_fds_{transport}": Group(f"{transport}, descriptors of a link, to {LINKS} workers (UCX: {UCX_LINKS})", "fds",
                                       with_ucx(here, fds, transport, "fds", UCX_LINKS, UCX_LINKS),
                                       most=1 if transport == "tcp" else 0),
        f"link_connect_{transport}": Group(f"{transport}, links opened with a first message, to {LINKS} workers (UCX: {UCX_LINKS})", "1/s",
                                           with_ucx(here, speed, transport, "per_s", UCX_LINKS, UCX_LINKS), [Goal(1, *UCX)]),
    }


def quiet(here):
    look = {"weft": weft(here, "poll_cost", "shm", "p50_us", extra=("--links", str(LINKS))),
            "weft, one peer": weft(here, "poll_cost", "shm", "p50_us", extra=("--links", "1"))}
    with_ucx(here, look, "shm", "look", UCX_LINKS, UCX_LINKS)
    return Group(f"shared memory, a look at {LINKS} quiet peers (UCX: {UCX_LINKS})", "us", look, [Goal(1.2, "weft, one peer")], most=0.015)


def server(here, transport):
    members = {"weft": weft(here, "server", transport, "per_s", size=64)}
    members["weft, asleep"] = weft(here, "server", transport, "per_s", "sleep", size=64)
    if here.libev_echo:
        kind = {"shm": "unix", "tcp": "tcp"}[transport]
        members["libev"] = libev(here, kind)
    factor = {"shm": 10, "tcp": 1}[transport]
    return Group(f"{transport}, requests of 64 B from {CLIENTS} clients, one core answers", "1/s", members,
                 [Goal(factor, "libev")])


def libev(here, kind):
    return tabbed([here.libev_echo, kind, str(CLIENTS), "0.5"])


def idle(here, transport):
    key = "server_cpu_pct"
    members = {"weft": weft(here, "idle", transport, key, "wait", extra=("--seconds", "2"))}
    return Group(f"{transport}, processor time of a server while {CLIENTS} clients are idle", "%", members, most=0.1)


def groups(here):
    known = {
        **endpoints(here, "shm"), **endpoints(here, "tcp"), **links(here, "shm"), **links(here, "tcp"),
        "quiet": quiet(here), "idle_shm": idle(here, "shm"), "idle_tcp": idle(here, "tcp"),
    }
    for group in known.values():
        group.samples = 3
    return {**known, "server_shm": server(here, "shm"), "server_tcp": server(here, "tcp")}
