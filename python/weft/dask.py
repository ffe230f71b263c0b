"""weft:// for Dask's `distributed`: found by its entry point, so `Client("weft://host:port")` needs no import.

A message is one call of the binding: all frames in one message, received in one block without a copy. Processes of one host
and user go over shared memory by themselves. One worker of Weft serves all comms of an event loop, and is closed soon after
the last of them. `abort` needs no loop.

Security is that of Dask's tcp://: whoever reaches the port may use it. With a cluster key (the setting tcp.key_file, as
WEFT_TCP_KEY_FILE) only its holders may.
"""
from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from typing import Any

import dask
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend
from distributed.comm.utils import ensure_concrete_host, from_frames, to_frames
from distributed.utils import ensure_ip, ensure_memoryview, get_ip, get_ipv6

from . import errors
from ._endpoint import Endpoint
from ._worker import Worker

PREFIX = "weft://"
LINGER = 0.5  # seconds that a worker outlives its last comm, for the next one


def _device_memory(size: int) -> Any:
    """Memory for frames that were sent from a GPU: by RMM, else by numba. Without either, the message is refused."""
    try:
        import rmm
    except ImportError:
        import numba.cuda

        return numba.cuda.device_array((size,), "u1")
    return rmm.DeviceBuffer(size=size)


class _Shared:
    """The worker of one event loop."""

    def __init__(self) -> None:
        self.users = 0
        self.ending = False
        settings = {"tcp.bind": "127.0.0.1", "log.level": "error"}
        if not os.environ.get("WEFT_TCP_KEY_FILE"):
            settings["tcp.insecure"] = "yes"
        # Tasks compute on threads of their own while messages are copied.
        self.worker = Worker(settings=settings, name="dask", unlock=True)
        self.worker.register_am_allocator(_device_memory, "cuda")

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        self.users -= 1
        if self.users == 0 and not loop.is_closed() and loop is asyncio._get_running_loop():
            loop.call_later(LINGER, self._end)

    def _end(self) -> None:
        if self.users == 0 and not self.ending:
            self.ending = True
            self.worker.post_close()


_by_loop: weakref.WeakKeyDictionary[Any, weakref.ref[_Shared]] = weakref.WeakKeyDictionary()


def _join(loop: asyncio.AbstractEventLoop) -> _Shared:
    """The loop's worker, for one more user, who keeps it alive and calls `leave`."""
    ref = _by_loop.get(loop)
    shared = ref() if ref is not None else None
    if shared is None or shared.ending:
        shared = _Shared()
        _by_loop[loop] = weakref.ref(shared)
    shared.users += 1
    return shared


class Weft(Comm):
    """An established communication over one endpoint."""

    def __init__(self, ep: Endpoint, shared: _Shared, local_addr: str, peer_addr: str, deserialize: bool = True) -> None:
        self._ep: Endpoint | None = ep
        self._closing: Endpoint | None = None
        self._shared: _Shared | None = shared
        self._loop = asyncio.get_running_loop()
        self._local_addr, self._peer_addr = local_addr, peer_addr
        super().__init__(deserialize=deserialize)

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    async def read(self, deserializers: Any = None) -> Any:
        ep = self._ep
        if ep is None:
            raise CommClosedError("the comm is closed")
        try:
            frames = await ep.recv_frames()
        except errors.WeftError as error:
            self.abort()
            raise CommClosedError("in %r: %s" % (self, error)) from error
        except BaseException:
            self.abort()
            raise
        try:
            return await from_frames(frames, deserialize=self.deserialize, deserializers=deserializers,
                                     allow_offload=self.allow_offload)
        except EOFError:
            self.abort()
            raise CommClosedError("aborted on truncated data") from None

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        if self.closed():
            raise CommClosedError("the comm is closed")
        frames = await to_frames(msg, allow_offload=self.allow_offload, serializers=serializers, on_error=on_error,
                                 context={"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options})
        ep = self._ep
        if ep is None:
            raise CommClosedError("the comm is closed")
        try:
            return await ep.send_frames([frame if hasattr(frame, "__cuda_array_interface__") else ensure_memoryview(frame)
                                         for frame in frames])
        except errors.WeftError as error:
            self.abort()
            raise CommClosedError("in %r: %s" % (self, error)) from error
        except BaseException:
            self.abort()
            raise

    def _leave(self) -> Endpoint | None:
        ep, self._ep = self._ep, None
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.leave(self._loop)
        return ep

    async def close(self) -> None:
        ep = self._ep
        if ep is not None:
            self._ep, self._closing = None, ep
            try:
                await ep.close()
            except errors.WeftError:
                pass
            finally:
                self._closing = None
                self._leave()

    def abort(self) -> None:
        ep = self._leave() or self._closing
        if ep is not None and not ep.closed:
            ep.abort()

    def closed(self) -> bool:
        return self._ep is None or not self._ep.alive

    @property
    def extra_info(self) -> dict[str, Any]:
        return {}


def _seen_as(frames: list[Any]) -> str:
    """How the listener sees this side: its first message. A listener that is none of this scheme sends another."""
    try:
        (frame,) = frames
        return str(frame, "ascii")
    except (TypeError, ValueError) as error:
        raise CommClosedError("the listener is not one of weft:// in Dask") from error


class WeftConnector(Connector):
    async def connect(self, address: str, deserialize: bool = True, **connection_args: Any) -> Weft:
        _refuse_tls(connection_args)
        host, port = parse_host_port(address)
        if port is None:
            raise ValueError("weft://%s has no port" % address)
        host = ensure_ip(host)
        shared = _join(asyncio.get_running_loop())
        try:
            ep = await shared.worker.connect((host, port))
            try:
                seen_as = _seen_as(await ep.recv_frames())
            except BaseException:
                ep.abort()  # what is raised may keep it
                raise
        except errors.AddressError as error:
            shared.leave(asyncio.get_running_loop())
            raise ValueError(str(error)) from error
        except errors.WeftError as error:
            shared.leave(asyncio.get_running_loop())
            raise CommClosedError("while connecting to weft://%s: %s" % (address, error)) from error
        except BaseException:
            shared.leave(asyncio.get_running_loop())
            raise
        return Weft(ep, shared, PREFIX + seen_as, PREFIX + unparse_host_port(host, port), deserialize)


class WeftListener(BaseListener):
    prefix = PREFIX

    def __init__(self, address: str, comm_handler: Callable[[Weft], Any], deserialize: bool = True,
                 allow_offload: bool = True, default_host: str | None = None, default_port: int = 0,
                 **connection_args: Any) -> None:
        super().__init__()
        _refuse_tls(connection_args)
        self._host, self._port = parse_host_port(address, default_port)
        self._default_host = default_host
        self._handler = comm_handler
        self._deserialize, self._allow_offload = deserialize, allow_offload
        self._shared: _Shared | None = None
        self._listener: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._host:
            self._host = ensure_ip(self._host)  # addresses have no names
        host = "*" if self._host in ("", "0.0.0.0", "::") else self._host
        shared = _join(self._loop)
        try:
            self._listener = shared.worker.listen(self._accepted, host=host, port=self._port or 0)
        except errors.ExistsError as error:
            shared.leave(self._loop)
            raise OSError(98, str(error)) from error
        except BaseException:
            shared.leave(self._loop)
            raise
        self._shared = shared
        self._port = self._listener.port

    def _accepted(self, ep: Endpoint) -> None:
        task = self._loop.create_task(self._serve(ep))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, ep: Endpoint) -> None:
        try:
            peer = ep.describe()["peer"]
            await ep.send_frames([peer.encode()])
        except errors.WeftError:
            ep.abort()
            return
        comm = Weft(ep, _join(self._loop), self.contact_address, PREFIX + peer, self._deserialize)
        comm.allow_offload = self._allow_offload
        try:
            await self.on_connection(comm)
        except CommClosedError:
            return
        except BaseException:
            comm.abort()
            raise
        await self._handler(comm)

    def stop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None and self._shared is not None:
            listener.close()
            self._shared.leave(self._loop)

    def get_host_port(self) -> tuple[str, int]:
        if self._port == 0 or self._port is None:
            raise ValueError("the listener has not started")
        return self._host, self._port

    @property
    def listen_address(self) -> str:
        host, port = self.get_host_port()
        return PREFIX + unparse_host_port(host or "0.0.0.0", port)

    @property
    def contact_address(self) -> str:
        host, port = self.get_host_port()
        return PREFIX + unparse_host_port(ensure_concrete_host(host, default_host=self._default_host), port)


def _refuse_tls(arguments: dict[str, Any]) -> None:
    if arguments.get("ssl_context") is not None or arguments.get("require_encryption"):
        raise RuntimeError("weft:// does not encrypt: use tls://")
    if dask.config.get("distributed.comm.require-encryption", None):
        raise RuntimeError("encryption is required, and weft:// does not encrypt: use tls://")


class WeftBackend(Backend):
    """What `distributed` asks for by the scheme "weft"."""

    def get_connector(self) -> WeftConnector:
        return WeftConnector()

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **connection_args: Any) -> WeftListener:
        return WeftListener(loc, handle_comm, deserialize, **connection_args)

    def get_address_host(self, loc: str) -> str:
        return parse_host_port(loc)[0]

    def get_address_host_port(self, loc: str) -> tuple[str, int | None]:
        return parse_host_port(loc)

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        return unparse_host_port(ensure_ip(host), port)

    def get_local_address_for(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        host = ensure_ip(host)
        local = get_ipv6(host) if ":" in host else get_ip(host)
        return unparse_host_port(local, None)
