"""Both sides asleep, or waiting as weft_worker_wait does: looking for a short while first."""

from .group import Goal, Group
from .samples import raw, ucx, weft

ASLEEP = ("-E", "sleep")


def groups(here):
    shm = {"weft": weft(here, "am_lat", "shm", mode="sleep"), "raw eventfd + epoll": raw(here, "eventfd_epoll")}
    tcp = {"weft": weft(here, "am_lat", "tcp", mode="sleep"), "raw tcp + epoll": raw(here, "tcp_epoll")}
    wait = {"weft": weft(here, "wait_lat", "shm", mode="wait")}
    wait_tcp = {"weft": weft(here, "wait_lat", "tcp", mode="wait")}
    for release in here.ucx():
        tcp[release.name] = ucx(release, "ucp_am_lat", "tcp,self", 5000, extra=ASLEEP)
        wait[release.name] = ucx(release, "ucp_am_lat", "shm,self", 20000, extra=ASLEEP)
        wait_tcp[release.name] = tcp[release.name]
    return {
        "sleep": Group("shared memory, 8 B, both asleep, half round trip", "us", shm, [Goal(1.1, "raw eventfd + epoll")],
                       limit="raw eventfd + epoll"),
        "sleep_tcp": Group("tcp loopback, 8 B, both asleep, half round trip", "us", tcp,
                           [Goal(0.8, "ucx newest"), Goal(1.1, "raw tcp + epoll")], limit="raw tcp + epoll"),
        "wait": Group("shared memory, 8 B, both waiting adaptively, half round trip", "us", wait, [Goal(0.2, "ucx newest")]),
        "wait_tcp": Group("tcp loopback, 8 B, both waiting adaptively, half round trip", "us", wait_tcp, [Goal(0.8, "ucx newest")]),
    }
