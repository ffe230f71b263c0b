"""The runtime view: the processes of a program, the hardware of each, and what is to be ended before the program ends.

    async with await weft.view.open(worker) as view:
        print(view.rank, view.size, (await view.fetch(0))["host"])
        await view.team.barrier()
"""
from __future__ import annotations

from . import _core, errors
from ._worker import milliseconds
from .teams import NO_COLOUR, Team

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._worker import Worker


# What members share, by their hardware. None: this one has nothing of the kind.
_SHARED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "host": lambda mine: mine["host_id"],
    "numa_node": lambda mine: (mine["host_id"], mine["numa_node"]),
    "gpu": lambda mine: mine["gpus"][0]["id"] if mine["gpus"] else None}


class View:
    """rank, size; engine: "weft-run", "mpi", "pmix", "store", "single", or "null"; team: for collectives (None of the null view)."""

    def __init__(self, core: _core.View) -> None:
        self._core = core
        self.rank: int = core.rank
        self.size: int = core.size
        self.engine: str = core.engine
        self.team = None if core.team.closed else Team(core.team)

    def mine(self) -> dict[str, Any]:
        """This process's hardware, measured now: host, pid, cpus, n_cores, n_packages, nodes (of NUMA), caches, topology
        (what described them), ram_total, ram_free, ram_used (bytes), gpus, rdma_devices, network_devices, and more."""
        return self._core.mine()

    def at(self, rank: int, refresh: bool = False, *, deadline: float | None = None) -> dict[str, Any]:
        """A member's hardware, as of `mine`. The first call for a rank drives the worker until it is here.

        deadline: seconds; then TimedOutError. Errors: PeerFailedError, or RevokedError after that member's release.
        """
        if deadline is None:
            return self._core.at(rank, refresh)
        request = self._core.post_fetch(rank, refresh, milliseconds(deadline))
        while request is not None and not request.done:
            self._core.worker.wait()
        if request is not None:
            request.result()
        return self._core.at(rank)

    async def fetch(self, rank: int, refresh: bool = False, *, deadline: float | None = None) -> dict[str, Any]:
        """The same, and the loop runs meanwhile."""
        request = self._core.post_fetch(rank, refresh, milliseconds(deadline))
        if request is not None:
            await self._core.worker.complete(request)
        return self._core.at(rank)

    def push_finalizer(self, fn: Callable[[], Any], name: str | None = None) -> None:
        """fn() is called before the view ends; the last pushed is the first. It does not run at exit() or by a signal."""
        self._core.push_finalizer(fn, name)

    async def split(self, colour: int | None, key: int = 0, *, deadline: float | None = None) -> View:
        """A view of the members that give one colour, ordered by key. None takes part and gets the null view. After
        TimedOutError the team of this view has failed, if it waited for a member."""
        request = self._core.post_split(NO_COLOUR if colour is None else colour, key, milliseconds(deadline))
        return View(await self._core.worker.complete(request))

    async def partition(self, by: str = "host", *, deadline: float | None = None) -> View:
        """A view of the members that share a "host", a "numa_node" (of the first processor that each may run on) or a "gpu"
        (the first that each sees) with this one, in the order of their ranks. A member without a GPU gets the null view with
        "gpu". Every member calls it."""
        if by not in _SHARED:
            raise errors.InvalidParamError("by %r: not one of %s" % (by, ", ".join(_SHARED)))
        if self.team is None:
            raise errors.InvalidParamError("the null view has no members")
        mine = _SHARED[by](self.mine())
        everyone = await self.team.allgather_obj(mine, deadline=deadline)
        return await self.split(None if mine is None else everyone.index(mine), deadline=deadline)

    async def release(self, *, deadline: float | None = None) -> None:
        """Runs the finalizers, closes the team, and ends the view.

        deadline: seconds; then TimedOutError. The end goes on, and a further call waits for it. So it does when the task is
        cancelled.
        """
        await self._core.worker.end(self._core.post_release, deadline)

    async def __aenter__(self) -> View:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.release()


async def open(worker: Worker, engine: str | None = None, *, store: str | None = None, rank: int = 0, size: int = 0,
               deadline: float | None = None) -> View:
    """Makes the view of this process on a worker.

    engine: None finds it. store: "host:port" where rank 0 serves the exchange (or WEFT_STORE); rank and size: of this
    process, with a store (size 0: WEFT_RANK and WEFT_SIZE, or the launcher's).
    Errors: NotFoundError if the engine is not there; TimedOutError.
    """
    request = worker.post_view(engine, store, rank, size, milliseconds(deadline))
    return View(await worker.complete(request))
