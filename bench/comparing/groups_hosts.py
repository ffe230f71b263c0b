"""Collectives of members on four hosts, which share the cores of this machine: hosts.py. Beside Open MPI."""

import os

from . import hosts
from .group import Goal, Group
from .samples import mpi_over_hosts, weft_over_hosts

VECTORS = {"8": 8, "64k": 1 << 16, "1m": 1 << 20}
BY_LEADERS = {"WEFT_COLL_ALGORITHMS": "alltoallv=hierarchy"}


def group(here, operation, title, size, per_host):
    members = {"weft": weft_over_hosts(here, operation, size, per_host)}
    for library in here.mpis:
        if not library.is_mpich:
            members[library.name] = mpi_over_hosts(library, operation, size, per_host)
    if operation == "alltoallv":
        members["weft, by leaders"] = weft_over_hosts(here, operation, size, per_host, BY_LEADERS)
    peers = [name for name in members if not name.startswith("weft")]
    return Group(f"{operation}{title}, 4 hosts of {per_host}", "us", members, [Goal(0.8, *peers)] if peers else [])


def groups(here):
    known = {}
    if not hosts.possible() or not os.access(here.weft_run, os.X_OK):
        return known
    for per_host in (1, 4):
        known[f"barrier_hosts_{per_host}"] = group(here, "barrier", "", 8, per_host)
        for title, size in VECTORS.items():
            known[f"allreduce_hosts_{title}_{per_host}"] = group(here, "allreduce", f" of {title} B", size, per_host)
    for title, size in {"8": 8, "1k": 1 << 10, "16k": 1 << 14}.items():
        known[f"alltoallv_hosts_{title}_4"] = group(here, "alltoallv", f" of {title} B", size, 4)
    return known
