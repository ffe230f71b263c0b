"""The library's log, by the logging module.

    weft.log.attach()                       # to logging.getLogger("weft")
    weft.log.attach(logging.getLogger("my.transport"))

A line goes to the logger's child of the part of the library that wrote it ("weft.tcp"), with the level of logging; "trace" is 5.
The setting log.level of a context ("warn") says which lines there are. A thread hands them over, so that a line can come from
any thread, at any moment: handlers are called on that thread. It takes what fits in a socket's buffer, some hundred lines; what
comes beside that is dropped, and a warning counts it.
"""
import atexit
import logging
import os
import socket
import threading
import traceback

from . import _core

TRACE = 5
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, TRACE)
_MOST = 4096  # bytes of a line


class _Route:
    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._ours, self._its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._its.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._thread = threading.Thread(target=self._run, name="weft.log", daemon=True)
        self._thread.start()
        _core.log_route(self._its.fileno())

    def _run(self) -> None:
        while line := self._ours.recv(_MOST):
            room, _, text = line[1:].partition(b"\0")
            self._log(_LEVELS[line[0]], room.decode(errors="replace"), text.decode(errors="replace"))
            self._count_dropped()
        self._count_dropped()

    def _count_dropped(self) -> None:
        dropped = _core.log_dropped()
        if dropped:
            self._log(logging.WARNING, "log", "%d lines were dropped, since they came faster than they were taken" % dropped)

    def _log(self, level: int, room: str, text: str) -> None:
        try:
            self._logger.getChild(room).log(level, text)
        except Exception:  # of a filter: the next line may pass
            traceback.print_exc()

    def end(self, patience: float) -> None:
        _core.log_route(-1)
        self._its.shutdown(socket.SHUT_WR)
        if self._thread is not threading.current_thread():
            self._thread.join(patience)
        if not self._thread.is_alive():
            self.close()

    def close(self) -> None:
        self._ours.close()
        self._its.close()


_lock = threading.Lock()
_route: _Route | None = None


def attach(logger: logging.Logger | str = "weft") -> None:
    """Hands the lines of all contexts of this process to a logger, given by itself or by its name, in place of standard error.
    A further call replaces the logger. The end of the process, and detach(), first hand over what there is. A fork's child
    writes to standard error until it calls this, too. What the library says without a context goes to standard error."""
    global _route
    with _lock:
        if _route:
            _route.end(_PATIENCE)
            _route = None  # a further one may find no descriptors
        _route = _Route(logging.getLogger(logger) if isinstance(logger, str) else logger)


def detach() -> None:
    """Lines go to standard error again. Those from before have been handed over when this returns, unless a handler takes more
    than five seconds."""
    global _route
    with _lock:
        if _route:
            _route.end(_PATIENCE)
        _route = None


_PATIENCE = 5.0


def _forked() -> None:
    """In the child: the thread has stayed with the parent, and so have its lines."""
    global _lock, _route
    _lock = threading.Lock()
    if _route:
        _core.log_route(-1)
        _route.close()
    _route = None


atexit.register(detach)
os.register_at_fork(after_in_child=_forked)
