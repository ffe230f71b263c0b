"""Collectives, beside Open MPI, MPICH, UCC and gloo, each in its best setting."""

from .group import Goal, Group
from .samples import bare_barrier, gloo_collective, mpi_collective, ucc_collective, weft

SIZES = {"8": 8, "1k": 1 << 10, "64k": 1 << 16, "1m": 1 << 20}
OPERATIONS = ("allreduce", "bcast", "allgather", "alltoall", "reduce_scatter", "gather", "scatter", "reduce")
# Beside MPI alone. Equal blocks; a barrier ends each batch of scans.
MORE = ("allgatherv", "gatherv", "scatterv", "reduce_scatterv", "alltoallv", "scan", "exscan")


def members(here, operation, size, ranks, transport="auto", fresh=False):
    """Polling where each rank has a core of its own; else as weft_worker_wait does. Fresh: each rank writes what it gives."""
    mode = "poll" if ranks <= 2 else "wait"
    over, words = "tcp" if transport == "tcp" else "shm", ("fresh",) if fresh else ()
    extra = ("--ranks", str(ranks), *(("--fresh",) if fresh else ()))
    all_of = {"weft": weft(here, operation, transport, "p50_us", mode=mode, size=size, extra=extra)}
    for library in here.mpis:
        all_of[library.name] = mpi_collective(library, operation, size, ranks, over, words)
    if here.ucc and operation not in MORE:
        all_of["ucc"] = ucc_collective(here, operation, size, ranks, over, words)
    if here.gloo and operation not in ("reduce_scatter", *MORE):  # it has none
        all_of["gloo"] = gloo_collective(here, operation, size, ranks, words)
    if here.gloo and operation == "allreduce" and ranks == 2 and over == "tcp":
        all_of["gloo busy"] = gloo_collective(here, "allreduce_busy", size, ranks, words)
    return all_of


def group(here, operation, title, size, ranks, transport="auto", factor=1.0, fresh=False):
    all_of = members(here, operation, size, ranks, transport, fresh)
    peers = [name for name in all_of if name != "weft"]
    title = f"{operation}{title}, {ranks} processes" + (", tcp loopback" if transport == "tcp" else "") + (", written" if fresh else "")
    return Group(title, "us", all_of, [Goal(factor, *peers)] if peers else [])


def persistent(here, operation, ranks, transport="auto"):
    """A started collective beside the same call that is described each time."""
    mode = "poll" if ranks <= 2 else "wait"
    extra = ("--ranks", str(ranks))
    forms = {"weft": weft(here, operation, transport, "p50_us", mode=mode, extra=(*extra, "--persistent")),
             "weft, not persistent": weft(here, operation, transport, "p50_us", mode=mode, extra=extra)}
    over = ", tcp loopback" if transport == "tcp" else ""
    if here.ucc:
        forms["ucc, persistent"] = ucc_collective(here, operation, 8, ranks, "tcp" if over else "shm", ("persistent",))
    return Group(f"persistent {operation} of 8 B, {ranks} processes{over}", "us", forms, [Goal(0.8, "weft, not persistent")])


def crowded(here, operation, ranks, how):
    """Ranks that share the cores, beside a counter that all watch: looking by turns, or asleep."""
    mode = "sleep" if how == "futex" else "wait"
    members = {"weft": weft(here, operation, "auto", "p50_us", mode=mode, extra=("--ranks", str(ranks))),
               "bare": bare_barrier(here, how, ranks)}
    return Group(f"{operation} of {ranks} processes, {'asleep' if how == 'futex' else 'looking'}", "us", members, [Goal(1.1, "bare")])


def groups(here):
    known = {}
    for ranks in (4, 8, 16):
        for operation in ("barrier", "allreduce"):
            known[f"{operation}_looking_{ranks}"] = crowded(here, operation, ranks, "yield")
            known[f"{operation}_asleep_{ranks}"] = crowded(here, operation, ranks, "futex")
    for ranks in (2, 4):
        known[f"allreduce_16m_{ranks}"] = group(here, "allreduce", " of 16m B", 1 << 24, ranks, factor=0.5)
    for ranks in (2, 4):
        for operation in ("allreduce", "bcast", "alltoall"):
            known[f"persistent_{operation}_{ranks}"] = persistent(here, operation, ranks)
        known[f"persistent_allreduce_tcp_{ranks}"] = persistent(here, "allreduce", ranks, "tcp")
    for ranks in (2, 4, 8):
        known[f"barrier_{ranks}"] = group(here, "barrier", "", 8, ranks, factor=0.7)
        for operation in (*OPERATIONS, *MORE):
            for title, size in SIZES.items():
                known[f"{operation}_{title}_{ranks}"] = group(here, operation, f" of {title} B", size, ranks, factor=0.7)
    for ranks in (2, 4):
        for operation in ("allreduce", "bcast", "allgather", "alltoall"):
            for title in ("64k", "1m"):
                known[f"written_{operation}_{title}_{ranks}"] = group(here, operation, f" of {title} B", SIZES[title], ranks,
                                                                      factor=0.7, fresh=True)
        known[f"barrier_tcp_{ranks}"] = group(here, "barrier", "", 8, ranks, "tcp", 0.8)
        for operation in ("bcast", "allgather", "alltoall"):
            known[f"{operation}_tcp_64k_{ranks}"] = group(here, operation, " of 64k B", SIZES["64k"], ranks, "tcp", 0.8)
        for title in ("8", "64k", "1m"):
            known[f"allreduce_tcp_{title}_{ranks}"] = group(here, "allreduce", f" of {title} B", SIZES[title], ranks, "tcp", 0.8)
    return known
