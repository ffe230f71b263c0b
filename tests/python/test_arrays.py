"""Arrays as buffers: the buffer protocol, DLPack both ways, __array_interface__, strides."""
import asyncio
import ctypes
import gc
import itertools
import os
import random
import subprocess
import sys
import unittest
import weakref

import weft
from pair import Case, pair
from weft import _core, teams
from weft._arrays import from_array_interface, from_dlpack
from weft.rma import Remote

try:
    import numpy
except ImportError:
    numpy = None


class OnlyInterface:
    """An array that offers __array_interface__ alone."""

    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


class OnlyDlpack:
    """An array that offers DLPack alone, as made before versions."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Blocks(unittest.TestCase):
    def test_a_block_is_memory_that_dlpack_gives_and_takes(self):
        block = weft.Block(100)
        with memoryview(block) as view:
            view[:3] = b"abc"
        self.assertEqual(block.__dlpack_device__(), (1, 0))
        for keywords in ({}, {"max_version": (1, 1)}, {"stream": None, "copy": False}):
            capsule = block.__dlpack__(**keywords)
            taken = memoryview(_core.from_dlpack(capsule))
            self.assertEqual((taken.shape, taken.strides, taken.format, taken.itemsize, taken.readonly),
                             ((100,), (1,), "B", 1, False))
            self.assertEqual(bytes(taken[:3]), b"abc")
            with self.assertRaises(BufferError):
                _core.from_dlpack(capsule)  # used
        with self.assertRaises(BufferError):
            block.__dlpack__(copy=True)
        with self.assertRaises(ValueError):
            weft.Block(-1)

    def test_the_owner_lives_as_long_as_what_was_taken(self):
        block = weft.Block(16)
        taken = from_dlpack(block)
        address = block.address
        del block
        gc.collect()
        again = [weft.Block(16) for _ in range(50)]
        self.assertNotIn(address, [one.address for one in again])
        self.assertEqual(taken.address, address)
        unused = taken.__dlpack__()
        del unused, taken

    def test_an_exception_outlives_what_was_taken(self):
        def raise_beside(capsule):
            return [_core.from_dlpack(capsule), 1 / 0]

        for keywords in ({}, {"max_version": (1, 1)}):
            with self.assertRaises(ZeroDivisionError):
                raise_beside(weft.Block(16).__dlpack__(**keywords))

    def test_memory_of_a_gpu_and_no_memory_are_refused(self):
        class Gpu:
            __cuda_array_interface__ = {"shape": (1,), "typestr": "|u1", "data": (4096, False), "version": 3}

        with self.assertRaises(weft.UnsupportedError):
            _core.pack(Gpu())
        with self.assertRaises(TypeError):
            _core.pack(object())

    def test_an_array_is_of_its_own_type_and_size(self):
        memory = (ctypes.c_char * 64)()

        class Array:
            def __init__(self, typestr, **more):
                self.__array_interface__ = {"shape": (2,), "typestr": typestr, "data": (ctypes.addressof(memory), False),
                                            "version": 3, **more}

        for typestr, nbytes, format in (("<f8", 16, "d"), ("<U4", 32, "16s"), ("<M8[s]", 16, "8s"), ("|V12", 24, "12s"),
                                        (">f8", 16, ">d"), ("|S1", 2, "B"), (">u1", 2, "B")):
            block = from_array_interface(Array(typestr))
            self.assertEqual((block.nbytes, block.format), (nbytes, format), typestr)
            self.assertEqual(block.__array_interface__["typestr"], "|V%d" % (nbytes // 2) if format[-1] == "s" or
                             format[0] == ">" else "|u1" if format == "B" else typestr)
            if len(format) > 1:
                with self.assertRaises(BufferError):
                    block.__dlpack__()
        with self.assertRaises(weft.UnsupportedError):
            from_array_interface(Array("<f8", mask=Array("|b1")))
        with self.assertRaises(ValueError):
            from_array_interface(Array("<f8", strides=(8, 8)))
        self.assertEqual(memoryview(from_array_interface(Array("<f8", strides=[16]))).strides, (16,))

    def test_a_view_in_order_is_of_memory_in_order(self):
        memory = bytearray(8)
        block = _core.block_around(ctypes.addressof(ctypes.c_char.from_buffer(memory)), (4,), (2,), "B", 1, False, memory)
        get, view = ctypes.pythonapi.PyObject_GetBuffer, ctypes.create_string_buffer(200)
        get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
        for flags in (0x8, 0x38):  # PyBUF_ND, PyBUF_C_CONTIGUOUS
            with self.assertRaises(BufferError):
                get(block, view, flags)
        get(block, view, 0x18)
        ctypes.pythonapi.PyBuffer_Release(view)

    def test_a_consumer_gets_the_order_that_it_asks_for(self):
        get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
        get.argtypes, release.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int], [ctypes.c_void_p]
        release.restype = None
        strides, c, f, any_order = 0x18, 0x38, 0x58, 0x98  # PyBUF_STRIDES, PyBUF_C_CONTIGUOUS, and so on
        memory = bytearray(64)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for of, takes in (((8, 1), (strides, c, any_order)), ((1, 8), (strides, f, any_order)), ((16, 2), (strides,))):
            block = _core.block_around(address, (4, 8) if of != (1, 8) else (8, 8), of, "B", 1, False, memory)
            for flags in (strides, c, f, any_order):
                view = ctypes.create_string_buffer(256)  # a Py_buffer has less
                with self.subTest(strides=of, flags=flags):
                    if flags in takes:
                        get(block, view, flags)
                        release(view)
                    else:
                        with self.assertRaises(BufferError):
                            get(block, view, flags)

    def test_a_version_that_is_no_number_is_refused(self):
        with self.assertRaises(TypeError):
            weft.Block(8).__dlpack__(max_version=("1", 0))

    def test_a_consumer_may_outlive_the_interpreter(self):
        said = subprocess.run([sys.executable, "-c", """
import ctypes, weft
from test_exchange import OUT, Versioned, api_of
out, exits = ctypes.POINTER(Versioned)(), ctypes.CDLL(None).__cxa_atexit
assert api_of(weft.Block).from_object(weft.Block(24), ctypes.byref(out)) == 0
exits.argtypes = [ctypes.c_void_p] * 3
exits(ctypes.cast(out.contents.deleter, ctypes.c_void_p), ctypes.cast(out, ctypes.c_void_p), None)
"""], capture_output=True, text=True, cwd=os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual((said.returncode, said.stderr), (0, ""))

    def test_elements_of_no_bytes_are_no_tensor(self):
        block = _core.block_around(0, (1,), None, "B", 0, True, b"")
        with self.assertRaises(BufferError):
            block.__dlpack__()


@unittest.skipIf(numpy is None, "no numpy here")
class Numpy(Case):
    def shapes(self, seed):
        """Arrays of many shapes, strides and types, with what they hold."""
        draw = random.Random(seed)
        for _ in range(150):
            shape = tuple(draw.choice((0, 1, 2, 3, 7)) for _ in range(draw.randint(0, 4)))
            dtype = draw.choice(("u1", "i2", "f4", "c16", "S3", "M8[s]"))
            base = numpy.arange(int(numpy.prod(shape)) or 1).astype(dtype if dtype[0] not in "SM" else "i8")
            base = base.astype(dtype)[:int(numpy.prod(shape))].reshape(shape)
            big = numpy.zeros(tuple(2 * n + 1 for n in shape), dtype)
            cut = big[tuple(slice(draw.randint(0, 1), None, draw.choice((1, 2)))
                            for _ in shape) + (...,)][tuple(slice(0, n) for n in shape) + (...,)]
            cut[...] = base
            yield numpy.transpose(cut, draw.sample(range(cut.ndim), cut.ndim))
            yield cut[::-1] if cut.ndim else cut

    def test_a_strided_array_is_packed_in_the_order_of_its_elements(self):
        for array in itertools.chain(self.shapes(1), self.shapes(2)):
            if array.dtype.kind == "M":
                array = array.view("i8")
            self.assertEqual(_core.pack(array), array.tobytes(), (array.shape, array.strides))
        self.assertEqual(_core.pack(numpy.broadcast_to(numpy.arange(3, dtype="u1"), (2, 3))), b"\0\1\2\0\1\2")

    async def test_a_strided_array_arrives_in_another(self):
        async with pair() as (client, server):
            for array in self.shapes(3):
                if array.dtype.kind == "M":
                    continue
                room = numpy.zeros(array.shape[::-1] + (2,), array.dtype)[..., 0].transpose()
                await client.send(array)
                self.assertEqual(await server.recv(room), array.nbytes)
                self.assertTrue((room == array).all(), (array.shape, array.strides))

    async def test_a_large_strided_array_arrives(self):
        async with pair() as (client, server):
            array = numpy.arange(1 << 21, dtype="i4").reshape(1 << 10, 1 << 11)
            room = numpy.zeros((1 << 10, 1 << 10), "i4")
            for source in (array[:, ::2], array[:, 1 << 10:][::-1], array.T[:1 << 10, :]):
                room[...] = 0
                await asyncio.gather(client.send(source), server.recv(room))
                self.assertTrue((room == source).all())

    async def test_received_memory_is_an_array_that_keeps_it_alive(self):
        async with pair() as (client, server):
            await client.am_post(numpy.arange(1000, dtype="f8"))
            block = await server.am_recv()
            arrays = [numpy.frombuffer(block, "f8"), numpy.from_dlpack(block).view("f8"),
                      numpy.asarray(memoryview(block)).view("f8")]
            del block
            gc.collect()
            for array in arrays:
                self.assertEqual(array.sum(), 999 * 500)
                self.assertEqual(array.ctypes.data % 64, 0)

    async def test_objects_with_arrays_arrive_without_a_copy_of_them(self):
        async with pair() as (client, server):
            value = {"x": numpy.arange(1 << 18), "y": [numpy.eye(3, dtype="f4"), "text"]}
            _, got = await asyncio.gather(client.send_obj(value), server.recv_obj())
            self.assertTrue((got["x"] == value["x"]).all() and (got["y"][0] == value["y"][0]).all())
            self.assertFalse(got["x"].flags.owndata)

    async def test_an_object_that_offers_one_protocol_alone_is_enough(self):
        async with pair() as (client, server):
            array = numpy.arange(24, dtype="i4").reshape(4, 6)
            for source in (OnlyInterface(array), OnlyDlpack(array), OnlyInterface(array[::2, ::3]), OnlyDlpack(array.T)):
                room = numpy.zeros_like(source.array, order="C")
                await client.send(source)
                await server.recv(OnlyInterface(room) if isinstance(source, OnlyInterface) else OnlyDlpack(room))
                self.assertTrue((room == source.array).all())

    def test_read_only_memory_is_not_written_and_not_given_without_a_version(self):
        fixed = numpy.arange(3)
        fixed.flags.writeable = False
        block = from_array_interface(OnlyInterface(fixed))
        self.assertTrue(memoryview(block).readonly)
        with self.assertRaises(BufferError):
            block.__dlpack__()
        self.assertTrue(memoryview(_core.from_dlpack(block.__dlpack__(max_version=(1, 0)))).readonly)

    async def test_arrays_of_objects_are_refused_wherever_an_array_is_taken(self):
        plain = numpy.array([1, "a"], object)
        record = numpy.zeros(2, [("n", "i4"), ("inner", [("value", object)])])
        arrays = {"plain": plain, "record": record, "strided": numpy.zeros(4, object)[::2],
                  "with a date": numpy.zeros(2, [("day", "M8[D]"), ("value", object)]),
                  "of ctypes": (ctypes.py_object * 2)(1, 2), "view": memoryview(plain), "interface": OnlyInterface(plain),
                  "record's interface": OnlyInterface(record), "no dimension": numpy.array(None, object)}
        async with pair() as (client, server):
            worker, ep = client.worker, client
            remote = Remote(ep, server.worker.alloc(4096).key())
            team = await teams.create(worker, exchange="self")
            calls = {"send": ep.send, "recv": ep.recv, "send_tag": lambda array: ep.send_tag(array, 1),
                     "recv of the worker": lambda array: worker.recv(array, 1), "am": lambda array: ep.am(5, array),
                     "am_post": ep.am_post, "send_frames": lambda array: ep.send_frames([b"", array]),
                     "stream_send": ep.stream_send, "stream_recv": ep.stream_recv, "put": remote.put, "get": remote.get,
                     "bcast": team.bcast, "bcast of bytes": lambda array: team.bcast(array, dtype="uint8"),
                     "allgather": team.allgather}
            for kind, array in arrays.items():
                for name, call in calls.items():
                    with self.subTest(name, array=kind), self.assertRaisesRegex(TypeError, "send_obj"):
                        await call(array)
                for name, call in {"pack": _core.pack, "register": worker.register}.items():
                    if name == "register" and kind == "strided":  # which no region may be
                        continue
                    with self.subTest(name, array=kind), self.assertRaisesRegex(TypeError, "send_obj"):
                        call(array)
            with self.assertRaisesRegex(TypeError, "send_obj"):
                await ep.send([b"x", plain])
            await team.close()

    async def test_names_of_fields_are_no_types_of_elements(self):
        array = numpy.ones(3, [("O", "i4"), ("xOx", [("O2", "f4")])])
        room = numpy.zeros_like(array)
        async with pair() as (client, server):
            await client.send(array)
            await server.recv(room)
            self.assertTrue((room == array).all())

    async def test_dates_are_bytes_to_messages_frames_and_collectives(self):
        dates = numpy.array(["2020-01-01", "1999-12-31", "1970-01-01", "2038-01-19"], "M8[D]")
        async with pair() as (client, server):
            for array in (dates, dates[::2], OnlyInterface(dates)):
                await client.send_frames([array, b"end"])
                got, end = await server.recv_frames()
                self.assertTrue((numpy.frombuffer(got, "M8[D]") == getattr(array, "array", array)).all())
                self.assertEqual(end, b"end")
            room = numpy.zeros(2, "M8[D]")
            await client.send(dates[::2])
            await server.recv(room)
            self.assertTrue((room == dates[::2]).all())
            team = await teams.create(client.worker, exchange="self")
            out = numpy.zeros_like(dates)
            await team.allreduce(dates, out, op="max", dtype="int64")
            self.assertTrue((out == dates).all())
            with self.assertRaisesRegex(weft.UnsupportedError, "dtype="):
                await team.bcast(dates)
            await team.close()

    async def test_a_receive_into_memory_that_may_not_be_written_says_so(self):
        fixed = numpy.zeros(4)
        fixed.flags.writeable = False
        async with pair() as (client, server):
            for room in (fixed, fixed[::2], numpy.broadcast_to(numpy.zeros(1), (3,)), b"1234", memoryview(b"1234")[::2]):
                with self.assertRaisesRegex((ValueError, BufferError), "read-only|writable"):
                    await server.recv(room)

    def test_a_region_is_an_array(self):
        with weft.Worker() as worker:
            region = worker.alloc(4096)
            array = numpy.frombuffer(region, "u4")
            array[:] = 7
            self.assertEqual(bytes(memoryview(region)[:4]), b"\7\0\0\0")
            self.assertEqual(numpy.from_dlpack(region)[4], 7)
            with self.assertRaises(BufferError):
                region.post_release()
            del array
            gc.collect()


if __name__ == "__main__":
    unittest.main()
