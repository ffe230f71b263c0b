"""Objects as memory: the buffer protocol first, then what arrays offer in its place, of the host or of a GPU."""
from __future__ import annotations

from . import _core, errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOST, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLPack's numbers
LEGACY_STREAM = 1  # CUDA's default stream, as DLPack and the CUDA array interface number it


def from_exchange(source: Any) -> Any:
    """The memory of an object whose type has DLPack's C exchange API, or None."""
    found = _core.exchange(source)
    if found is None:
        return None
    block, stream = found
    if block.__dlpack_device__()[0] == CUDA and block.nbytes:
        wait_for_stream(stream or LEGACY_STREAM, block.address)
    return block


def from_dlpack(source: Any) -> _core.Block:
    """The memory of an object with __dlpack__, as a Block that keeps it alive; no copy."""
    device, _ = source.__dlpack_device__()
    if device not in (HOST, CUDA, CUDA_HOST, CUDA_MANAGED):
        raise errors.UnsupportedError("memory of a device that is neither the host nor a CUDA GPU")
    stream = LEGACY_STREAM if device == CUDA else None
    try:
        capsule = source.__dlpack__(stream=stream, max_version=(1, 3), copy=False)
    except TypeError:  # made before these keywords were
        capsule = source.__dlpack__(stream=stream) if stream else source.__dlpack__()
    block = _core.from_dlpack(capsule)
    if stream and block.nbytes:
        wait_for_stream(stream, block.address)
    return block


def from_array_interface(source: Any) -> _core.Block:
    """The host memory of an object with __array_interface__ (version 3), as a Block."""
    interface = source.__array_interface__
    if not isinstance(interface.get("data"), tuple):
        raise TypeError("an __array_interface__ without an address")
    return _from_interface(source, interface, HOST)


def from_cuda_array_interface(source: Any) -> _core.Block:
    """The memory of an object with __cuda_array_interface__ (versions 0 to 3), once its stream's work is done."""
    interface = source.__cuda_array_interface__
    block = _from_interface(source, interface, CUDA)
    if interface.get("stream") is not None and block.nbytes:
        wait_for_stream(interface["stream"], block.address)
    return block


def _from_interface(source: Any, interface: dict[str, Any], device: int) -> _core.Block:
    if interface.get("mask") is not None:
        raise errors.UnsupportedError("an array with a mask")
    _refuse_objects(source, interface)
    order, kind, size = interface["typestr"][0], interface["typestr"][1], interface["typestr"][2:].partition("[")[0]
    itemsize = int(size) * (4 if kind == "U" else 1)  # characters of 4 bytes; "M8[s]" has a unit
    format = _FORMATS.get(kind + size) or ("%ds" % itemsize if itemsize > 1 else "B")
    if order == ">" and itemsize > 1:  # not this machine's order
        format = order + format
    address, readonly = interface["data"]
    strides = interface.get("strides")
    return _core.block_around(address or 0, tuple(interface["shape"]), None if strides is None else tuple(strides), format,
                              itemsize, bool(readonly), source, device)


def _refuse_objects(source: Any, interface: dict[str, Any]) -> None:
    """As the extension does for buffers: objects of Python are addresses of this process."""
    if interface["typestr"][1] == "O" or _has_objects(interface.get("descr") or ()):
        raise TypeError("the elements of this %s are Python objects, whose memory is addresses of this process: send them by "
                        "send_obj, or bcast_obj of a team" % type(source).__name__)


def _has_objects(fields: Any) -> bool:
    """Of a `descr`: its fields are (name, type, …), and a type is a typestr or a list of fields."""
    return any(_has_objects(field[1]) if isinstance(field[1], list) else field[1][1:2] == "O" for field in fields)


_FORMATS = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "f2": "e", "f4": "f",
            "f8": "d", "c8": "Zf", "c16": "Zd", "b1": "?"}

_driver: Any = None


def _loaded_driver() -> Any:
    """The CUDA driver that the program has loaded; it is not loaded here."""
    global _driver
    if _driver is None:
        import ctypes
        import os

        try:
            _driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            raise errors.UnsupportedError("a CUDA stream, and no CUDA driver is loaded") from None
    return _driver


def wait_for_stream(stream: int, address: int) -> None:
    """Waits for the work of a CUDA stream on memory at an address, in the context of this memory: the library copies on a
    stream of its own."""
    import ctypes

    driver = _loaded_driver()
    context, before = ctypes.c_void_p(), ctypes.c_void_p()
    wanted = ctypes.c_int(1)  # CU_POINTER_ATTRIBUTE_CONTEXT
    driver.cuPointerGetAttributes(1, ctypes.byref(wanted), (ctypes.c_void_p * 1)(ctypes.addressof(context)),
                                  ctypes.c_uint64(address))
    pushed = context.value is not None and driver.cuCtxPushCurrent_v2(context) == 0
    status = driver.cuStreamSynchronize(ctypes.c_void_p(stream))
    if pushed:
        driver.cuCtxPopCurrent_v2(ctypes.byref(before))
    if status:
        raise errors.IoError("cuStreamSynchronize: CUDA's error %d" % status)


def find_buffer(source: Any, writes: bool) -> Any:
    """What stands for an object without the buffer protocol: a Block of its memory. TypeError if it offers no memory."""
    block = from_exchange(source)
    if block is not None:
        return block
    if hasattr(source, "__cuda_array_interface__"):
        return from_cuda_array_interface(source)
    if hasattr(source, "__dlpack__"):
        return from_dlpack(source)
    if hasattr(source, "__array_interface__"):
        return from_array_interface(source)
    if isinstance(source, str):
        raise TypeError("a str is no memory: send its bytes (text.encode()), or the object by send_obj")
    raise TypeError("%s has no buffer protocol, __dlpack__, __array_interface__ or __cuda_array_interface__; send_obj sends "
                    "any object that pickle can" % type(source).__name__)


def host_view(source: Any, writes: bool) -> memoryview:
    """A view of an object's host memory, with its shape and strides: of an array, too, to whose elements the buffer protocol
    gives no format (dates of numpy). TypeError if it offers no memory, or if its elements are objects."""
    try:
        view = memoryview(source)
    except TypeError:
        return memoryview(find_buffer(source, writes))
    except ValueError:
        if not hasattr(source, "__array_interface__"):
            raise
        block: Any = from_array_interface(source)
        return memoryview(block)
    if "O" in view.format:
        _core.check_elements(view)
    return view


def device_block(source: Any) -> Any:
    """A Block of an object's GPU memory; None for host memory, and for objects with the buffer protocol."""
    if isinstance(source, _core.Block):
        block = source
    elif hasattr(source, "__cuda_array_interface__"):
        block = from_cuda_array_interface(source)
    elif hasattr(source, "__dlpack_device__") and source.__dlpack_device__()[0] in (CUDA, CUDA_MANAGED):
        block = find_buffer(source, False)
    else:
        return None
    return block if block.__dlpack_device__()[0] not in (HOST, CUDA_HOST) else None
