"""Memory of a GPU, of a double of the CUDA driver, whose memory faults when the host touches it."""
import asyncio
import ctypes
import os
import unittest

import weft
from pair import Case, pair
from weft import _arrays, _core
from weft.compat import _shared, ucp, ucxx
from weft.rma import Remote

DOUBLE = os.environ.get("WEFT_TEST_CUDA_DOUBLE", "")
gpu = None


def setUpModule():
    global gpu
    if not DOUBLE:
        raise unittest.SkipTest("no double of the CUDA driver here")
    gpu = ctypes.CDLL(DOUBLE, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    gpu.double_context_create.restype = gpu.double_alloc.restype = ctypes.c_void_p
    gpu.double_alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool]
    gpu.double_free.argtypes = [ctypes.c_void_p]
    gpu.double_write.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    gpu.double_read.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
    gpu.context = gpu.double_context_create()


class Array:
    """What CuPy's arrays are to a consumer: `data` in device memory, by the CUDA array interface."""

    def __init__(self, data=None, size=0, typestr="|u1", itemsize=1):
        self.size = size if data is None else len(data)
        self.typestr, self.itemsize = typestr, itemsize
        self.at = gpu.double_alloc(gpu.context, max(1, self.size), False)
        if data is not None:
            gpu.double_write(self.at, data, self.size)

    def __del__(self):
        gpu.double_free(self.at)

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.size // self.itemsize,), "typestr": self.typestr, "data": (self.at, False), "version": 3,
                "stream": 1, "strides": None}


class Capsule(Array):
    """The same, by DLPack alone."""

    __cuda_array_interface__ = property()

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None, max_version=None, copy=None, dl_device=None):
        self.stream = stream
        block = _core.block_around(self.at, (self.size,), None, "B", 1, False, self, 2, 0)
        return block.__dlpack__(max_version=max_version)


def bytes_of(memory):
    block = _arrays.device_block(memory)
    room = ctypes.create_string_buffer(block.nbytes + 1)
    gpu.double_read(room, block.address, block.nbytes)
    return room.raw[:-1]


DATA = bytes(range(256)) * 400  # larger than what is sent eagerly


class Device(Case):
    async def test_messages_go_from_and_to_memory_of_a_gpu(self):
        async with pair() as (client, server):
            for data in (b"few", DATA):
                for kind in (Array, Capsule):
                    for to_device in (False, True):
                        got = kind(size=len(data)) if to_device else bytearray(len(data))
                        sent, length = await asyncio.gather(client.send(kind(data)), server.recv(got))
                        self.assertEqual((sent, length), (None, len(data)))
                        self.assertEqual(bytes_of(got) if to_device else bytes(got), data)

    async def test_streams_and_remote_memory_take_it(self):
        async with pair() as (client, server):
            got = Array(size=len(DATA))
            await asyncio.gather(client.stream_send(Array(DATA)), server.stream_recv(got, all=True))
            self.assertEqual(bytes_of(got), DATA)
            region = server.worker.alloc(len(DATA))
            remote = Remote(client, region.key())
            await remote.put(Array(DATA))
            back = Array(size=len(DATA))
            await remote.get(back)
            self.assertEqual((bytes(memoryview(region)), bytes_of(back)), (DATA, DATA))
            del remote
            mine = server.worker.register(Array(DATA))
            with self.assertRaises(BufferError):
                memoryview(mine)
            await mine_get(client, mine, self)

    async def test_the_receiver_allocates_memory_of_the_senders_kind(self):
        async with pair() as (client, server):
            sends = asyncio.ensure_future(client.am_post(Array(DATA)))
            self.assertEqual(bytes(await server.am_recv()), DATA)  # no allocator for "cuda": the host's
            await sends
            server.worker.register_am_allocator(lambda size: Array(size=size), "cuda")
            sends = asyncio.ensure_future(client.am_post(Array(DATA)))
            self.assertEqual(bytes_of(await server.am_recv()), DATA)
            await sends
            await client.am_post(b"host")
            self.assertEqual(bytes(await server.am_recv()), b"host")

    async def test_a_message_for_memory_of_its_kind_alone(self):
        async with pair() as (client, server):
            for data in (b"few", DATA):
                sends = asyncio.ensure_future(client.am_post(Array(data), b"h", same_kind=True))
                with self.assertRaisesRegex(weft.UnsupportedError, "no allocator"):
                    await server.am_recv()
                await asyncio.wait([sends])
                if sends.exception() is not None:  # one that waits at its sender
                    self.assertIsInstance(sends.exception(), weft.RejectedError)
            await client.am_post(b"host", same_kind=True)
            self.assertEqual(bytes(await server.am_recv()), b"host")
            server.worker.register_am_allocator(lambda size: Array(size=size), "cuda")
            sends = asyncio.ensure_future(client.am_post([Array(DATA), Array(b"end")], b"h", same_kind=True))
            got, header = await server.am_recv_with_header()
            self.assertEqual((bytes_of(got), header), (DATA + b"end", b"h"))
            await sends

    async def test_frames_of_both_kinds_arrive_in_their_order(self):
        async with pair() as (client, server):
            frames = [b"one", Array(b"two"), b"", Array(DATA), DATA, Array(b"end")]
            sends = asyncio.ensure_future(client.send_frames(frames))
            self.assertEqual([bytes(frame) for frame in await server.recv_frames()], [b"one", b"two", b"", DATA, DATA, b"end"])
            await sends
            server.worker.register_am_allocator(lambda size: Array(size=size), "cuda")
            sends = asyncio.ensure_future(client.send_frames(frames))
            got = await server.recv_frames()
            await sends
            self.assertEqual([bytes_of(frame) if place in (1, 3, 5) else bytes(frame) for place, frame in enumerate(got)],
                             [b"one", b"two", b"", DATA, DATA, b"end"])
            self.assertEqual(got[3].__cuda_array_interface__["shape"], (len(DATA),))
            with self.assertRaises(AttributeError):
                got[3].__array_interface__

    async def test_programs_for_ucx_take_it(self):
        for module in (ucp, ucxx):
            accepted = asyncio.Queue()
            listener = module.create_listener(accepted.put)
            client = await module.create_endpoint("127.0.0.1", listener.port)
            server = await accepted.get()
            got = Array(size=len(DATA))
            await asyncio.gather(client.send(Array(DATA), tag=5), server.recv(got, tag=5))
            self.assertEqual(bytes_of(got), DATA)
            for allocator, read in ((bytearray, bytes), (lambda size: Array(size=size), bytes_of)):
                _, got = await asyncio.gather(client.send_obj(Array(DATA)), server.recv_obj(allocator=allocator))
                self.assertEqual(read(got), DATA)
            await asyncio.gather(client.am_send(Array(b"few")), asyncio.sleep(0))
            self.assertEqual(bytes(await server.am_recv()), b"few")  # no allocator for "cuda": the host's
            _shared.worker().register_am_allocator(lambda size: Array(size=size), "cuda")
            _, got = await asyncio.gather(client.am_send(Array(DATA)), server.am_recv())
            self.assertEqual(bytes_of(got), DATA)
            if module is ucxx:
                _, got = await asyncio.gather(client.am_send_iov([Array(DATA), Array(b"end")]), server.am_recv())
                self.assertEqual(bytes_of(got), DATA + b"end")
                with self.assertRaises(ValueError):
                    await client.am_send_iov([Array(DATA), b"host"])
                del _shared.worker()._allocators["cuda"]
                strict = ucxx.PythonAmSendMemoryTypePolicy.ErrorOnUnsupported
                sends = asyncio.ensure_future(client.am_send(Array(b"few"), memory_type_policy=strict))
                with self.assertRaises(ucxx.exceptions.UCXUnsupportedError):
                    await server.am_recv()
                await asyncio.wait([sends])
            await client.close()
            await server.close()
            listener.close()
            module.reset()

    async def test_collectives_take_it(self):
        async with weft.Worker() as worker:
            team = await weft.teams.create(worker, "self")
            source, out = Array(bytes(8) + b"\1" + bytes(7), typestr="<i8", itemsize=8), Array(size=16, typestr="<i8", itemsize=8)
            await team.allreduce(source, out=out)
            self.assertEqual(bytes_of(out), bytes(8) + b"\1" + bytes(7))
            with self.assertRaises(weft.UnsupportedError):
                await team.allreduce(source)
            await team.close()

    async def test_what_is_no_memory_of_a_gpu_is_refused_before_it_is_touched(self):
        held = bytearray(64)
        address = ctypes.addressof(ctypes.c_char.from_buffer(held))
        with self.assertRaises(weft.UnsupportedError):
            _core.block_around(address, (64,), None, "B", 1, False, held, 2, 0)
        block = _arrays.device_block(Array(DATA))
        with self.assertRaises(BufferError):
            memoryview(block)
        with self.assertRaises(weft.UnsupportedError):
            _core.pack(block)
        cube = _core.block_around(block.address, (2, 2, 2), (100, 40, 3), "B", 1, False, block, 2, 0)
        async with pair() as (client, server):
            with self.assertRaises(weft.UnsupportedError):
                await client.send(cube)
            rows = _core.block_around(block.address, (10, 4), (256, 1), "B", 1, False, block, 2, 0)
            got = bytearray(40)
            await client.send(rows)
            await server.recv(got)
            self.assertEqual(bytes(got), bytes(range(4)) * 10)
            self.assertEqual(_arrays.from_dlpack(rows).__dlpack_device__(), (2, 0))


async def mine_get(client, mine, case):
    remote, back = Remote(client, mine.key()), bytearray(len(DATA))
    await remote.get(back)
    case.assertEqual(bytes(back), DATA)


if __name__ == "__main__":
    unittest.main()
