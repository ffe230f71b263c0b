"""An endpoint's stream as asyncio's StreamReader and StreamWriter: `reader, writer = await open_stream(ep)`.

The transport reads while the reader has room, and stops the peer by the stream's window when it has none.
"""
from __future__ import annotations

import asyncio
import functools

from . import errors
from ._endpoint import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HIGH, _LOW = 256 << 10, 64 << 10


class EndpointTransport(asyncio.Transport):
    """An asyncio transport over the stream of an endpoint, which closes with it."""

    def __init__(self, ep: Endpoint, protocol: Any, loop: asyncio.AbstractEventLoop) -> None:
        if not ep.uid:
            raise errors.UnsupportedError("an endpoint of a team, which ends with the team: use stream_send")
        super().__init__({"peername": ep.describe()["peer"], "endpoint": ep})
        self._ep, self._protocol, self._loop = ep, protocol, loop
        self._is_reading, self._is_closing, self._is_over = True, False, False
        self._is_gone = False  # connection_lost was called
        self._unsent, self._limits = 0, (_LOW, _HIGH)
        self._writes_paused = False
        ep._transport = self
        ep.worker._sleepers.add(ep)
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._begin)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def _begin(self) -> None:
        if not self._is_over and not self._ep.closed:
            self._ep.stream_watch(True)
            self._read()

    # ---- reading ----

    def _read(self) -> None:
        while self._is_reading and not self._is_over and not self._ep.closed:
            try:
                data = self._ep.stream_take()
            except errors.WeftError as error:
                self._finish(error)
                return
            if data is None:
                if self._ep.error is not None:
                    self._finish(self._ep.error)
                return
            try:
                self._protocol.data_received(data)
            except Exception as error:  # as asyncio's transports do
                self._loop.call_exception_handler({"message": "Fatal error: protocol.data_received() call failed.",
                                                   "exception": error, "transport": self, "protocol": self._protocol})
                self._finish(error)
                return

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return self._is_reading

    # ---- writing ----

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_over:
            return
        data = data if isinstance(data, bytes) else bytes(data)
        try:
            request = self._ep.post_stream_send(data)
        except errors.WeftError as error:
            self._finish(error)
            return
        if request is not None:
            self._unsent += len(data)
            request.future = done = self._loop.create_future()
            done.add_done_callback(functools.partial(self._sent, len(data)))
            self._pause_or_resume()

    def _sent(self, size: int, future: Any) -> None:
        self._unsent -= size
        error = future.exception()
        if error is not None:
            self._finish(error)
        else:
            self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        low, high = self._limits
        if self._unsent > high and not self._writes_paused:
            self._writes_paused = True
            self._protocol.pause_writing()
        elif self._unsent <= low and self._writes_paused:
            self._writes_paused = False
            self._protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """(low, high), in bytes."""
        return self._limits

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The protocol's writing is paused above `high` bytes (default: four times `low`, else 256 KiB), and resumed at `low`
        (default: a quarter of `high`)."""
        if high is None:
            high = _HIGH if low is None else 4 * low
        if low is None:
            low = high // 4
        if not 0 <= low <= high:
            raise ValueError("0 <= low <= high: low is %r, high %r" % (low, high))
        self._limits = low, high
        if not self._is_over:
            self._pause_or_resume()

    # ---- the end ----

    def _lost(self, error: BaseException | None) -> None:
        """What came before the end of the peer is read first, and waits for a reader that has no room."""
        self._read()
        if error is None or self._ep.closed:
            self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        try:
            if isinstance(error, errors.PeerClosedError):
                self._protocol.eof_received()
            if self._writes_paused:
                self._writes_paused = False
                self._protocol.resume_writing()
        except Exception as raised:  # as asyncio's transports do
            self._loop.call_exception_handler({"message": "Fatal error: a call of the protocol failed.",
                                               "exception": raised, "transport": self, "protocol": self._protocol})
        finally:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        request = self._ep._close(False, None)
        if error is not None or self._ep.closed:
            self._gone(None if isinstance(error, (errors.PeerClosedError, errors.ClosedError)) else error)
        elif request is not None:
            request.future = ended = self._loop.create_future()
            ended.add_done_callback(self._closed)

    def _closed(self, future: Any) -> None:
        error = future.exception()
        self._gone(None if isinstance(error, (errors.PeerClosedError, errors.ClosedError)) else error)

    def _gone(self, error: BaseException | None) -> None:
        """What was written has left, or never will. Whoever closes the endpoint calls it, too."""
        if self._is_gone or self._loop.is_closed():
            return
        self._is_gone = True
        self._loop.call_soon(self._protocol.connection_lost, error)

    def is_closing(self) -> bool:
        return self._is_closing or self._is_over

    def close(self) -> None:
        self._is_closing = True
        self._finish(None)

    def abort(self) -> None:
        self._is_closing = True
        self._ep.abort()
        self._finish(None)


async def open_stream(ep: Endpoint, limit: int = 1 << 16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The endpoint's stream as a pair of asyncio's. Closing the writer closes the endpoint, after what was written, and so
    does CPython from 3.11.5 on when nothing refers to the writer any more. BusyError: the stream has such a pair already. UnsupportedError: the
    endpoint is a team's."""
    if ep._transport is not None:
        raise errors.BusyError("the stream of this endpoint has a reader and a writer already")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = EndpointTransport(ep, protocol, loop)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
