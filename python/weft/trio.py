"""Workers under trio, by its own interface: a Worker finds it by itself when an operation waits in a trio task.

    async with trio.open_nursery() as nursery:
        nursery.start_soon(weft.trio.drive, worker)     # one task that watches the worker's descriptor
        ep = await worker.connect(("127.0.0.1", 7000))
        …
        nursery.cancel_scope.cancel()

trio has no callback for a readable descriptor, so a task waits for it. Only the waiting is there: each wake-up is one call
of Worker.progress. A worker without `drive` moves only while one of its operations is waited for.
"""
from __future__ import annotations

import math

import trio

from . import errors
from ._drivers import in_trio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Coroutine, Generator

    from ._endpoint import Endpoint
    from ._worker import Worker


class TrioFuture:
    """Ends once; tasks wait for it."""

    def __init__(self, driver: TrioDriver) -> None:
        self._driver = driver
        self._value: Any = None
        self._error: BaseException | None = None
        self._event = trio.Event()

    def done(self) -> bool:
        return self._event.is_set()

    @trio.lowlevel.enable_ki_protection
    def set_result(self, value: Any) -> None:
        self._value = value
        self._event.set()

    @trio.lowlevel.enable_ki_protection
    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._event.set()

    async def _wait(self) -> Any:
        await self._driver.until(self._event)
        if self._error is not None:
            raise self._error
        return self._value

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._wait().__await__()


async def _until_lost(ep: Endpoint, coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        await coroutine
    except errors.WeftError:
        if ep.alive:
            raise


class TrioDriver:
    """A worker in a run of trio. One task at a time watches the descriptor: `drive`, or a task that waits for a future."""

    loop = None
    is_of_trio = True

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._fd = worker.fd()
        self._token = trio.lowlevel.current_trio_token()
        self._is_watched = False
        self._next = trio.Event()  # set when nobody watches any more
        self._stopped = trio.Event()  # the worker is closed, or another loop drives it
        self._handlers: trio.Nursery | None = None  # of the first `drive`

    def is_current(self) -> bool:
        return trio.lowlevel.current_trio_token() is self._token

    def future(self) -> TrioFuture:
        return TrioFuture(self)

    waiter = future

    def stop(self) -> None:
        self._stopped.set()
        if in_trio():  # in no run any more: no task waits for the descriptor
            trio.lowlevel.notify_closing(self._fd)

    def start(self, ep: Endpoint, coroutine: Coroutine[Any, Any, Any]) -> bool:
        """Runs a handler of an endpoint in the nursery of `drive`; False: there is none."""
        if self._handlers is None:
            return False
        self._handlers.start_soon(_until_lost, ep, coroutine)
        return True

    async def drive(self) -> None:
        if self._handlers is not None:
            await self.until(self._stopped)
            return
        try:
            async with trio.open_nursery() as self._handlers:
                await self.until(self._stopped)
        finally:
            self._handlers = None

    async def settle(self, future: TrioFuture) -> None:
        with trio.CancelScope(shield=True):
            await self.until(future._event)

    async def within(self, future: TrioFuture, seconds: float | None) -> bool:
        with trio.move_on_after(math.inf if seconds is None else max(seconds, 0)):
            await self.until(future._event)
        return future.done()

    async def until(self, event: trio.Event) -> None:
        """Waits for an event, and watches the descriptor meanwhile if nobody else does."""
        while not event.is_set():
            if self._stopped.is_set():
                await event.wait()
            elif self._is_watched:
                await self._first_of(event, self._next)
            else:
                await self._watch(event)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _first_of(self, one: trio.Event, other: trio.Event) -> None:
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait, one)
            nursery.start_soon(wait, other)

    async def _watch(self, event: trio.Event) -> None:
        self._is_watched = True
        try:
            while not event.is_set() and not self._stopped.is_set():
                try:
                    await trio.lowlevel.wait_readable(self._fd)
                except trio.ClosedResourceError:
                    return
                handled = 0 if self._worker.closed else self._worker.progress()
                while handled and self._worker.spins and not event.is_set():
                    await trio.lowlevel.checkpoint()  # the tasks that this brought forward
                    handled = 0 if self._worker.closed else self._worker.spin()
        finally:
            self._leave_watch()

    @trio.lowlevel.enable_ki_protection
    def _leave_watch(self) -> None:
        self._is_watched = False
        watchers, self._next = self._next, trio.Event()
        watchers.set()


async def drive(worker: Worker) -> None:
    """Drives the worker until the task is cancelled or the worker is closed, so that peers are served while no task waits
    for an operation of it. Handlers that are coroutines run in a nursery of it. It ends after them, and with what one of them
    raises, but for errors of an endpoint that is lost or closed."""
    if worker.closed:
        await trio.lowlevel.checkpoint()
        return
    await worker._drive().drive()
