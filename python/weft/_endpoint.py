"""Endpoint and Listener: messages of one peer, awaitable.

Messages between two Python programs carry the receiver's number of the endpoint in the upper half of their tag. Each side
sends its number to the other when the endpoint opens (HELLO). Peers in C use send_tag, Worker.recv and their own handlers.
"""
from __future__ import annotations

import struct
import time
from collections import deque

from . import _arrays, _core, errors
from ._drivers import Limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, AsyncIterator, Callable, Iterable

    from ._worker import Worker

# Handler ids that the binding keeps for itself.
HELLO, AM_QUEUED, FRAMES = 1023, 1022, 1021
_ALIGNMENT = 64
_PADDING = bytes(_ALIGNMENT)
# The first byte of a header of AM_QUEUED, before that of the program; no header: none of these.
_OF_GPU, _SAME_KIND = 1, 2
_MOST_HEADER = 255  # bytes that are left to a program
_OF_DEVICE = 1 << 63  # of a frame's length: memory of a GPU


def tag_number(tag: Any) -> int:
    """A tag as 32 bits: an int that fits is itself, also one of numpy; a str, bytes or another int is hashed, equally in every
    process."""
    if hasattr(tag, "__index__"):
        tag = tag.__index__()
        if 0 <= tag <= 0xFFFFFFFF:
            return tag
    import hashlib

    data = tag if isinstance(tag, bytes) else repr(tag).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=4).digest(), "little")


class Endpoint(_core.Endpoint):
    """One side of a connection between two workers. It comes from Worker.connect or from a Listener.

    Buffers are objects with the buffer protocol, arrays (contiguous or strided), or a list of contiguous ones. An operation
    borrows them until its await is over. `deadline` is in seconds; after it the operation ends as TimedOutError.
    """

    _error: BaseException | None = None
    _is_ready = False
    _is_accepted = False  # it was handed to the program
    _number = 0
    _peer_number = 0
    _closing: Any = None
    _transport: Any = None
    _on_close: Callable[["Endpoint", BaseException | None], Any] | None = None

    def __repr__(self) -> str:
        name = "weft." + type(self).__name__
        if self.closed:
            return "<%s %d: closed>" % (name, self._number)
        try:
            what = self.describe()
        except errors.WeftError as error:
            return "<%s %d: %s>" % (name, self._number, error.name or error)
        state = "lost" if self._error is not None else "ready" if self._is_ready or self._is_accepted else "connecting"
        return "<%s %d to %s by %s: %s>" % (name, self._number, what["peer"], what["transport"], state)

    @property
    def on_close(self) -> Callable[["Endpoint", BaseException | None], Any] | None:
        """Is called once, with the endpoint and what it was lost with (None: closed here)."""
        return self._on_close

    @on_close.setter
    def on_close(self, callback: Callable[["Endpoint", BaseException | None], Any] | None) -> None:
        from ._worker import callable_or_none

        self._on_close = callable_or_none(callback)
        if callback is not None:
            self.worker._sleepers.add(self)

    def _join(self) -> None:
        self._waiters: list[Any] = []
        self._receives: set[_core.Request] = set()
        self._queues: dict[int, deque[Any]] = {AM_QUEUED: deque(), FRAMES: deque()}

    def _begin(self) -> None:
        if not self._number:
            self._join()
            self._number = self.worker._number()
        self.am_send(None, HELLO, struct.pack("<I", self._number))

    # ---- events. What an interrupt ends half way is called again ----

    def _wake(self) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters = []

    def _ready(self) -> None:
        self._is_ready = True
        self._wake()

    def _lost(self, error: BaseException) -> None:
        self._error = error
        for request in list(self._receives):
            request.cancel()
        self._ended(error)

    def _ended(self, error: BaseException | None) -> None:
        self._wake()
        self.worker._by_address.discard(self)
        if self._transport is not None:
            self._transport._lost(error)
        if self._on_close is not None:
            from ._worker import start

            callback, self._on_close = self._on_close, None  # and is called: no interrupt comes between
            try:
                start(callback(self, error), self)
            except Exception as raised:
                _core.unraisable(raised, callback)

    def _worker_closes(self) -> None:
        self._ended(self._error)

    async def _until(self, holds: Callable[[], bool], limit: Limit | None = None) -> None:
        """Waits until a condition holds that an event makes true; raises what the endpoint was lost with."""
        while not holds():
            if self._error is not None:
                raise self._loss()
            if self.closed or self._closing is not None:
                raise errors.ClosedError("the endpoint is closed")
            self.worker._sleepers.add(self)
            await _wake_of(self.worker, self._waiters, limit)

    def _loss(self) -> BaseException:
        """What the endpoint was lost with, as an exception of its own for one who waits: what is raised keeps frames, and so
        the buffers of operations, as long as it lives."""
        error = self._error
        return error.__class__(*error.args) if error is not None else errors.ClosedError("the endpoint is closed")

    async def ready(self, *, deadline: float | None = None) -> None:
        """Waits until the peer has answered."""
        with Limit(self.worker, _milliseconds(deadline)) as limit:
            await self._until(lambda: self._is_ready or self._peer_number != 0, limit)

    async def _introduced(self, deadline: float | None) -> float | None:
        """Waits until the peer has sent its number. Returns what is left of the deadline."""
        began = time.monotonic()
        with Limit(self.worker, _milliseconds(deadline)) as limit:
            await self._until(lambda: self._peer_number != 0, limit)
        return None if deadline is None else max(0, deadline - (time.monotonic() - began))

    @property
    def alive(self) -> bool:
        """Whether the endpoint is neither closed nor lost."""
        return not self.closed and self._error is None and self._closing is None

    @property
    def error(self) -> BaseException | None:
        """What the endpoint was lost with."""
        return self._error

    @property
    def uid(self) -> int:
        """This side's number of the endpoint, unique in its worker."""
        return self._number

    # ---- tagged messages ----

    async def send(self, buffer: Any, tag: Any = 0, *, deadline: float | None = None) -> None:
        """Sends a message for the peer's `recv` with the same tag, in order. Afterwards the buffer is free again."""
        if not self._peer_number:
            if not self._number:
                raise errors.UnsupportedError("an endpoint of a team: use send_tag")
            deadline = await self._introduced(deadline)
        request = self.tag_send(buffer, self._peer_number << 32 | (tag if tag.__class__ is int and 0 <= tag < 0x100000000
                                                                   else tag_number(tag)),
                                0 if deadline is None else _milliseconds(deadline))
        if request is not None:
            await self.worker.complete(request)

    async def recv(self, buffer: Any, tag: Any = 0, *, deadline: float | None = None) -> int:
        """Receives the peer's next message with this tag, and returns its length in bytes.

        Errors: TruncatedError if it is longer than the buffer; what the endpoint was lost with, once all that the peer
        had sent is received.
        """
        if not self._number:
            raise errors.ClosedError("the endpoint is not open")
        request = self.worker.tag_recv(buffer, self._number << 32 | tag_number(tag), 0xFFFFFFFFFFFFFFFF,
                                       0 if deadline is None else _milliseconds(deadline))
        if request.__class__ is tuple:
            return request[0]
        if self._error is not None or self._closing is not None:
            request.cancel()
        self._receives.add(request)
        # As Worker.complete, without a coroutine more: this is the path of every message that is waited for.
        driver = self.worker._drive()
        request.future = future = driver.waiter()
        try:
            return (await future)[0]
        except errors.CancelledError:
            if not self.alive:
                raise self._loss() from None
            raise
        except BaseException as error:
            if not request.done:
                await self.worker._give_up(request, driver, error)
            raise
        finally:
            self._receives.discard(request)
            future = None

    def tag_probe(self, tag: Any = 0, *, remove: bool = False) -> Any:
        """Looks for a message that no recv waits for: its length and tag (_core), or with `remove` a TakenMessage for
        recv_taken. None if there is none."""
        number = self._number << 32 | tag_number(tag)
        return (self.worker.tag_take if remove else self.worker.tag_probe)(number, 0xFFFFFFFFFFFFFFFF)

    async def recv_taken(self, message: _core.TakenMessage, buffer: Any = None, *, deadline: float | None = None) -> Any:
        """Receives a message that tag_probe removed: into `buffer`, or into a new Block. Returns the buffer."""
        if buffer is None:
            buffer = _core.Block(message.len)
        request = message.post_recv(buffer, _milliseconds(deadline))
        if isinstance(request, _core.Request):
            await self.worker.complete(request)
        return buffer

    async def send_tag(self, buffer: Any, tag: int, *, deadline: float | None = None) -> None:
        """Sends under exactly this tag of 64 bits, for Worker.recv or a peer in C. Tags below 2**32 are free."""
        request = self.tag_send(buffer, tag, _milliseconds(deadline))
        if request is not None:
            await self.worker.complete(request)

    # ---- active messages ----

    async def am(self, id: int, buffer: Any = None, header: bytes = b"", *, deadline: float | None = None) -> None:
        """Sends an active message to the peer's handler `id` (Worker.am_handler), 0 … 1020."""
        request = self.am_send(buffer, id, header, _milliseconds(deadline))
        if request is not None:
            await self.worker.complete(request)

    async def am_post(self, buffer: Any, header: bytes = b"", *, same_kind: bool = False, deadline: float | None = None) -> None:
        """Sends a message for the peer's am_recv, with a header of at most 255 bytes. The receiver allocates, memory of the
        same kind if it can. same_kind: the peer's am_recv raises UnsupportedError if it cannot, and this message is lost.

        A list of buffers is memory of a GPU if all of them are. Errors: TooBigError of a longer header.
        """
        if len(header) > _MOST_HEADER:
            raise errors.TooBigError("a header of %d bytes: it has at most %d" % (len(header), _MOST_HEADER))
        buffer, of_gpu = _device_blocks(buffer)
        flags = (_OF_GPU if of_gpu else 0) | (_SAME_KIND if same_kind else 0)
        await self.am(AM_QUEUED, buffer, bytes((flags,)) + header if flags or header else b"", deadline=deadline)

    async def am_recv(self, *, deadline: float | None = None) -> Any:
        """The peer's next message of am_post, in memory that the worker's allocator made (a Block of the host by
        default). After a deadline or a cancellation it is there for the next call."""
        with Limit(self.worker, _milliseconds(deadline)) as limit:
            return (await self._next(AM_QUEUED, limit))[1]

    async def am_recv_with_header(self, *, deadline: float | None = None) -> tuple[Any, bytes]:
        """As am_recv, with the header of am_post: (memory, header)."""
        with Limit(self.worker, _milliseconds(deadline)) as limit:
            header, memory = await self._next(AM_QUEUED, limit)
        return memory, header

    def am_probe(self) -> bool:
        """Whether a message waits for am_recv; it may not be complete yet."""
        return bool(self._queues[AM_QUEUED])

    async def _next(self, id: int, limit: Limit) -> tuple[Any, Any]:
        """What the handler of a message has put into the queue, (of its header, memory): with a request that receives the
        memory once it has, and with an exception raised."""
        queue = self._queues[id]
        if not queue:
            await self._until(lambda: bool(queue), limit)
        item = queue.popleft()
        header, memory = item
        if isinstance(memory, BaseException):
            raise memory
        if not isinstance(memory, _core.Request):
            return item
        try:
            return header, memory.result() if memory.done else await self._received(memory, limit)
        except BaseException:
            if not memory.done or memory.status >= 0:  # the wait ended, and not the message
                queue.appendleft(item)
                self._wake()  # another task may wait for it
            raise

    async def _received(self, request: _core.Request, limit: Limit) -> Any:
        """As Worker.complete; the request, whose memory is the binding's, goes on without its wait."""
        request.future = future = self.worker._drive().future()
        limit.ends(future)
        try:
            return await future
        finally:
            request.future = future = None

    # ---- several buffers as one message ----

    async def send_frames(self, frames: Iterable[Any], *, deadline: float | None = None) -> int:
        """Sends any number of buffers as one message for recv_frames. Returns the bytes sent, without copying them.

        Frames may be of a GPU; the receiver gets them in such memory if it has an allocator for it.
        """
        pieces: list[Any] = []
        of_device: list[Any] = []
        lengths: list[int] = []
        total = 0
        for frame in frames:
            block = _arrays.device_block(frame)
            view: Any = _arrays.host_view(frame, False) if block is None else block
            if not view.c_contiguous:
                view = memoryview(_core.pack(frame))
            total += view.nbytes
            lengths.append(view.nbytes if block is None else view.nbytes | _OF_DEVICE)
            (pieces if block is None else of_device).extend((view, _PADDING[: -view.nbytes % _ALIGNMENT]))
        table = struct.pack("<%dQ" % len(lengths), *lengths)
        body = [table, _PADDING[: -len(table) % _ALIGNMENT], *pieces, *of_device]
        header = struct.pack("<Q", len(lengths))
        if of_device:
            header += struct.pack("<Q", sum(piece.nbytes if hasattr(piece, "nbytes") else len(piece) for piece in of_device))
        request = self.am_send(body, FRAMES, header, _milliseconds(deadline))
        if request is not None:
            await self.worker.complete(request)
        return total

    async def recv_frames(self, *, deadline: float | None = None) -> list[Any]:
        """The buffers of the peer's next send_frames: parts of one block of memory, each aligned to 64 bytes. What was sent
        from a GPU is a Block of its memory, part of one allocation, if the worker has an allocator for "cuda"."""
        with Limit(self.worker, _milliseconds(deadline)) as limit:
            count, memory = await self._next(FRAMES, limit)
        host, device = memory if isinstance(memory, list) else (memory, None)
        if 8 * count > len(host):
            raise errors.ProtocolError("frames are longer than their message")
        parts = _Parts(memoryview(host))
        lengths = struct.unpack("<%dQ" % count, parts.take(8 * count))
        of_device = None if device is None else _DeviceParts(device)
        frames = []
        late = []
        for length in lengths:
            if not length & _OF_DEVICE:
                frames.append(parts.take(length))
            elif of_device is not None:
                frames.append(of_device.take(length ^ _OF_DEVICE))
            else:  # their bytes follow those of all others
                late.append((len(frames), length ^ _OF_DEVICE))
                frames.append(b"")
        for place, length in late:
            frames[place] = parts.take(length)
        return frames

    async def send_obj(self, value: Any, *, deadline: float | None = None) -> None:
        """Sends any object that pickle can; large buffers in it are not copied."""
        import pickle

        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        await self.send_frames([data, *(buffer.raw() for buffer in buffers)], deadline=deadline)

    async def recv_obj(self, *, deadline: float | None = None) -> Any:
        """The object of the peer's next send_obj. Only from peers that you trust: pickle runs code."""
        import pickle

        frames = await self.recv_frames(deadline=deadline)
        return pickle.loads(frames[0], buffers=frames[1:])

    # ---- streams ----

    async def stream_send(self, buffer: Any, *, deadline: float | None = None) -> None:
        """Appends bytes to the endpoint's stream. A WeftError says in `sent` how many of them were appended."""
        request = self.post_stream_send(buffer, _milliseconds(deadline))
        if request is not None:
            await self.worker.complete(request)

    async def stream_recv(self, buffer: Any, *, all: bool = False, deadline: float | None = None) -> int:
        """Receives the next bytes, at least one, or with `all` as many as the buffer holds. Returns their number.

        Errors: PeerClosedError at the end of the stream.
        """
        request = self.post_stream_recv(buffer, all, _milliseconds(deadline))
        if isinstance(request, _core.Request):
            return await self.worker.complete(request)
        return request

    def _stream_data(self) -> None:
        if self._transport is not None:
            self._transport._read()

    # ---- flush, and the end ----

    async def flush(self, *, remote: bool = True, deadline: float | None = None) -> None:
        """Waits until all earlier operations are performed at the peer (remote), or have left this side's buffers."""
        request = self.post_flush(_milliseconds(deadline), _core.FLUSH_REMOTE if remote else 0)
        if request is not None:
            await self.worker.complete(request)

    def _close(self, abort: bool, deadline: float | None) -> Any:
        if self.closed or self._closing is not None:
            return None
        request = self.post_close(abort, _milliseconds(deadline))
        self._closing = request
        for receive in list(self._receives):
            receive.cancel()
        self._ended(self._error)
        return request

    async def close(self, *, deadline: float | None = None) -> None:
        """Sends what was accepted, then closes. The peer's operations end as PeerClosedError. It may be called in every
        state and several times. Errors: TimedOutError if the deadline passed; it is closed all the same."""
        request = self._close(False, deadline)
        if request is None:
            return
        try:
            await self.worker.complete(request)
        except errors.TimedOutError:
            raise
        except errors.WeftError:
            pass
        finally:
            if self._transport is not None:
                self._transport._gone(None)

    def abort(self) -> None:
        """Closes at once and discards what was not sent, also of a close that has begun. Needs no loop."""
        if self._closing is None:
            self._close(True, None)
        elif not self.closed:
            try:
                self.post_close(True)
            except errors.BusyError:  # that close is an abort by now, or the worker closes
                pass
        if self._transport is not None:
            self._transport._gone(None)

    async def __aenter__(self) -> "Endpoint":
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()


def _device_blocks(buffer: Any) -> tuple[Any, bool]:
    """A buffer or a list of them, with Blocks for memory of a GPU, and whether all of it is."""
    if not isinstance(buffer, (list, tuple)):
        block = None if buffer is None else _arrays.device_block(buffer)
        return (buffer, False) if block is None else (block, True)
    blocks = [_arrays.device_block(part) for part in buffer]
    return ([part if block is None else block for part, block in zip(buffer, blocks)],
            bool(blocks) and None not in blocks)


def _milliseconds(seconds: float | None) -> int:
    from ._worker import milliseconds

    return milliseconds(seconds)


async def _wake_of(worker: Worker, waiters: list[Any], limit: Limit | None) -> None:
    """Waits until the waiters are woken; nothing of a wait that ends before is left among them."""
    future = worker._drive().future()
    waiters.append(future)
    if limit is not None:
        limit.ends(future)
    try:
        await future
    except BaseException:
        if future in waiters:
            waiters.remove(future)
        raise
    finally:
        future = None


# ---- handlers of the binding's own messages: they run within progress, and again after an interrupt ----


def on_hello(ep: Any, message: _core.Message) -> None:
    if ep is not None and len(message.header) == 4:
        ep._peer_number = struct.unpack("<I", message.header)[0]
        ep._wake()


def on_queued(ep: Any, message: _core.Message) -> None:
    if ep is None:
        return
    flags = message.header[0] if message.header else 0
    allocators = ep.worker._allocators
    allocate = allocators.get("cuda") if flags & _OF_GPU else None
    if flags & _OF_GPU and flags & _SAME_KIND and allocate is None:
        allocate = _no_allocator
    _receive(ep, AM_QUEUED, message.header[1:], message, lambda: (allocate or allocators.get("host", _core.Block))(message.len))


def _no_allocator(size: int) -> Any:
    raise errors.UnsupportedError("a message from memory of a GPU, for such memory alone: there is no allocator for \"cuda\"")


def _receive(ep: Any, id: int, header: Any, message: _core.Message, allocate: Callable[[], Any]) -> None:
    """Queues what _next takes: what the allocator raises, too, and then the message is not received."""
    if not message.queued:
        try:
            memory = allocate()
        except Exception as error:
            memory = error
        message.queue(ep._queues[id], header, memory)
    ep._wake()


def on_frames(ep: Any, message: _core.Message) -> None:
    """The header: the number of frames, and if any is of a GPU, the bytes of all that are, which come last."""
    if ep is None or len(message.header) not in (8, 16):
        return
    count = struct.unpack_from("<Q", message.header)[0]
    allocate = ep.worker._allocators.get("cuda") if len(message.header) == 16 else None
    if allocate is not None:
        of_device = struct.unpack_from("<Q", message.header, 8)[0]
        if of_device > message.len:
            return
        _receive(ep, FRAMES, count, message, lambda: [_core.Block(message.len - of_device), allocate(of_device)])
    else:
        _receive(ep, FRAMES, count, message, lambda: _core.Block(message.len))


class _Parts:
    """Parts of a block of host memory, in order, each aligned."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def take(self, length: int) -> Any:
        at = self._at
        self._at = at + length + -length % _ALIGNMENT
        if at + length > self._view.nbytes:
            raise errors.ProtocolError("frames are longer than their message")
        return self._view[at:at + length]


class _DeviceParts:
    """The same, of an allocation of a GPU's memory."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self._block: Any = _arrays.device_block(memory)
        self._at = 0
        if self._block is None:
            raise errors.InvalidParamError("the allocator for \"cuda\" made other memory")

    def take(self, length: int) -> Any:
        at = self._at
        self._at = at + length + -length % _ALIGNMENT
        if at + length > self._block.nbytes:
            raise errors.ProtocolError("frames are longer than their message")
        return _core.block_around(self._block.address + at, (length,), None, "B", 1, False, self._memory,
                                  *self._block.__dlpack_device__())


class Listener:
    """Accepts endpoints until it is closed. `uri`, `host` and `port` say where."""

    def __init__(self, worker: "Worker", handler: Callable[[Endpoint], Any] | None) -> None:
        self._worker = worker
        self._handler = handler
        self._waiting: deque[Endpoint] = deque()
        self._waiters: list[Any] = []
        self._core: Any = None

    def __repr__(self) -> str:
        return "<weft.Listener: closed>" if self.closed else "<weft.Listener at %s>" % self.uri

    def _accepted(self, ep: Endpoint) -> None:
        """What an interrupt ends half way is called again."""
        from ._worker import start

        if not ep._is_accepted:
            ep._begin()
            ep._is_accepted = True
            if self._handler is not None:
                start(self._handler(ep), ep)
                return
            self._waiting.append(ep)
        self._wake()

    def _wake(self) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters = []

    async def accept(self, *, deadline: float | None = None) -> Endpoint:
        """The next endpoint. Errors: ClosedError when the listener is closed."""
        with Limit(self._worker, _milliseconds(deadline)) as limit:
            while not self._waiting:
                if self.closed:
                    raise errors.ClosedError("the listener is closed")
                self._worker._sleepers.add(self)
                await _wake_of(self._worker, self._waiters, limit)
        return self._waiting.popleft()

    async def __aiter__(self) -> AsyncIterator[Endpoint]:
        while True:
            try:
                yield await self.accept()
            except errors.ClosedError:
                return

    @property
    def uri(self) -> str:
        return self._core.uri

    @property
    def host(self) -> str:
        return self.uri.split("//", 1)[1].rsplit(":", 1)[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.uri.rsplit(":", 1)[1])

    @property
    def closed(self) -> bool:
        return self._core is None or self._core.closed

    def _worker_closes(self) -> None:
        self._wake()

    def close(self) -> None:
        """Stops listening. Accepted endpoints stay."""
        self._core.close()
        self._wake()
