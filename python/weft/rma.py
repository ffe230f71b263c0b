"""One-sided access to a peer's memory: Remote, and RemoteIO as a file over it.

The owner makes a region, `worker.alloc(4096)` or `worker.register(array)`, and sends `region.key()` (bytes) to others. The
region is memory as any other: memoryview(region), numpy.frombuffer(region).
"""
from __future__ import annotations

import errno
import io

from . import _core, errors
from ._endpoint import Endpoint, _milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

READ, WRITE, ATOMIC, ALL = 1, 2, 4, 7
_WHAT = {"add": 0, "and": 1, "or": 2, "xor": 3, "swap": 4, "cswap": 5}
_ALL_BITS = 0xFFFFFFFFFFFFFFFF


class Remote:
    """A peer's region, by its key, over one endpoint. Offsets are bytes from the region's begin."""

    def __init__(self, ep: Endpoint, key: bytes) -> None:
        """Errors: AddressError if the bytes are not a key, or not of this endpoint's peer; TypeError if `ep` is no endpoint."""
        if not isinstance(ep, Endpoint):
            raise TypeError("Remote takes an endpoint and a key of its peer, not %r" % (ep,))
        self.ep = ep
        self._key = ep.unpack_key(bytes(memoryview(key)))

    def __len__(self) -> int:
        return self._key.len

    def __repr__(self) -> str:
        return "<weft.rma.Remote: %d bytes over %r>" % (len(self), self.ep)

    def describe(self) -> dict[str, Any]:
        return self._key.describe()

    async def put(self, buffer: Any, offset: int = 0, *, remote: bool = False, deadline: float | None = None) -> None:
        """Writes the buffer to the region. Afterwards the buffer is free; with `remote` the target has it, too.

        Errors: InvalidParamError out of range or without the right; RevokedError; UnreachableError.
        """
        request = self.ep.post_put(buffer, self._key.base + offset, self._key, _milliseconds(deadline),
                                   _core.RMA_REMOTE if remote else 0)
        if request is not None:
            await self.ep.worker.complete(request)

    async def get(self, buffer: Any, offset: int = 0, *, deadline: float | None = None) -> None:
        """Reads the region into the buffer, all of it. Errors as of put."""
        request = self.ep.post_get(buffer, self._key.base + offset, self._key, _milliseconds(deadline))
        if request is not None:
            await self.ep.worker.complete(request)

    async def atomic(self, what: str, operand: int, offset: int = 0, *, compare: int | None = None, size: int = 8,
                     fetch: bool = True, deadline: float | None = None) -> int | None:
        """An atomic operation on the word of 4 or 8 bytes at `offset`: "add", "and", "or", "xor", "swap", or "cswap", which
        stores the operand if the word equals `compare`, which no other takes. Gives the word before it; without `fetch` None."""
        if what not in _WHAT:
            raise errors.InvalidParamError("atomic %r: not one of %s" % (what, ", ".join(_WHAT)))
        if (what == "cswap") != (compare is not None):
            raise errors.InvalidParamError("atomic %r %s `compare`" % (what, "needs" if compare is None else "takes no"))
        expected = 0 if compare is None else compare.__index__() & _ALL_BITS
        result = self.ep.post_atomic(_WHAT[what], size, operand.__index__() & _ALL_BITS, expected, fetch,
                                     self._key.base + offset, self._key, _milliseconds(deadline))
        if isinstance(result, _core.Request):
            return await self.ep.worker.complete(result)
        return result

    async def flush(self, *, deadline: float | None = None) -> None:
        """Waits until the target has performed all earlier operations."""
        await self.ep.flush(deadline=deadline)


class RemoteIO(io.RawIOBase):
    """A peer's region as a file of fixed size: read, readinto, write, seek, tell, flush. Each call drives the worker until
    it is complete, so it is for programs, and parts of programs, without an event loop. `io.BufferedRandom` and the like go
    around it. A close leaves the endpoint open."""

    def __init__(self, ep: Endpoint, key: bytes) -> None:
        self._remote = Remote(ep, key)
        self._at = 0

    def _finish(self, request: Any) -> None:
        while isinstance(request, _core.Request) and not request.done:
            self._remote.ep.worker.wait()
        if isinstance(request, _core.Request):
            request.result()

    def _open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")

    def _part(self, buffer: Any) -> memoryview:
        """What of the buffer lies before the region's end, from here on."""
        self._open()
        view = memoryview(buffer)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        return view[:max(0, len(self._remote) - self._at)]

    def readinto(self, buffer: Any) -> int:
        part = self._part(buffer)
        key = self._remote._key
        if len(part):
            self._finish(self._remote.ep.post_get(part, key.base + self._at, key))
        self._at += len(part)
        return len(part)

    def write(self, buffer: Any) -> int:
        """Writes what has room before the region's end, and returns how much. Errors: OSError (ENOSPC) where there is none."""
        part = self._part(buffer)
        key = self._remote._key
        if len(part):
            self._finish(self._remote.ep.post_put(part, key.base + self._at, key))
        elif memoryview(buffer).nbytes:  # a writer with a buffer would try again and again
            raise OSError(errno.ENOSPC, "the region ends here")
        self._at += len(part)
        return len(part)

    def flush(self) -> None:
        super().flush()
        if self._remote.ep.alive:
            self._finish(self._remote.ep.post_flush(0, _core.FLUSH_REMOTE))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._open()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._remote)}.get(whence)
        if base is None:
            raise ValueError("whence is 0, 1 or 2: %r" % whence)
        if base + offset < 0:
            raise ValueError("a position before the region")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        self._open()
        return self._at

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


async def release(region: _core.Memory, *, deadline: float | None = None) -> None:
    """Ends a region: afterwards no peer can reach its memory. BufferError while views of it are in use.

    deadline: seconds; then TimedOutError. The release goes on, keeps the memory, and a further call waits for it. So it does
    when the task is cancelled.
    """
    await region.worker.end(region.post_release, deadline)


async def revoke(region: _core.Memory, *, deadline: float | None = None) -> None:
    """Makes all keys of the region useless: afterwards no peer can reach it by them. `region.key()` then gives a new one.

    deadline: seconds; then TimedOutError. The revocation goes on (until then `key` is BusyError), and a further call joins it.
    """
    request = region.post_revoke(_milliseconds(deadline))
    if request is not None:
        await request.worker.complete(request)
