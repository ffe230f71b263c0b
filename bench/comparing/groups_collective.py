"""Allreduce between two processes, beside Open MPI and gloo."""

from .group import Group
from .samples import gloo, mpi, weft


def over_tcp(here, size):
    members = {"weft": weft(here, "allreduce", "tcp", "p50_us", size=size)}
    if here.gloo:
        members["gloo"] = gloo(here, "async", size)
        members["gloo busy"] = gloo(here, "busy", size)
    if here.mpi:
        members["open mpi"] = mpi(here, "self,tcp", "mpi allreduce", size)
    return members


def groups(here):
    local = {"weft": weft(here, "allreduce", "auto", "p50_us")}
    if here.mpi:
        local["open mpi"] = mpi(here, "self,vader", "mpi allreduce")
    return {
        "allreduce": Group("allreduce of 8 B, two processes", "us", local),
        "allreduce_tcp": Group("allreduce of 8 B, two processes, tcp loopback", "us", over_tcp(here, 8)),
        "allreduce_tcp_64k": Group("allreduce of 64 KiB, two processes, tcp loopback", "us", over_tcp(here, 65536)),
    }
