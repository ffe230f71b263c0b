"""Context and Worker: the library's, with awaitable operations."""
from __future__ import annotations

import atexit
import math
import operator
import time
import types
import weakref

from . import _core, _drivers, errors
from ._endpoint import AM_QUEUED, FRAMES, HELLO, Endpoint, Listener, on_frames, on_hello, on_queued

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Coroutine, Mapping, TypeVar

    T = TypeVar("T")

ALL_TAGS = 0xFFFFFFFFFFFFFFFF
_LONGEST = 0xFFFFFFFF / 1000  # seconds

_open_workers: "weakref.WeakSet[Worker]" = weakref.WeakSet()


@atexit.register
def _abandon() -> None:
    # The interpreter must not wait for peers: what is open ends with the process.
    for worker in list(_open_workers):
        worker.abandon()


def milliseconds(seconds: float | None) -> int:
    """A deadline in seconds from now, as the library takes it: 0 for none, at least 1 ms otherwise. Its 32 bits reach for 49
    days, and what is longer, or infinite, is none."""
    if seconds is None:
        return 0
    try:
        if seconds > _LONGEST:
            return 0
    except TypeError:
        raise TypeError("seconds are a number or None, not %r" % (seconds,)) from None
    return max(1, math.ceil(seconds * 1000))


def milliseconds_left(end: float) -> int:
    """Until this time of the monotonic clock, and an hour at most: whoever waits looks again."""
    return math.ceil(min(max(0, end - time.monotonic()), 3600) * 1000)


class Context(_core.Context):
    """Settings (`weft-info --config` lists them), and the parent of workers.

    settings: a dict of strings, {"log.level": "info"}; they override the environment, which overrides the file.
    """


class Worker(_core.Worker):
    """One thread's connections and operations. Made and used by one thread; another thread has a worker of its own.

    It is driven by the asyncio loop (or trio) that runs when its first operation waits, by one watched descriptor. Without
    a loop, `run(coroutine)` drives it, or `progress()` and `wait()`.

    settings: for a Context of its own, if `context` is not given. transports: "shm,tcp". unlock: progress releases the
    interpreter's lock, for programs whose other threads compute while large messages are copied. polls: each operation
    drives the worker until it has ended, within its call and at full speed: for programs without a loop. eager: under
    asyncio, a task goes on within the callback in which its operation ended, before what the loop has ready, and not in the
    loop's next turn: a message takes a turn less.
    """

    eager = False
    spins = True
    _driver: Any = None
    _next_number = 1
    _by_address: set[Endpoint]
    _sleepers: "weakref.WeakSet[Any]"  # endpoints and listeners whose end is to be told when the worker closes
    _on_endpoint: Callable[[Endpoint], Any] | None = None
    _allocators: dict[str, Callable[[int], Any]]

    def __new__(cls, context: Context | None = None, *, settings: Mapping[str, str] | None = None,
                transports: str | None = None, name: str | None = None, unlock: bool = False,
                polls: bool = False, eager: bool | None = None) -> "Worker":
        self = super().__new__(cls, context or Context(dict(settings or {})), transports, name, unlock)
        self.polls = polls
        if eager is not None:
            self.eager = eager
        if unlock:
            self.spins = False
        self.endpoint_type = Endpoint
        self._by_address = set()
        self._sleepers = weakref.WeakSet()
        self._allocators = {}
        self.on_endpoint = self._accepted
        super(Worker, self).am_handler(HELLO, on_hello)
        super(Worker, self).am_handler(AM_QUEUED, on_queued)
        super(Worker, self).am_handler(FRAMES, on_frames)
        _open_workers.add(self)
        self._be_driven()
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def am_handler(self, id: int, fn: Callable[[Any, _core.Message], Any] | None) -> None:
        """Calls `fn(endpoint, message)` for each active message to `id`, 0 … 1020; None: for none any more."""
        if not 0 <= operator.index(id) < FRAMES:
            raise errors.InvalidParamError("id is %d: a program's are 0 to %d" % (id, FRAMES - 1))
        super().am_handler(id, callable_or_none(fn))

    def __repr__(self) -> str:
        try:
            what = self.describe()
        except errors.WeftError:
            return "<weft.%s: closed>" % type(self).__name__
        return "<weft.%s %016x%s>" % (type(self).__name__, what["id"], " %r" % what["name"] if what["name"] else "")

    # ---- waiting ----

    def _drive(self) -> Any:
        """The driver of whoever calls; a worker changes its loop only when the old one is closed or another one runs."""
        loop = _drivers.running_loop()
        driver = self._driver
        if driver is not None and driver.loop is loop and (loop is not None or not (driver.is_of_trio or _drivers.in_trio())):
            return driver
        if loop is not None:
            new: Any = _drivers.AsyncioDriver
            new = new(self, loop)
        elif _drivers.in_trio():
            from . import trio

            if isinstance(driver, trio.TrioDriver) and driver.is_current():
                return driver
            new = trio.TrioDriver(self)
        else:
            if driver is not None:
                self.fd()  # WrongThreadError: another thread's loop keeps it
            new = _drivers.PollDriver()
        if driver is not None:
            driver.stop()
        self._driver = new
        return new

    def _be_driven(self) -> None:
        """From now on by the loop that runs: peers may come before this worker waits for anything."""
        if _drivers.running_loop() is not None:
            self._drive()

    async def complete(self, request: _core.Request) -> Any:
        """Waits for a request, and gives its result. Cancelling the wait cancels the operation: when the cancellation
        goes on, the operation has ended and its memory is free."""
        driver = self._drive()
        request.future = future = driver.waiter()
        try:
            return await future
        except BaseException as error:
            if not request.done:
                await self._give_up(request, driver, error)
            raise
        finally:
            future = None  # what it raised keeps this frame, and those of the callers with their buffers

    async def _give_up(self, request: _core.Request, driver: Any, error: BaseException) -> None:
        """Cancels an operation whose wait was cancelled, and waits until it has ended and its memory is free."""
        if isinstance(error, GeneratorExit):  # nothing can be waited for any more
            request.cancel()
            return
        request.future = ended = driver.future()
        request.cancel()
        await driver.settle(ended)
        if ended.done() and hasattr(ended, "exception"):
            ended.exception()  # seen

    async def end(self, post: Callable[[], _core.Request | None], deadline: float | None) -> None:
        """Posts what ends something, and waits for it. The end goes on if the wait does not: after the deadline, in seconds
        (TimedOutError), or a cancellation. Another call then waits for the same end."""
        driver = None if self.closed else self._drive()
        polls, self.polls = self.polls, self.polls and deadline is None
        try:
            request = post()
        finally:
            self.polls = polls
        if request is None or driver is None:
            return
        if request.future is not None:
            raise errors.BusyError("another task waits for this end")
        request.future = future = driver.future()
        try:
            if not await driver.within(future, deadline):
                raise errors.TimedOutError("it has not ended by the deadline, and goes on")
            await future
        finally:
            request.future = future = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Drives the worker until the coroutine has ended: for programs without an event loop."""
        if not hasattr(coroutine, "send"):
            raise TypeError("run drives a coroutine, not %r" % (coroutine,))
        try:
            while True:
                end = coroutine.send(None)
                self.wait(-1 if end is None else milliseconds_left(end))
        except StopIteration as end:
            return end.value
        finally:
            coroutine.close()

    def _gone(self) -> None:
        if self._driver is not None:
            self._driver.stop()
            self._driver = None
        _open_workers.discard(self)

    # ---- connecting ----

    def _number(self) -> int:
        self._next_number = self._next_number % 0xFFFFFFFF + 1
        return self._next_number

    async def connect(self, to: str | bytes | tuple[str, int], *, deadline: float | None = None, failover: bool = False,
                      heartbeat: float | None = None) -> Endpoint:
        """Connects to a URI ("tcp://127.0.0.1:7000", "shm://name"), a pair (host, port), or a worker's address (bytes),
        and waits until the peer has answered.

        deadline: seconds. failover: the endpoint survives the loss of its connection. heartbeat: seconds (at least 0.25)
        after which a peer that is not driven counts as dead.
        Errors: AddressError, UnsupportedError, RefusedError, UnreachableError, TimedOutError, RejectedError.
        """
        ep = self.connect_now(to, deadline=deadline, failover=failover, heartbeat=heartbeat)
        try:
            await ep.ready()
        except BaseException:
            ep.abort()
            raise
        return ep

    def connect_now(self, to: str | bytes | tuple[str, int], *, deadline: float | None = None, failover: bool = False,
                    heartbeat: float | None = None) -> Endpoint:
        """As connect, without waiting: sends are queued until the peer answers; Endpoint.ready waits."""
        if isinstance(to, tuple) and len(to) == 2:
            to = uri_of(*to)
        elif not isinstance(to, (str, bytes)):
            to = address_bytes(to)
        ep = self.post_connect(to, milliseconds(deadline), 2 if failover else 0, milliseconds(heartbeat))
        ep._begin()
        self._be_driven()
        return ep

    def listen(self, handler: Callable[[Endpoint], Any] | None = None, *, host: str = "127.0.0.1", port: int = 0,
               uri: str | None = None, backlog: int = 0, accepts: Callable[[str], bool] | None = None,
               heartbeat: float | None = None) -> Listener:
        """Listens at host and port (0: any free one; `Listener.port` says which), or at a URI.

        handler: called with each new Endpoint; a coroutine function becomes a task of the running asyncio loop, or of
        `weft.trio.drive`. Without it use `Listener.accept`. accepts: decides by the peer's address. heartbeat: seconds, as of
        `connect`, after which a client that is not driven is lost. An endpoint without a reference is closed.
        Errors: ExistsError if the address is in use; InsecureError for an interface other than loopback without a key.
        """
        listener = Listener(self, callable_or_none(handler))
        listener._core = self.post_listen(uri or uri_of(host, port), listener._accepted, accepts, backlog,
                                          milliseconds(heartbeat))
        self._be_driven()
        return listener

    def on_connect(self, handler: Callable[[Endpoint], Any] | None) -> None:
        """Sets what is called with each endpoint that a peer opens by this worker's address. Without a handler they are
        kept until they are lost."""
        self._on_endpoint = callable_or_none(handler)

    def _accepted(self, ep: Endpoint) -> None:
        """What an interrupt ends half way is called again."""
        if ep._is_accepted:
            return
        ep._begin()
        ep._is_accepted = True
        if self._on_endpoint is not None:
            start(self._on_endpoint(ep), ep)
        else:
            self._by_address.add(ep)

    def address(self) -> bytes:
        """This worker's address: bytes for `connect` of another process, which needs no listener here."""
        self._be_driven()
        return super().address()

    # ---- messages of any endpoint ----

    async def recv(self, buffer: Any, tag: int, mask: int = ALL_TAGS, *, deadline: float | None = None) -> tuple[int, int]:
        """Receives the first message whose tag equals `tag` in the bits of `mask`, from any endpoint: (bytes, tag).

        For messages sent by Endpoint.send_tag. Errors: TruncatedError if the message is longer than the buffer.
        """
        request = self.tag_recv(buffer, tag, mask, milliseconds(deadline))
        return request if isinstance(request, tuple) else await self.complete(request)

    def register_am_allocator(self, allocate: Callable[[int], Any], kind: str = "host") -> None:
        """Sets what makes the memory of Endpoint.am_recv and recv_frames: allocate(bytes) -> a writable buffer.

        kind: "host", or "cuda" for what was sent from memory of a GPU; without the latter it arrives in host memory.
        """
        if kind not in ("host", "cuda"):
            raise errors.UnsupportedError("memory is of \"host\" or \"cuda\"")
        if not callable(allocate):
            raise TypeError("an allocator is called with a number of bytes, and %r cannot be called" % (allocate,))
        self._allocators[kind] = allocate

    async def flush(self, *, remote: bool = True, deadline: float | None = None) -> None:
        """Waits until all operations of all endpoints are performed at their targets (remote), or have left this side."""
        request = self.post_flush(milliseconds(deadline), _core.FLUSH_REMOTE if remote else 0)
        if request is not None:
            await self.complete(request)

    # ---- the end ----

    async def close(self, *, deadline: float | None = None) -> None:
        """Closes listeners and endpoints, then the worker. Operations in progress end as ClosedError.

        deadline: seconds; then TimedOutError. The close goes on, and a further call waits for it. Without one, the setting
        close.timeout bounds each of its steps.
        """
        if not self.closed:
            await self.end(self.post_close, deadline)

    def post_close(self) -> _core.Request | None:
        request = super().post_close()
        for sleeper in list(self._sleepers):
            sleeper._worker_closes()
        return request

    def destroy(self) -> None:
        """As close, for programs without an event loop."""
        if not self.closed:
            request = self.post_close()
            while request is not None and not request.done:
                self.wait()

    async def __aenter__(self) -> "Worker":
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.destroy()


def callable_or_none(handler: Any) -> Any:
    if handler is None or callable(handler):
        return handler
    raise TypeError("a handler is a function or None, not %r" % (handler,))


def uri_of(host: str, port: int) -> str:
    if not isinstance(host, str):
        raise TypeError("a host is a str, not %r" % (host,))
    if not hasattr(port, "__index__"):
        raise TypeError("a port is an int, not %r" % (port,))
    return "tcp://[%s]:%d" % (host, port) if ":" in host else "tcp://%s:%d" % (host, port)


def address_bytes(to: Any) -> bytes:
    try:
        return bytes(memoryview(to))
    except TypeError:
        raise TypeError("a peer is a URI, (host, port) or the bytes of a worker's address, not %r" % (to,)) from None


_tasks: set[Any] = set()


def start(made: Any, ep: Endpoint) -> None:
    """What a handler of an endpoint has returned: a coroutine becomes a task of the running loop, or of `weft.trio.drive`."""
    if not isinstance(made, types.CoroutineType):
        return
    loop = _drivers.running_loop()
    if loop is not None:
        task = loop.create_task(made)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
    elif not (_drivers.in_trio() and ep.worker._drive().start(ep, made)):
        made.close()
        if ep.alive:
            ep.abort()  # the peer need not wait for a handler that no loop runs
        raise RuntimeError("a handler that is a coroutine needs a loop of asyncio, or weft.trio.drive of its worker")
