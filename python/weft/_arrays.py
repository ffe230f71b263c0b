"""Objects as memory: the buffer protocol first, then what arrays offer in its place."""
from __future__ import annotations

from . import _core, errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost


def from_dlpack(source: Any) -> _core.Block:
    """The host memory of an object with __dlpack__, as a Block that keeps it alive; no copy."""
    device, _ = source.__dlpack_device__()
    if device not in HOST_DEVICES:
        raise errors.UnsupportedError("memory of a device: not supported yet")
    try:
        capsule = source.__dlpack__(stream=None, max_version=(1, 1), copy=False)
    except TypeError:  # made before these keywords were
        capsule = source.__dlpack__()
    address, shape, strides, format, itemsize, readonly, owner = _core.from_dlpack(capsule)
    return _core.block_around(address, shape, strides if len(strides) == len(shape) else None, format, itemsize, readonly, owner)


def from_array_interface(source: Any) -> _core.Block:
    """The host memory of an object with __array_interface__ (version 3), as a Block."""
    interface = source.__array_interface__
    data = interface.get("data")
    if not isinstance(data, tuple):
        raise TypeError("an __array_interface__ without an address")
    itemsize = int(interface["typestr"][2:])
    format = _FORMATS.get(interface["typestr"][1:], "B")
    return _core.block_around(data[0], tuple(interface["shape"]), interface.get("strides"), format, itemsize, bool(data[1]), source)


_FORMATS = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "f2": "e", "f4": "f",
            "f8": "d", "c8": "Zf", "c16": "Zd", "b1": "?"}


def find_buffer(source: Any, writes: bool) -> Any:
    """What has the buffer protocol in place of `source`. TypeError if it offers no memory at all."""
    if hasattr(source, "__array_interface__"):
        return from_array_interface(source)
    if hasattr(source, "__cuda_array_interface__"):
        raise errors.UnsupportedError("memory of a GPU: not supported yet")
    if hasattr(source, "__dlpack__"):
        return from_dlpack(source)
    raise TypeError("%s has no buffer protocol, __array_interface__ or __dlpack__" % type(source).__name__)
