"""The asynchronous interface of UCX-Py over Weft: `import weft.compat.ucp as ucp`.

Differences: options of UCX are checked, and but for a few have no effect, as its environment variables have none; there is no
progress mode, and no progress task; a worker belongs to its thread, so `reset` is about this thread's. A listener is on all
interfaces only if a cluster key or the setting tcp.insecure allows it, else on loopback.
"""
from __future__ import annotations

from typing import Any, Callable

from .. import _core, errors
from . import _options, _shared
from ._shared import (active_transports as get_active_transports, context_info as get_ucp_context_info, get_address,
                      get_config, get_ucxpy_logger, get_worker_address, logger, progress, version as get_ucx_version,
                      worker as _worker, worker_handle as get_ucp_worker, worker_info as get_ucp_worker_info)


class UCXBaseException(Exception):
    """The base of all errors in theirs."""


class UCXError(UCXBaseException):
    """The base of those below, too: what theirs raises as a UCXError may have a class of its own here."""


class UCXConnectionReset(UCXError):
    """The peer closed the endpoint, or died."""


class UCXCloseError(UCXError):
    """This side closed the endpoint."""


class UCXCanceled(UCXError):
    """The operation was cancelled."""


# What ends when the peer closes, or this side, is by its kind both to them.
_Reset = _shared.two_errors(UCXConnectionReset, UCXCanceled)
_Closed = _shared.two_errors(UCXCloseError, UCXCanceled)


class UCXMsgTruncated(UCXError):
    """The message is longer than its buffer, or shorter."""


class UCXNotConnected(UCXError):
    """The peer does not answer at that address."""


class UCXUnreachable(UCXError):
    """No transport reaches that address."""


class UCXConfigError(UCXError):
    """A setting is refused."""


class UCXWarning(UserWarning):
    pass


_CLASSES: dict[type[BaseException], type[Exception]] = {
    _options.OptionError: UCXConfigError, errors.PeerClosedError: _Reset, errors.PeerFailedError: _Reset,
    errors.ClosedError: _Closed, errors.CancelledError: UCXCanceled, errors.TruncatedError: UCXMsgTruncated,
    errors.RefusedError: UCXNotConnected, errors.TimedOutError: UCXNotConnected,
    errors.UnreachableError: UCXUnreachable}


exceptions = _shared.submodule(__name__, "exceptions", {cls.__name__: cls for cls in (
    UCXBaseException, UCXError, UCXConnectionReset, UCXCloseError, UCXCanceled, UCXMsgTruncated, UCXNotConnected, UCXUnreachable,
    UCXConfigError, UCXWarning)})
__version__ = _core.version
__git_commit__ = ""
__ucx_version__ = "%d.%d.%d" % get_ucx_version()


def _translated(what: Callable[[], str] | None = None) -> Any:
    return _shared.translated(_CLASSES, UCXError, what)


class Endpoint(_shared.EndpointBase):
    _translated = staticmethod(_translated)
    _takes_less = False

    def closed(self) -> bool:
        return not self._ep.alive

    def set_close_callback(self, callback_func: Callable[[], Any]) -> None:
        """callback_func() is called when the endpoint is closed, by either side."""
        _shared.check_callback(callback_func)
        self._call_when_closed(callback_func)

    async def flush(self) -> None:
        with _translated():
            await self._ep.flush()

    def get_ucp_worker(self) -> int:
        """The address of the weft_worker_t, for code in C."""
        return self._ep.worker.handle

    def get_ucp_endpoint(self) -> int:
        """The address of the weft_ep_t, for code in C; 0 after the close."""
        return self._ep.handle

    def cuda_support(self) -> bool:
        """Memory of a GPU is sent and received as any other."""
        return True

    def ucx_info(self) -> str:
        return "\n".join("%s: %s" % pair for pair in self._ep.describe().items())


class Listener(_shared.ListenerBase):
    def closed(self) -> bool:
        return self._listener.closed


def init(options: dict[str, str] | None = None, env_takes_precedence: bool = False,
         blocking_progress_mode: bool | None = None, connect_timeout: float | None = None) -> None:
    """connect_timeout: seconds that create_endpoint waits. The progress mode has no meaning. Errors: UCXConfigError for an
    option that neither UCX nor Weft has, or a value that it does not take."""
    with _translated():
        _shared.init(options, env_takes_precedence, connect_timeout)


def reset() -> None:
    """Closes this thread's worker. Errors: UCXError while endpoints or listeners are open."""
    with _translated():
        _shared.reset()


def create_listener(callback_func: Callable[[Endpoint], Any], port: int | None = None,
                    endpoint_error_handling: bool = True) -> Listener:
    with _translated():
        _receives_bytearrays()
        return Listener(*_shared.listen(lambda ep: Endpoint(ep, endpoint_error_handling), callback_func, port))


async def create_endpoint(ip_address: str, port: int, endpoint_error_handling: bool = True) -> Endpoint:
    with _translated():
        _receives_bytearrays()
        return Endpoint(await _shared.connect((ip_address, port), _shared.connect_timeout()), endpoint_error_handling)


async def create_endpoint_from_worker_address(address: bytes, endpoint_error_handling: bool = True) -> Endpoint:
    with _translated():
        _receives_bytearrays()
        return Endpoint(_shared.connect_by_address(address), endpoint_error_handling)


def _receives_bytearrays() -> None:
    """am_recv gives what the registered allocator makes, and a bytearray without one."""
    _worker()._allocators.setdefault("host", bytearray)


def get_ucx_address_from_buffer(buffer: Any) -> _shared.Address:
    return _shared.Address(bytes(buffer))


async def recv(buffer: Any, tag: int) -> int:
    with _translated():
        length = await _shared.recv(buffer, tag)
        _shared.check_filled(buffer, length)
        return length


def register_am_allocator(allocator: Callable[[int], Any], allocator_type: str) -> None:
    """allocator_type: "host", or "cuda" for what was sent from memory of a GPU; without the latter it arrives in memory of
    the host."""
    with _translated():
        _worker().register_am_allocator(allocator, allocator_type)


async def flush() -> None:
    worker = _shared.current()
    if worker is not None:
        with _translated():
            await worker.flush()


def fence() -> None:
    worker = _shared.current()
    if worker is not None:
        with _translated():
            worker.fence()


def continuous_ucx_progress(event_loop: Any = None) -> None:
    """Nothing to do: the loop's own reader drives the worker."""


class ApplicationContext:
    """What `core._ctx` is while this thread has a worker."""

    def get_ucp_worker(self) -> int:
        return get_ucp_worker()

    def get_config(self) -> dict[str, str]:
        return get_config()

    def get_worker_address(self) -> _shared.Address:
        return get_worker_address()

    def ucp_context_info(self) -> str:
        return get_ucp_context_info()

    def ucp_worker_info(self) -> str:
        return get_ucp_worker_info()

    def create_listener(self, callback_func: Callable[[Endpoint], Any], port: int | None = 0,
                        endpoint_error_handling: bool = True) -> Listener:
        return create_listener(callback_func, port, endpoint_error_handling)

    async def create_endpoint(self, ip_address: str, port: int, endpoint_error_handling: bool = True) -> Endpoint:
        return await create_endpoint(ip_address, port, endpoint_error_handling)

    async def create_endpoint_from_worker_address(self, address: bytes, endpoint_error_handling: bool = True) -> Endpoint:
        return await create_endpoint_from_worker_address(address, endpoint_error_handling)

    def continuous_ucx_progress(self, event_loop: Any = None) -> None:
        """Nothing to do: the loop's own reader drives the worker."""

    def register_am_allocator(self, allocator: Callable[[int], Any], allocator_type: str) -> None:
        register_am_allocator(allocator, allocator_type)

    async def flush(self) -> None:
        await flush()

    def fence(self) -> None:
        fence()

    async def recv(self, buffer: Any, tag: int) -> int:
        return await recv(buffer, tag)


def _get_ctx() -> ApplicationContext:
    _worker()
    return ApplicationContext()


core = _shared.core_of(__name__, globals(), ApplicationContext)
utils = _shared.partial(__name__, "utils", "tools of UCX-Py's own", {"get_ucxpy_logger": get_ucxpy_logger})
__getattr__ = _shared.absent(__name__, {"get_default_options": "options of UCX have no effect here",
                                        "__ucx_min_version__": "there is no UCX"},
                             {"_libs": "the core interface; weft.rma has remote memory",
                              "comm": "what is behind the interface"})
