"""The asynchronous interface of ucxx over Weft: `import weft.compat.ucxx as ucxx`.

Differences: options of UCX are checked, and but for a few have no effect, as its environment variables have none; progress modes, delayed submission and Python futures
are accepted and ignored, because there is no thread and no task; a worker belongs to its thread. A listener is on all
interfaces only if a cluster key or the setting tcp.insecure allows it, else on loopback.
"""
from __future__ import annotations

import array
import enum
import warnings
from types import SimpleNamespace
from typing import Any, Callable

from .. import _arrays, _core, errors
from . import _shared
from ._shared import (active_transports as get_active_transports, context_info as get_ucp_context_info, get_config,
                      get_ucxpy_logger, get_worker_address, logger, progress, version as get_ucx_version,
                      worker as _worker, worker_handle as get_ucp_worker, worker_handle as get_ucxx_worker,
                      worker_info as get_ucp_worker_info)


MULTI_MOST = 1 << 20  # buffers of one send_multi with a tag


class UCXError(Exception):
    """The base of all errors."""


def _class(name: str, *bases: type[Exception]) -> type[Exception]:
    return type(name, bases or (UCXError,), {"__module__": __name__ + ".exceptions"})


# All that ucxx has; some name what never happens here.
_NAMES = ("AlreadyExists", "BufferTooSmall", "Busy", "Canceled", "Close", "Config", "ConnectionReset", "EndpointTimeout",
          "ExceedsLimit", "FirstEndpointFailure", "FirstLinkFailure", "InvalidAddr", "InvalidParam", "IO",
          "LastEndpointFailure", "LastLinkFailure", "MessageTruncated", "NoDevice", "NoElem", "NoMemory", "NoMessage",
          "NoProgress", "NoResource", "NotConnected", "NotImplemented", "OutOfRange", "Rejected", "ShmemSegment",
          "SomeConnectsFailed", "TimedOut", "Unreachable", "Unsupported")
_THEIRS = {"UCX%sError" % name: _class("UCX%sError" % name) for name in _NAMES}
exceptions = _shared.submodule(__name__, "exceptions", {
    "UCXError": UCXError, **_THEIRS, "UCXCanceled": _THEIRS["UCXCanceledError"],
    "UCXMsgTruncated": _THEIRS["UCXMessageTruncatedError"]})
# What ends when the peer closes, or this side, is by its kind both to them.
_Reset = _shared.two_errors(_THEIRS["UCXConnectionResetError"], _THEIRS["UCXCanceledError"])
_Closed = _shared.two_errors(_THEIRS["UCXCloseError"], _THEIRS["UCXCanceledError"])
_CLASSES: dict[type[BaseException], type[Exception]] = {errors.PeerClosedError: _Reset, errors.PeerFailedError: _Reset,
                                                        errors.ClosedError: _Closed}
_CLASSES.update({getattr(errors, mine + "Error"): _THEIRS["UCX%sError" % theirs] for mine, theirs in {
    "Cancelled": "Canceled", "Truncated": "MessageTruncated", "Refused": "NotConnected", "TimedOut": "TimedOut",
    "Unreachable": "Unreachable", "InvalidParam": "InvalidParam", "Address": "InvalidAddr", "NoMemory": "NoMemory",
    "Busy": "Busy", "Exists": "AlreadyExists", "Unsupported": "Unsupported", "Rejected": "Rejected", "Io": "IO",
    "NoFds": "NoResource", "TooBig": "ExceedsLimit", "NotFound": "NoElem"}.items()})


class Tag(int):
    """A tag of 64 bits."""

    def __new__(cls, value: int = 0) -> Tag:
        if not 0 <= value < 1 << 64:
            raise OverflowError("a tag has 64 bits: %d" % value)
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return "UCXX%s(%d)" % (type(self).__name__, self)

    @property
    def value(self) -> int:
        return int(self)


class TagMask(Tag):
    """The bits of a tag that count."""


TagMaskFull = TagMask(0xFFFFFFFFFFFFFFFF)
types = _shared.submodule(__name__, "types", {"Tag": Tag, "TagMask": TagMask, "TagMaskFull": TagMaskFull})
__version__ = _core.version
__git_commit__ = ""
__ucx_version__ = "%d.%d.%d" % get_ucx_version()


def _translated(what: Callable[[], str] | None = None) -> Any:
    return _shared.translated(_CLASSES, UCXError, what)


def _array_of(memory: Any) -> Any:
    """Received memory of the host as theirs is: a numpy array of bytes, without a copy, where numpy is installed."""
    host = 1  # kDLCPU
    of_host = isinstance(memory, _core.Block) and memory.__dlpack_device__()[0] == host
    if not of_host and not isinstance(memory, memoryview):
        return memory
    try:
        import numpy
    except ImportError:
        return memory
    return numpy.asarray(memory)


def _probed(found: Any) -> SimpleNamespace:
    """What a probe of the worker's found, as theirs: `handle` is there if it was removed."""
    if found is None:
        return SimpleNamespace(matched=False, sender_tag=Tag(0), length=0, handle=None)
    if isinstance(found, _core.TakenMessage):
        return SimpleNamespace(matched=True, sender_tag=Tag(found.tag), length=found.len, handle=found)
    return SimpleNamespace(matched=True, sender_tag=Tag(found[1]), length=found[0], handle=None)


class PythonAmSendMemoryTypePolicy(enum.Enum):
    """What a receiver does with a message from memory of a kind that it has no allocator for: it takes memory of the host, or
    its am_recv is UCXUnsupportedError, and the message is lost."""

    FallbackToHost = 0
    ErrorOnUnsupported = 1


def get_address(ifname: str | None = None, use_ipv6: bool = False) -> str:
    return _shared.get_address6(ifname) if use_ipv6 else _shared.get_address(ifname)


class ApplicationContext:
    """This thread's worker by the names of theirs, and messages under a forced tag, of any endpoint."""

    progress_mode = "polling"  # a program may call progress(); none has to
    enable_delayed_submission = enable_python_future = False

    worker = property(lambda self: _worker())
    ucp_worker = ucxx_worker = property(lambda self: get_ucp_worker())
    config = property(lambda self: get_config())
    ucp_context_info = property(lambda self: get_ucp_context_info())
    ucp_worker_info = property(lambda self: get_ucp_worker_info())
    worker_address = property(lambda self: get_worker_address())

    def create_listener(self, callback_func: Callable[[Endpoint], Any], port: int | None = 0, endpoint_error_handling: bool = True,
                        connect_timeout: float = 5.0) -> Listener:
        return create_listener(callback_func, port, endpoint_error_handling, connect_timeout)

    async def create_endpoint(self, ip_address: str, port: int, endpoint_error_handling: bool = True,
                              connect_timeout: float = 5.0) -> Endpoint:
        return await create_endpoint(ip_address, port, endpoint_error_handling, connect_timeout)

    async def create_endpoint_from_worker_address(self, address: bytes, endpoint_error_handling: bool = True) -> Endpoint:
        return await create_endpoint_from_worker_address(address, endpoint_error_handling)

    def continuous_ucx_progress(self, event_loop: Any = None) -> None:
        """Nothing to do, as of the next three: the loop's own reader drives the worker."""

    def clear_progress_tasks(self) -> None:
        pass

    def start_notifier_thread(self) -> None:
        pass

    def stop_notifier_thread(self) -> None:
        pass

    def tag_probe(self, tag: int, remove: bool = False) -> SimpleNamespace:
        with _translated():
            worker = _worker()
            return _probed((worker.tag_take if remove else worker.tag_probe)(tag, TagMaskFull))

    async def recv(self, buffer: Any, tag: int) -> int:
        return await recv(buffer, tag)

    async def recv_with_handle(self, buffer: Any, probe_result: Any) -> int:
        """Receives a message that tag_probe removed."""
        with _translated():
            request = probe_result.handle.post_recv(buffer)
            if isinstance(request, _core.Request):
                await _worker().complete(request)
        return probe_result.length


def _get_ctx() -> ApplicationContext:
    _worker()
    return ApplicationContext()


def _older(name: str, older: str | None = None) -> Callable[[Any], Any]:
    """The method that a property replaces: as theirs, it warns."""
    def get(self: Any) -> Any:
        warnings.warn("Endpoint.%s() is deprecated: use the property Endpoint.%s" % (older or "get_" + name, name), FutureWarning,
                      stacklevel=2)
        return getattr(self, name)

    return get


class Endpoint(_shared.EndpointBase):
    _translated = staticmethod(_translated)

    # For code in C: the addresses of the weft_ep_t (0 after the close) and of the weft_worker_t.
    ucxx_endpoint = ucp_endpoint = property(lambda self: self._ep.handle)
    ucxx_worker = ucp_worker = property(lambda self: self._ep.worker.handle)
    _ctx = property(lambda self: ApplicationContext())
    # The same by older names, which theirs still has.
    get_ucxx_endpoint, get_ucp_endpoint = _older("ucxx_endpoint"), _older("ucp_endpoint")
    get_ucxx_worker, get_ucp_worker = _older("ucxx_worker"), _older("ucp_worker")
    is_alive = _older("alive", "is_alive")

    @property
    def _tags(self) -> dict[str, Tag]:
        """The forced tags of messages without a tag."""
        return {"msg_send": Tag(self._ep._peer_number << 32 | _shared.UNTAGGED),
                "msg_recv": Tag(self._ep._number << 32 | _shared.UNTAGGED)}

    @property
    def alive(self) -> bool:
        return self._ep.alive

    @property
    def closed(self) -> bool:
        return not self._ep.alive

    async def close(self, period: int = 10**10, max_attempts: int = 1) -> None:
        """Closes after what was sent; `period` is in ns, and an abort follows after all attempts."""
        self._tell_loss()
        with _translated():
            try:
                await self._ep.close(deadline=period * max_attempts / 1e9)
            except errors.TimedOutError:
                pass

    def abort(self, period: int = 10**10, max_attempts: int = 1) -> None:
        self._ep.abort()

    def set_close_callback(self, callback_func: Callable[..., Any], cb_args: tuple[Any, ...] | None = None,
                           cb_kwargs: dict[str, Any] | None = None) -> None:
        """callback_func(*cb_args, **cb_kwargs) is called when the endpoint is closed, by either side."""
        _shared.check_callback(callback_func)
        self._call_when_closed(lambda: callback_func(*(cb_args or ()), **(cb_kwargs or {})))

    async def send_multi(self, buffers: Any, tag: Any = None, force_tag: bool = False) -> None:
        """Sends a list of buffers: as one message; with a tag, as theirs, their sizes and then each, under that tag."""
        if tag is None:
            with _translated():
                await self._ep.send_frames(buffers)
            return
        sizes = [_shared.size_of(buffer) for buffer in buffers]
        for part in (array.array("Q", [len(sizes)]), array.array("Q", sizes), *buffers):
            await self.send(part, tag=tag, force_tag=force_tag)

    async def recv_multi(self, tag: Any = None, force_tag: bool = False) -> list[Any]:
        """The buffers of the peer's next send_multi (with that tag), in memory that is made here: as _array_of."""
        buffers = await self._receive_multi(tag, force_tag)
        await self._count()
        return [_array_of(buffer) for buffer in buffers]

    async def _receive_multi(self, tag: Any, force_tag: bool) -> list[Any]:
        if tag is None:
            with _translated():
                return await self._ep.recv_frames()
        count = array.array("Q", [0])
        await self._receive(count, tag, force_tag)
        if count[0] > MULTI_MOST:
            raise UCXError("%d buffers in one message" % count[0])
        sizes = array.array("Q", bytes(8 * count[0]))
        await self._receive(sizes, tag, force_tag)
        buffers = [memoryview(bytearray(size)) for size in sizes]
        for buffer in buffers:
            await self._receive(buffer, tag, force_tag)
        return buffers

    async def am_send(self, buffer: Any, memory_type_policy: PythonAmSendMemoryTypePolicy | None = None,
                      user_header: bytes | None = None) -> None:
        """Sends a message for the peer's am_recv, with a header of at most 255 bytes."""
        header, strict = _header_of(user_header), _is_strict(memory_type_policy)
        with _translated(lambda: "am_send"):
            await self._ep.am_post(buffer, header, same_kind=strict)

    async def am_send_iov(self, buffers: Any, memory_type_policy: PythonAmSendMemoryTypePolicy | None = None,
                          user_header: bytes | None = None) -> None:
        """Sends several buffers, all of the host or all of a GPU, as one message, which the peer's am_recv has as one."""
        if not isinstance(buffers, (list, tuple)) or not buffers:
            raise ValueError("buffers: a list or tuple, and not an empty one")
        if len({_arrays.device_block(part) is None for part in buffers}) > 1:
            raise ValueError("buffers of the host and of a GPU in one message")
        header, strict = _header_of(user_header), _is_strict(memory_type_policy)
        with _translated(lambda: "am_send_iov"):
            await self._ep.am_post(buffers, header, same_kind=strict)

    async def am_recv(self) -> Any:
        """A message in the memory of the registered allocator; without one, as _array_of."""
        return _array_of(await super().am_recv())

    async def am_recv_with_header(self) -> tuple[Any, bytes]:
        """The same, and the header that it was sent with: (memory, header)."""
        with _translated(lambda: "am_recv"):
            memory, header = await self._ep.am_recv_with_header()
        await self._count()
        return _array_of(memory), header

    def tag_probe(self, tag: Any = None, force_tag: bool = False, remove: bool = False) -> Any:
        """What waits under the tag: an object with `matched`, `sender_tag`, `length`, and `handle` (remove) for
        recv_with_handle."""
        if force_tag:
            return ApplicationContext().tag_probe(tag, remove)
        with _translated():
            return _probed(self._ep.tag_probe(self._tag(tag), remove=remove))

    async def recv_with_handle(self, buffer: Any, probe_result: Any) -> int:
        """Receives a message that tag_probe removed."""
        with _translated():
            await self._ep.recv_taken(probe_result.handle, buffer)
        await self._count()
        return probe_result.length


def _header_of(header: bytes | None) -> bytes:
    if not isinstance(header, (bytes, type(None))):
        raise TypeError("user_header must be bytes")
    return header or b""


def _is_strict(policy: PythonAmSendMemoryTypePolicy | None) -> bool:
    if not isinstance(policy, (PythonAmSendMemoryTypePolicy, type(None))):
        raise TypeError("memory_type_policy is a PythonAmSendMemoryTypePolicy, or None")
    return policy is PythonAmSendMemoryTypePolicy.ErrorOnUnsupported


class Listener(_shared.ListenerBase):
    @property
    def closed(self) -> bool:
        return self._listener.closed

    @property
    def active_clients(self) -> int:
        """How many callbacks of clients have not ended yet."""
        return self._active[0]


def init(options: dict[str, str] | None = None, env_takes_precedence: bool = False, progress_mode: str | None = None,
         enable_delayed_submission: bool | None = None, enable_python_future: bool | None = None,
         connect_timeout: float | None = None) -> None:
    """The last four have no meaning: create_endpoint has a timeout of its own. Errors: UCXInvalidParamError for an option
    that neither UCX nor Weft has, or a value that it does not take; ValueError for a progress mode that ucxx has not."""
    if progress_mode not in (None, "blocking", "polling", "thread", "thread-polling"):
        raise ValueError("Unknown progress mode: %r" % (progress_mode,))
    with _translated():
        _shared.init(options, env_takes_precedence)


def reset() -> None:
    """Closes this thread's worker. Errors: UCXError while endpoints or listeners are open."""
    with _translated():
        _shared.reset()


def create_listener(callback_func: Callable[[Endpoint], Any], port: int | None = None, endpoint_error_handling: bool = True,
                    connect_timeout: float = 5.0) -> Listener:
    with _translated():
        return Listener(*_shared.listen(lambda ep: Endpoint(ep, endpoint_error_handling), callback_func, port))


async def create_endpoint(ip_address: str, port: int, endpoint_error_handling: bool = True,
                          connect_timeout: float = 5.0) -> Endpoint:
    with _translated():
        return Endpoint(await _shared.connect((ip_address, port), connect_timeout), endpoint_error_handling)


async def create_endpoint_from_worker_address(address: bytes, endpoint_error_handling: bool = True) -> Endpoint:
    with _translated():
        return Endpoint(_shared.connect_by_address(address), endpoint_error_handling)


def get_ucx_address_from_buffer(buffer: Any) -> _shared.Address:
    return _shared.Address(bytes(buffer))


async def recv(buffer: Any, tag: int) -> int:
    with _translated():
        return await _shared.recv(buffer, tag)


def continuous_ucx_progress(event_loop: Any = None) -> None:
    """Nothing to do: the loop's own reader drives the worker."""


def stop_notifier_thread() -> None:
    """Nothing to stop: there is no thread."""


core = _shared.core_of(__name__, globals(), ApplicationContext)
utils = _shared.partial(__name__, "utils", "tools of ucxx's own benchmarks",
                        {"get_address": get_address, "get_ucxpy_logger": get_ucxpy_logger})
_CORE = "the core interface; weft.Worker(polls=True) is synchronous, and PythonAmSendMemoryTypePolicy is a name of " + __name__
__getattr__ = _shared.absent(__name__, {"register_am_allocator": "neither has ucxx; weft.Worker has it",
                                        "libucxx": _CORE, "__ucx_min_version__": "there is no UCX"},
                             {"_lib": _CORE, "_lib_async": "what is behind the interface",
                              "_cuda_context": "the memory's own context is used", "testing": "tools of ucxx's own tests"})
