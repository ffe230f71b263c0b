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
    from typing import Any, Callable, Generator

    from ._worker import Worker


def running_loop() -> Any:
    """The asyncio loop that runs in this thread, or None. What was not imported does not run."""
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio is not None else None


class EagerFuture:
    """What one task waits for. If the operation ends in the reader's callback, the task goes on there, and not in the next
    turn of the loop."""

    __slots__ = ("_driver", "_ended", "_value", "_error", "_callback", "_context", "_asyncio_future_blocking")

    def __init__(self, driver: AsyncioDriver) -> None:
        self._driver = driver
        self._ended = self._asyncio_future_blocking = False
        self._error: BaseException | None = None
        self._callback: Any = None

    # ---- for the operation ----

    def done(self) -> bool:
        """Whether its task goes on, too: an interrupt between the two has the rest done again."""
        return self._ended and self._callback is None

    def set_result(self, value: Any) -> None:
        self._ended, self._value = True, value
        if self._callback is not None:
            self._driver.go_on(self)

    def set_exception(self, error: BaseException) -> None:
        self._ended, self._error = True, error
        if self._callback is not None:
            self._driver.go_on(self)

    # ---- for the task ----

    def get_loop(self) -> Any:
        return self._driver.loop

    def add_done_callback(self, callback: Any, *, context: Any = None) -> None:
        self._callback, self._context = callback, context

    def cancel(self, msg: Any = None) -> bool:
        """A task that is cancelled goes on in the next turn, as always."""
        if self._ended:
            return False
        import asyncio

        self._ended, self._error = True, asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        if self._callback is not None:
            self._driver.loop.call_soon(self._wake, context=self._context)
        return True

    def _wake(self) -> None:
        """Runs the task that waits, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def __await__(self) -> Generator[EagerFuture, None, Any]:
        if not self._ended:
            self._asyncio_future_blocking = True
            yield self
        return self.result()


class AsyncioDriver:
    """One `add_reader`: when the descriptor is readable, Worker.progress is called, a function in C. What that brought is
    followed by a look for what comes soon (Worker.spin), after the tasks that go on."""

    def __init__(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future = loop.create_future
        self.waiter: Callable[[], Any] = self._eager_future if worker.eager else loop.create_future
        self._fd = worker.fd()
        self._progress, self._spin = worker.progress, worker.spin
        self._turn: Callable[[Callable[[], int]], int] = self._eager_turn if worker.eager else _plain_turn
        self._looks = worker.spins
        self._is_eager = self._is_looking = self._stopped = False
        self._raised: BaseException | None = None
        reader: Callable[[], Any] = worker.progress
        if worker.spins or worker.eager:
            reader = self._readable
        loop.add_reader(self._fd, reader)

    def _eager_future(self) -> EagerFuture:
        return EagerFuture(self)

    def _readable(self) -> None:
        if self._turn(self._progress) and self._looks and not self._is_looking:
            self._is_looking = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        """The tasks that the last turn ended have run."""
        self._is_looking = False
        if not self._stopped and self._turn(self._spin):
            self._is_looking = True
            self.loop.call_soon(self._look)

    def _eager_turn(self, turn: Callable[[], int]) -> int:
        self._is_eager = True
        try:
            handled = turn()
        finally:
            self._is_eager = False
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        return handled

    def go_on(self, future: EagerFuture) -> None:
        """Runs the task that waits: no task runs in the reader's callback. Elsewhere one may: then in the loop's next turn."""
        if not self._is_eager or self._raised is not None:
            self.loop.call_soon(future._wake, context=future._context)
            return
        self._is_eager = False  # this task may call Worker.progress, too
        try:
            future._context.run(future._wake)
        except BaseException as error:  # SystemExit and KeyboardInterrupt end the loop
            self._raised = error
            if future._callback is not None:  # it came before the task
                self.loop.call_soon(future._wake, context=future._context)
        finally:
            self._is_eager = True

    def stop(self) -> None:
        self._stopped = True
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


def _plain_turn(turn: Callable[[], int]) -> int:
    return turn()


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
    is_of_trio = False
    future = waiter = PollFuture

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
def _turn(end: float | None = None) -> Any:
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
