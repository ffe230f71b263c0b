"""DLPack's C exchange API on the type, both ways, called as another extension would: by its structures."""
import ctypes
import sys
import unittest

import weft
from weft import _arrays, _core


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    pass


DELETER = ctypes.PYFUNCTYPE(None, ctypes.POINTER(Versioned))
Versioned._fields_ = [("version", Version), ("context", ctypes.c_void_p), ("deleter", DELETER), ("flags", ctypes.c_uint64),
                      ("tensor", Tensor)]
FAIL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
OUT = ctypes.POINTER(ctypes.POINTER(Versioned))


class Api(ctypes.Structure):
    _fields_ = [("version", Version), ("previous", ctypes.c_void_p),
                ("allocate", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Tensor), OUT, ctypes.c_void_p, FAIL)),
                ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, OUT)),
                ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Versioned), ctypes.POINTER(ctypes.py_object))),
                ("view_of_object", ctypes.c_void_p),
                ("work_stream", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)))]


def api_of(type):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Api.from_address(pointer(type.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


class Given(unittest.TestCase):
    def test_a_block_becomes_a_tensor_and_a_tensor_a_block(self):
        api = api_of(weft.Block)
        self.assertEqual((api.version.major, api.version.minor), (1, 3))
        block = weft.Block(24)
        memoryview(block)[:3] = b"abc"
        before, out = sys.getrefcount(block), ctypes.POINTER(Versioned)()
        self.assertEqual(api.from_object(block, ctypes.byref(out)), 0)
        tensor = out.contents.tensor
        self.assertEqual((tensor.data, tensor.device_type, tensor.ndim, tensor.bits, tensor.shape[0], tensor.strides[0]),
                         (block.address, 1, 1, 8, 24, 1))
        self.assertEqual(sys.getrefcount(block), before + 1)
        room = ctypes.py_object()
        self.assertEqual(api.to_object(out, ctypes.byref(room)), 0)
        taken = room.value
        ctypes.pythonapi.Py_DecRef(room)
        self.assertEqual(bytes(memoryview(taken)[:3]), b"abc")
        del taken
        room.value = None
        self.assertEqual(sys.getrefcount(block), before)

    def test_other_objects_are_refused(self):
        api, out = api_of(weft.Block), ctypes.POINTER(Versioned)()
        with self.assertRaises(TypeError):
            api.from_object(7, ctypes.byref(out))

    def test_it_allocates_a_shape_and_type(self):
        api, out, shape = api_of(_core.Memory), ctypes.POINTER(Versioned)(), (ctypes.c_int64 * 2)(3, 5)
        wanted = Tensor(device_type=1, ndim=2, code=4, bits=16, lanes=1, shape=shape)  # bfloat16
        said = []
        fail = FAIL(lambda context, kind, text: said.append(kind))
        self.assertEqual(api.allocate(wanted, ctypes.byref(out), None, fail), 0)
        tensor = out.contents.tensor
        self.assertEqual((tensor.code, tensor.bits, tensor.shape[:2], tensor.strides[:2], tensor.data % 64),
                         (4, 16, [3, 5], [5, 1], 0))
        out.contents.deleter(out)
        wanted.device_type = 2
        self.assertEqual((api.allocate(wanted, ctypes.byref(out), None, fail), said), (-1, [b"BufferError"]))

    def test_it_allocates_no_shape_that_memory_cannot_hold(self):
        api, out, said = api_of(weft.Block), ctypes.POINTER(Versioned)(), []
        fail = FAIL(lambda context, kind, text: said.append(kind))
        for bits, numbers in ((8, (1 << 32, 1 << 32)), (64, (1 << 31, 1 << 30)), (8, (-1, 1)), (8, (-2, -2)), (0, (2, 2))):
            wanted = Tensor(device_type=1, ndim=2, code=1, bits=bits, lanes=1, shape=(ctypes.c_int64 * 2)(*numbers))
            self.assertEqual(api.allocate(wanted, ctypes.byref(out), None, fail), -1)
        self.assertEqual(said, [b"MemoryError"] * 5)

    def test_a_tensor_that_no_memory_holds_is_refused(self):
        api, room = api_of(weft.Block), ctypes.py_object()
        memory = ctypes.create_string_buffer(16)
        for bits, numbers, error in ((8, (1 << 32, 1 << 32), ValueError), (8, (1 << 32, 1 << 31), ValueError), (0, (2, 2), BufferError)):
            tensor = Tensor(data=ctypes.addressof(memory), device_type=1, ndim=2, code=1, bits=bits, lanes=1,
                            shape=(ctypes.c_int64 * 2)(*numbers))
            given = Versioned(version=Version(1, 1), tensor=tensor)
            with self.assertRaises(error):
                api.to_object(ctypes.byref(given), ctypes.byref(room))

    def test_elements_of_less_than_a_byte_are_taken_if_they_are_padded(self):
        api, room = api_of(weft.Block), ctypes.py_object()
        memory = ctypes.create_string_buffer(8)
        for bits, lanes, flags, nbytes in ((4, 1, 0, None), (1, 1, 0, None), (6, 2, 0, None), (4, 2, 0, 8), (4, 1, 4, 8)):
            tensor = Tensor(data=ctypes.addressof(memory), device_type=1, ndim=1, code=17, bits=bits, lanes=lanes,
                            shape=(ctypes.c_int64 * 1)(8))
            given = Versioned(version=Version(1, 1), flags=flags, tensor=tensor)
            if nbytes is None:
                with self.assertRaises(BufferError):
                    api.to_object(ctypes.byref(given), ctypes.byref(room))
            else:
                self.assertEqual(api.to_object(ctypes.byref(given), ctypes.byref(room)), 0)
                self.assertEqual(memoryview(room.value).nbytes, nbytes)
                ctypes.pythonapi.Py_DecRef(room)
                room.value = None

    def test_a_type_without_a_format_is_bytes(self):
        api, room = api_of(weft.Block), ctypes.py_object()
        memory = ctypes.create_string_buffer(16)
        for code, bits, format in ((4, 16, "2s"), (2, 32, "f"), (10, 8, "1s")):  # bfloat16, float32, an 8-bit float
            tensor = Tensor(data=ctypes.addressof(memory), device_type=1, ndim=1, code=code, bits=bits, lanes=1,
                            shape=(ctypes.c_int64 * 1)(4))
            given = Versioned(version=Version(1, 1), tensor=tensor)
            self.assertEqual(api.to_object(ctypes.byref(given), ctypes.byref(room)), 0)
            self.assertEqual((room.value.format, memoryview(room.value).nbytes), (format, bits // 2))
            ctypes.pythonapi.Py_DecRef(room)
            room.value = None

    def test_host_memory_waits_for_no_stream(self):
        stream = ctypes.c_void_p(1)
        self.assertEqual(api_of(weft.Block).work_stream(1, 0, ctypes.byref(stream)), 0)
        self.assertIsNone(stream.value)


class Foreign:
    """An array whose memory is only reached by the table of its type."""

    def __init__(self, block):
        self.block = block


class Taken(unittest.TestCase):
    def setUp(self):
        ours = api_of(weft.Block)
        self.deletions = 0

        def from_object(foreign, out):
            return ours.from_object(foreign.block, out)

        self.api = Api(Version(1, 9), None, ours.allocate, type(ours.from_object)(from_object), ours.to_object, None,
                       ours.work_stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        Foreign.__dlpack_c_exchange_api__ = new(ctypes.addressof(self.api), b"dlpack_exchange_api", None)

    def tearDown(self):
        del Foreign.__dlpack_c_exchange_api__

    def test_an_object_is_taken_by_the_table_of_its_type(self):
        block = weft.Block(8)
        memoryview(block)[:] = b"12345678"
        self.assertEqual(_core.pack(Foreign(block)), b"12345678")
        before = sys.getrefcount(block)
        for _ in range(10):
            _arrays.find_buffer(Foreign(block), False)
        self.assertEqual(sys.getrefcount(block), before)

    def test_a_table_of_a_newer_major_version_is_left_for_an_older_one(self):
        newer = Api(Version(2, 0), ctypes.addressof(self.api))
        Foreign.__dlpack_c_exchange_api__ = ctypes.pythonapi.PyCapsule_New(ctypes.addressof(newer), b"dlpack_exchange_api", None)
        block = weft.Block(3)
        memoryview(block)[:] = b"123"
        self.assertEqual(_core.pack(Foreign(block)), b"123")
        newer.previous = None
        with self.assertRaises(TypeError):
            _core.pack(Foreign(weft.Block(3)))


if __name__ == "__main__":
    unittest.main()
