"""Errors: one class a status of the library, named after it.

Every class is a WeftError, and also the built-in exception that fits: a TimedOutError is a TimeoutError, a RefusedError a
ConnectionRefusedError. `str(error)` has the causes (which peer, which address, the error of the system call) and the hint.
"""
from __future__ import annotations

from . import _core


class WeftError(Exception):
    """An operation or a call failed.

    status: the library's number, negative; name: as "WEFT_ERR_TIMED_OUT"; hint: what to try, or ""; sent: of a stream's
    send, how many of its bytes were appended to the stream, else None.
    """

    status: int = 0
    name: str = ""
    hint: str = ""
    sent: int | None = None


_ALSO: dict[str, type[BaseException]] = {
    "ADDRESS": ValueError, "AUTH": PermissionError, "CLOSED": ConnectionError, "EXISTS": FileExistsError,
    "INSECURE": PermissionError, "INVALID_PARAM": ValueError, "IO": OSError, "NO_FDS": OSError, "NO_MEMORY": MemoryError,
    "NOT_FOUND": LookupError, "PEER_CLOSED": ConnectionResetError, "PEER_FAILED": ConnectionResetError,
    "PROTOCOL": ConnectionError, "QUOTA": ConnectionError, "REFUSED": ConnectionRefusedError,
    "REJECTED": ConnectionRefusedError, "TIMED_OUT": TimeoutError, "UNREACHABLE": ConnectionError,
    "UNSUPPORTED": NotImplementedError, "VERSION": ConnectionError,
}


def _class_of(status: int, name: str, sentence: str, hint: str) -> type[WeftError]:
    short = name.removeprefix("WEFT_ERR_")
    also = _ALSO.get(short)
    bases = (WeftError, also) if also else (WeftError,)
    title = "".join(part.capitalize() for part in short.split("_")) + "Error"
    members: dict[str, object] = {"__doc__": sentence, "__module__": __name__, "status": status, "name": name, "hint": hint}
    if also is MemoryError:  # its own __new__ refuses a class of two bases, which unpickling by tblib (Dask) asks for
        members["__new__"] = lambda cls, *args, **kwds: BaseException.__new__(cls, *args)
    return type(title, bases, members)


_classes: dict[int, type[WeftError]] = {row[0]: _class_of(*row) for row in _core.statuses if row[0] < 0}
globals().update({cls.__name__: cls for cls in _classes.values()})
__all__ = ["WeftError", *(cls.__name__ for cls in _classes.values())]


def make(status: int, text: str) -> WeftError:
    """The exception of a status, with the library's description as its text."""
    cls = _classes.get(status)
    if cls is None:
        cls = WeftError
    return cls(text)
