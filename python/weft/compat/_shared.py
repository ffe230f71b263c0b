"""What both interfaces have: one worker a thread, their Endpoint and Listener over Weft's, their exceptions."""
from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import gc
import logging
import os
import socket
import struct
import sys
import threading
import traceback
import types
import weakref
from typing import Any, Callable, Iterator, Mapping

from . import _options
from .. import _arrays, _core, errors
from .._endpoint import Endpoint as WeftEndpoint
from .._worker import Context, Worker

# What UCX calls these, which programs may look for in a text.
_WORDS = {errors.RefusedError: "Destination is unreachable", errors.UnreachableError: "Destination is unreachable",
          errors.TimedOutError: "Endpoint timeout", errors.PeerClosedError: "Connection reset by remote peer",
          errors.PeerFailedError: "Connection reset by remote peer", errors.CancelledError: "Request canceled",
          errors.TruncatedError: "Message truncated"}
UNTAGGED = 0xFFFFFFFF  # of messages without a tag
_thread = threading.local()
logger = logging.getLogger("ucx")


class Address(bytes):
    """A worker's address: bytes, so it is pickled and compared as they are."""

    @property
    def address(self) -> int:
        return hash(self)

    @property
    def length(self) -> int:
        return len(self)


class CoreEndpoint(WeftEndpoint):
    """Weft's endpoint, with what programs call of their core's."""

    translated: Callable[[], Any] | None = None  # of the interface that has it
    handles_errors = True

    def is_alive(self) -> bool:
        """Without error handling the loss of the peer is not seen here."""
        return self.alive or (not self.handles_errors and not self.closed and self._closing is None)

    def raise_on_error(self) -> bool:
        """Raises what the endpoint was lost with, as an error of the interface; False: it was not lost."""
        if self.error is None:
            return False
        with self.translated() if self.translated is not None else contextlib.nullcontext():
            raise self._loss()


def worker() -> Worker:
    """This thread's worker, made by the first call."""
    return current() or init()


def init(options: Mapping[str, str] | None = None, env_takes_precedence: bool = False, timeout: float | None = None) -> Worker:
    """Makes this thread's worker. options: of UCX, which are checked and but for a few have no effect (_options.py), or
    settings of Weft. timeout: of connects, in seconds. Errors: OptionError for an option that neither has, or a value that
    it does not take."""
    if getattr(_thread, "worker", None) is not None and not _thread.worker.closed:
        raise RuntimeError("already initialized: reset() first")
    known = frozenset(row["name"] for row in Context({"log.level": "none"}).settings())
    settings, theirs = _options.split(options or {}, env_takes_precedence, known)
    try:
        _thread.context = Context(settings)
    except (errors.WeftError, TypeError) as error:
        raise _options.OptionError(str(error)) from error
    _thread.options, _thread.timeout = theirs, timeout
    _thread.worker = Worker(_thread.context, name="compat")
    _thread.worker.endpoint_type = CoreEndpoint
    if logger.isEnabledFor(logging.INFO):
        logger.info("initialized with: %s", ", ".join("%s=%s" % pair for pair in sorted(get_config().items())))
    return _thread.worker


def current() -> Worker | None:
    """This thread's worker, if there is one."""
    made = getattr(_thread, "worker", None)
    return None if made is None or made.closed else made


def worker_handle() -> int:
    """This thread's worker as code in C has it: the address of a weft_worker_t."""
    return worker().handle


def opened() -> weakref.WeakSet[Any]:
    """This thread's endpoints and listeners of the interfaces."""
    if not hasattr(_thread, "opened"):
        _thread.opened = weakref.WeakSet()
    return _thread.opened


def reset() -> None:
    """Closes this thread's worker. Errors: BusyError while the program has endpoints or listeners that are open."""
    made = current()
    if made is not None:
        gc.collect()
        left = [each for each in opened() if each._is_open()]
        if left:
            raise errors.BusyError("Trying to reset UCX but not all Endpoints and/or Listeners are closed(). These are open:"
                                   + "".join("\n  %r" % each for each in left))
        made.destroy()
    _thread.worker = None


def get_config() -> dict[str, str]:
    """The settings of Weft, and the options of UCX that the program or the environment gave, as they were given: of this
    thread's worker, or, without making one, those that it would have. TLS is "all" where none gave it."""
    context, options = (_thread.context, _thread.options) if current() is not None else (Context({"log.level": "none"}), {})
    return {**{row["name"]: row["value"] for row in context.settings()},
            "TLS": "all", **_options.of_environment(), **options}


def get_worker_address() -> Address:
    return Address(worker().address())


def _listens_on_all() -> bool:
    """Whether a listener of this thread is on all interfaces: a key or a setting allows it."""
    context = getattr(_thread, "context", None) or Context({"log.level": "none"})
    values = {row["name"]: row["value"] for row in context.settings()}
    return values["tcp.insecure"].lower() in ("yes", "on", "true", "1") or bool(values["tcp.key_file"])


def get_address(ifname: str | None = None) -> str:
    """The IPv4 address of a network interface. Without a name, one at which this thread's listeners are reached: of the
    interface that the variable UCXPY_IFNAME names, or that leads out of the host, or loopback if they are on that alone.
    Errors: OSError if there is no such interface."""
    import fcntl

    if ifname is None and not _listens_on_all():
        return "127.0.0.1"
    ifname = ifname or os.environ.get("UCXPY_IFNAME") or None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if ifname is not None:
            packed = struct.pack("256s", ifname.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), 0x8915, packed)[20:24])  # SIOCGIFADDR
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def get_address6(ifname: str | None = None) -> str:
    """The same, an IPv6 address: of an interface the first that others reach before one of its link alone, which has its zone.
    Of listeners on loopback alone it is IPv4's, mapped. Errors: OSError if there is no such interface, or it has none."""
    if ifname is None and not _listens_on_all():
        return "::ffff:127.0.0.1"
    ifname = ifname or os.environ.get("UCXPY_IFNAME") or None
    if ifname is not None:
        return _address6_of(ifname)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("2001:db8::1", 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return "::1"


def _address6_of(ifname: str) -> str:
    number, of_link, found = socket.if_nametoindex(ifname), 0x20, []
    with open("/proc/net/if_inet6") as rows:
        for address, index, _, scope, _, _ in map(str.split, rows):
            if int(index, 16) == number:
                found.append((int(scope, 16) == of_link, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))))
    if not found:
        raise OSError(errno.EADDRNOTAVAIL, "%s has no IPv6 address" % ifname)
    linked, address = min(found, key=lambda row: row[0])
    return address + "%" + ifname if linked else address


def get_ucxpy_logger() -> logging.Logger:
    """Their logger, as the program has configured it."""
    return logger


def progress() -> int:
    return worker().progress()


def submodule(parent: str, name: str, members: Mapping[str, Any]) -> types.ModuleType:
    """A module of a module: both `parent.name.member` and `from parent.name import member` find it."""
    made = types.ModuleType("%s.%s" % (parent, name))
    made.__dict__.update(members)
    sys.modules[made.__name__] = made
    return made


def core_of(parent: str, members: Mapping[str, Any], context: Callable[[], Any]) -> types.ModuleType:
    """Their `core`: the names of the module itself, and `_ctx`, which is None while this thread has no worker."""

    def getattr_of(name: str) -> Any:
        if name == "_ctx":
            return None if current() is None else context()
        raise AttributeError("module %r has no attribute %r" % (parent + ".core", name))

    names = {name: value for name, value in members.items() if name[:2] != "__"}
    return submodule(parent, "core", {**names, "__getattr__": getattr_of})


def size_of(buffer: Any) -> int:
    """The bytes of a buffer or an array, be it of the host or of a GPU."""
    block = _arrays.device_block(buffer)
    return _arrays.host_view(buffer, False).nbytes if block is None else block.nbytes


def check_callback(callback: Any) -> None:
    if not callable(callback):
        raise TypeError("a callback is a function, not %r" % (callback,))


def two_errors(first: type[Exception], second: type[Exception]) -> type[Exception]:
    """A class that both name. It prints, and goes to another process by pickle, as the first."""
    return type(first.__name__, (first, second), {"__module__": first.__module__,
                                                  "__reduce__": lambda error: (first, error.args)})


@contextlib.contextmanager
def translated(classes: Mapping[Any, type[Exception]], other: type[Exception], what: Callable[[], str] | None = None) -> \
        Iterator[None]:
    """Weft's errors as those of the interface. what: the operation, for the text."""
    try:
        yield
    except errors.WeftError as error:
        words = next((words for mine, words in _WORDS.items() if isinstance(error, mine)), None)
        text = ": ".join(filter(None, (what and what(), words, str(error))))
        for mine, theirs in classes.items():
            if isinstance(error, mine):
                raise theirs(text) from error
        raise other(text) from error


class EndpointBase:
    """Their Endpoint: the methods that both have."""

    _translated: Callable[..., Any]
    _takes_less = True  # a message shorter than the buffer is no error

    def __init__(self, ep: WeftEndpoint, handles_errors: bool = True) -> None:
        self._ep = ep
        if isinstance(ep, CoreEndpoint):
            ep.translated, ep.handles_errors = self._translated, handles_errors
        opened().add(self)
        self._received = 0
        self._close_after: int | None = None

    @property
    def uid(self) -> int:
        return self._ep.uid

    def _is_open(self) -> bool:
        return self._ep.alive

    def _named(self, what: str, tag: Any, buffer: Any) -> str:
        return "<[%s #%03d] ep: %#x, tag: %r, nbytes: %d>" % (what, self._received, self._ep.handle, tag, size_of(buffer))

    def _tag(self, tag: Any) -> Any:
        return UNTAGGED if tag is None else tag

    async def send(self, buffer: Any, tag: Any = None, force_tag: bool = False) -> None:
        """Sends a buffer. A forced tag is sent as it is, for `recv(buffer, tag)` of the peer's module."""
        with self._translated(lambda: self._named("Send", tag, buffer)):
            if force_tag:
                await self._ep.send_tag(buffer, tag)
            else:
                await self._ep.send(buffer, self._tag(tag))

    async def recv(self, buffer: Any, tag: Any = None, force_tag: bool = False) -> int:
        """Receives into a buffer, and returns the length in bytes."""
        length = await self._receive(buffer, tag, force_tag)
        await self._count()
        return length

    async def _receive(self, buffer: Any, tag: Any, force_tag: bool) -> int:
        """The same, and does not count as one receive."""
        with self._translated(lambda: self._named("Recv", tag, buffer)):
            if force_tag:
                length = (await self._ep.worker.recv(buffer, tag))[0]
            else:
                length = await self._ep.recv(buffer, self._tag(tag))
            if not self._takes_less:
                check_filled(buffer, length)
        return length

    def _call_when_closed(self, callback: Callable[[], Any]) -> None:
        """callback() is called once, also if the endpoint is closed or lost already."""
        if self._ep.alive:
            self._ep.on_close = lambda ep, error: callback()
        else:
            callback()

    def __del__(self) -> None:
        """An endpoint without a reference is closed, and the callback is called, as theirs do."""
        ep = getattr(self, "_ep", None)  # self.__dict__ would make a dict, by which a collection finds it in use
        if ep is not None and ep.on_close is not None and ep.alive:
            callback, ep.on_close = ep.on_close, None
            callback(ep, None)

    async def _count(self) -> None:
        self._received += 1
        if self._close_after is not None and self._received >= self._close_after:
            self._close_after = None
            await self.close()

    def close_after_n_recv(self, n: int, count_from_ep_creation: bool = False) -> None:
        """Closes the endpoint after n receives from now on, or from its begin. It is said once. Errors: theirs."""
        target = n if count_from_ep_creation else self._received + n
        with self._translated():
            if target < self._received:
                raise errors.InvalidParamError("`n` cannot be less than current recv_count: %d < %d" % (target, self._received))
            if self._close_after is not None:
                raise errors.ExistsError("close_after_n_recv has already been set to: %d" % self._close_after)
        self._close_after = target
        if target == self._received:
            self.abort()

    async def am_send(self, buffer: Any) -> None:
        with self._translated(lambda: "am_send"):
            await self._ep.am_post(buffer)

    async def am_recv(self) -> Any:
        with self._translated(lambda: "am_recv"):
            got = await self._ep.am_recv()
        await self._count()
        return got

    async def send_obj(self, obj: Any, tag: Any = None) -> None:
        """Sends a buffer whose length the receiver does not know."""
        await self.send(array.array("Q", [size_of(obj)]), tag)
        await self.send(obj, tag)

    async def recv_obj(self, tag: Any = None, allocator: Callable[[int], Any] = bytearray) -> Any:
        """Receives what send_obj sent, into allocator(bytes)."""
        length = array.array("Q", [0])
        await self.recv(length, tag)
        got = allocator(length[0])
        await self.recv(got, tag)
        return got

    async def close(self) -> None:
        self._tell_loss()
        with self._translated():
            await self._ep.close()

    def _tell_loss(self) -> None:
        """Without error handling, the close is where the loss of the peer is seen."""
        if isinstance(self._ep, CoreEndpoint) and not self._ep.handles_errors:
            try:
                with self._translated(lambda: "<[Send shutdown] ep: %#x>" % self._ep.handle):
                    if self._ep.error is not None:
                        raise self._ep._loss()
            except Exception as error:
                logger.error("UCXError('%s')", error)

    def abort(self) -> None:
        self._ep.abort()

    def describe(self) -> dict[str, Any]:
        return self._ep.describe()


class ListenerBase:
    """Their Listener. `ip` and `port` say where."""

    def __init__(self, listener: Any, active: list[int]) -> None:
        self._listener, self._active = listener, active
        opened().add(self)

    def _is_open(self) -> bool:
        return not self._listener.closed

    @property
    def ip(self) -> str:
        return self._listener.host

    @property
    def port(self) -> int:
        return self._listener.port

    def close(self) -> None:
        self._listener.close()

    def __del__(self) -> None:
        """A listener without a reference is closed, as theirs is."""
        if getattr(self, "_listener", None) is None or self._listener.closed:
            return
        if self._active[0]:
            logger.warning("Listener object is being destroyed; %d callbacks of clients have not ended",
                                             self._active[0])
        self.close()


def listen(make: Callable[[WeftEndpoint], Any], callback: Callable[[Any], Any], port: int | None) -> tuple[Any, list[int]]:
    """Listens on all interfaces if a key or the settings allow it, else on loopback: (listener, [callbacks that run])."""
    active = [0]
    check_callback(callback)

    async def accepted(ep: WeftEndpoint) -> None:
        active[0] += 1
        try:
            said = callback(make(ep))
            if asyncio.iscoroutine(said):
                await said
        except Exception:
            # As a text: the frames of the exception would keep the endpoint.
            logger.error("Uncaught listener callback error\n%s", traceback.format_exc())
        finally:
            active[0] -= 1

    made = worker()
    try:
        return made.listen(accepted, host="*", port=port or 0), active
    except errors.InsecureError:
        return made.listen(accepted, host="127.0.0.1", port=port or 0), active


def connect_timeout() -> float:
    """Seconds that a connect waits: as `init` said, else the variable of UCX-Py, else 5."""
    timeout = getattr(_thread, "timeout", None) if current() is not None else None
    return float(os.environ.get("UCXPY_CONNECT_TIMEOUT", 5)) if timeout is None else timeout


async def connect(to: Any, timeout: float | None = None) -> WeftEndpoint:
    return await worker().connect(to, deadline=timeout)


def connect_by_address(address: bytes) -> WeftEndpoint:
    """Does not wait: the peer may answer much later."""
    return worker().connect_now(bytes(address))


def check_filled(buffer: Any, length: int) -> None:
    """Errors: TruncatedError, in UCX-Py's words, if a message of this length does not fill the buffer."""
    if length != size_of(buffer):
        raise errors.TruncatedError("length mismatch: %d (got) != %d (expected)" % (length, size_of(buffer)))


async def recv(buffer: Any, tag: int) -> int:
    """Receives on the worker: what any peer sent with this tag, forced."""
    return (await worker().recv(buffer, tag))[0]


def context_info() -> str:
    return "\n".join("%s=%s" % pair for pair in sorted(get_config().items()))


def worker_info() -> str:
    return "\n".join("%s %s" % (row["name"], " ".join(row["capabilities"])) for row in worker().transports())


def active_transports() -> list[str]:
    return [row["name"] for row in worker().transports()]


def version() -> tuple[int, int, int]:
    major, minor, patch = _core.version.split(".")
    return int(major), int(minor), int(patch)


class AbsentError(NotImplementedError, AttributeError):
    """A name of theirs that is not there. It is an AttributeError, too: hasattr() is False."""


class _AbsentModule(types.ModuleType):
    """A module of theirs that is not there: to import a name or a module from it says why."""

    why = ""
    has_members = False

    def __getattr__(self, name: str) -> Any:
        """Of a name that is not among its members."""
        if name == "__path__" and not self.has_members:  # which an import of a module within asks for; of an AttributeError it would tell nothing
            raise NotImplementedError(self.why)
        if name[:2] == "__":
            raise AttributeError("module %r has no attribute %r" % (self.__name__, name))
        raise AbsentError(self.why)


def partial(module: str, name: str, why: str, members: Mapping[str, Any]) -> types.ModuleType:
    """A module of theirs that has some of its names. The others say why."""
    made = _AbsentModule("%s.%s" % (module, name))
    made.why, made.has_members = "%s is not there but for %s: %s" % (made.__name__, ", ".join(members), why), True
    made.__dict__.update(members)
    sys.modules[made.__name__] = made
    return made


def absent(module: str, names: Mapping[str, str], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The module's __getattr__: what is not there, names and modules, says why."""
    texts = {name: "%s.%s is not there: %s" % (module, name, why) for name, why in {**names, **modules}.items()}
    for name in modules:
        made = _AbsentModule("%s.%s" % (module, name))
        made.why = texts[name]
        sys.modules[made.__name__] = made

    def getattr_of(name: str) -> Any:
        if name in texts:
            raise AbsentError(texts[name])
        raise AttributeError("module %r has no attribute %r" % (module, name))

    return getattr_of
