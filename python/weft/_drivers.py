"""Who drives a worker: an asyncio loop (uvloop too), trio, or the program itself. A driver makes futures and waits for them.

No driver has a thread or a task. Each watches the worker's descriptor, or sleeps in Worker.wait.
"""
from __future__ import annotations

import sys
import time
import types

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any, Generator


def running_loop() -> Any:
    """The asyncio loop that runs in this thread, or None. What was not imported does not run."""
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio is not None else None


class AsyncioDriver:
    """One `add_reader`: when the descriptor is readable, Worker.progress is called, a function in C."""

    def __init__(self, worker: _core.Worker, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future = loop.create_future
        self._fd = worker.fd()
        loop.add_reader(self._fd, worker.progress)

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.remove_reader(self._fd)

    async def settle(self, future: Any) -> None:
        """Waits for a future that is about to end, whatever is cancelled meanwhile; a second cancellation ends the wait."""
        import asyncio

        await asyncio.wait([future])

    async def within(self, future: Any, seconds: float | None) -> bool:
        """Waits for a future, at most so long; whether it has ended. It goes on if it has not, or the wait is cancelled."""
        import asyncio

        await asyncio.wait([future], timeout=seconds)
        return future.done()


class PollFuture:
    """Done when somebody sets it; whoever awaits it drives the worker (Worker.run)."""

    def __init__(self) -> None:
        self._set = False
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._set

    def set_result(self, value: Any) -> None:
        self._set, self._value = True, value

    def set_exception(self, error: BaseException) -> None:
        self._set, self._error = True, error

    def __await__(self) -> Generator[None, None, Any]:
        while not self._set:
            yield
        if self._error is not None:
            raise self._error
        return self._value


class PollDriver:
    """No loop: Worker.run drives the worker until its coroutine has ended."""

    loop = None
    future = PollFuture

    def stop(self) -> None:
        pass

    async def settle(self, future: PollFuture) -> None:
        while not future.done():
            await _turn()

    async def within(self, future: PollFuture, seconds: float | None) -> bool:
        end = None if seconds is None else time.monotonic() + seconds
        while not future.done() and (end is None or time.monotonic() < end):
            await _turn(end)
        return future.done()


@types.coroutine
def _turn(end: float | None = None) -> Generator[float | None, None, None]:
    """Gives Worker.run a turn, which ends at this time of the monotonic clock."""
    yield end


class Limit:
    """A deadline for waits that are no operation of the library, on whatever loop: a receive under a tag that no peer can
    know, which the library ends in time.

        with Limit(worker, deadline) as limit:
            limit.ends(future)      # TimedOutError, unless it has ended before
            await future
    """

    def __init__(self, worker: _core.Worker, deadline: int) -> None:
        """deadline: in ms; 0: none."""
        self._request: Any = None
        if not deadline:
            return
        import os

        polls, worker.polls = worker.polls, False  # it is posted, and not waited for
        try:
            self._request = worker.tag_recv(bytearray(), int.from_bytes(os.urandom(8), "little"), 0xFFFFFFFFFFFFFFFF, deadline)
        finally:
            worker.polls = polls

    def ends(self, future: Any) -> None:
        if self._request is not None:
            self._request.future = future

    @property
    def is_over(self) -> bool:
        return self._request is not None and self._request.done

    def __enter__(self) -> Limit:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._request is not None:
            self._request.future = None
            self._request.cancel()


def in_trio() -> bool:
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True
