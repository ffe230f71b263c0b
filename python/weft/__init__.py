"""Weft: messages, one-sided access to remote memory and collectives, for programs with an event loop.

    async def main():
        async with weft.Worker() as worker:
            ep = await worker.connect(("127.0.0.1", 7000))
            await ep.send(b"hello")

docs/python.md is the contract.
"""
from . import _arrays, _core, errors
from ._endpoint import Endpoint, Listener
from ._worker import Context, Worker
from .errors import *  # noqa: F401,F403

_core.setup(errors.make, _arrays.find_buffer)

Block = _core.Block
Layout = _core.Layout
Request = _core.Request
__version__ = _core.version


TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import graph, log, rma, streams, teams, view


def __getattr__(name: str) -> object:
    """What not every program needs is imported when it is first named."""
    if name in ("graph", "log", "rma", "streams", "teams", "view"):
        import importlib

        return importlib.import_module("." + name, __name__)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


__all__ = ["Block", "Context", "Endpoint", "Layout", "Listener", "Request", "Worker", "__version__", *errors.__all__]
