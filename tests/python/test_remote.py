"""One-sided operations, and streams as asyncio's."""
import asyncio
import errno
import io
import os
import pickle
import queue
import struct
import sys
import threading
import unittest

import weft
import weft.teams
from pair import Case, Index, pair
from weft.rma import Remote, RemoteIO, release, revoke
from weft.streams import EndpointTransport, open_stream


class OneSided(Case):
    async def test_put_get_and_atomics_on_allocated_and_registered_memory(self):
        for scheme in ("tcp", "shm"):
            async with pair(scheme=scheme) as (client, server):
                backing = bytearray(4096)
                for region in (server.worker.alloc(len=4096, expose=True), server.worker.register(backing, rights=7)):
                    remote = Remote(client, pickle.loads(pickle.dumps(region.key())))
                    self.assertEqual(len(remote), 4096)
                    said = remote.describe()
                    self.assertEqual((said["len"], said["rights"], said["status"]), (4096, 7, 0))
                    self.assertTrue(said["put"] and said["get"] and said["atomic"])
                    await remote.put(b"written", 100)
                    await remote.flush()
                    with memoryview(region) as view:
                        self.assertEqual(bytes(view[100:107]), b"written")
                    got = bytearray(7)
                    await remote.get(got, 100)
                    self.assertEqual(got, b"written")
                    self.assertEqual(await remote.atomic("add", 5, 8), 0)
                    self.assertEqual(await remote.atomic("add", Index(-2), 8), 5)
                    self.assertEqual(await remote.atomic("cswap", 9, 8, compare=3), 3)
                    self.assertEqual(await remote.atomic("swap", 1 << 31, 8, size=4), 9)
                    self.assertIsNone(await remote.atomic("xor", 1, 8, fetch=False))
                    await remote.flush()
                    await remote.get(word := bytearray(8), 8)
                    self.assertEqual(struct.unpack("<Q", word)[0], 1 << 31 | 1)
                    del remote
                    await release(region)
                self.assertEqual(backing[100:107], b"written")

    async def test_a_comparison_is_of_cswap_and_of_nothing_else(self):
        async with pair() as (client, server):
            region = server.worker.alloc(64)
            remote = Remote(client, region.key())
            with self.assertRaisesRegex(weft.InvalidParamError, "'cswap' needs `compare`"):
                await remote.atomic("cswap", 1)
            with self.assertRaisesRegex(weft.InvalidParamError, "'add' takes no `compare`"):
                await remote.atomic("add", 1, compare=0)
            self.assertEqual(await remote.atomic("cswap", 1, compare=0), 0)

    async def test_a_remote_is_of_an_endpoint(self):
        async with pair() as (_, server):
            with self.assertRaisesRegex(TypeError, "takes an endpoint"):
                Remote(server.worker, server.worker.alloc(64).key())

    async def test_an_offset_is_a_number_and_no_remainder_of_one(self):
        async with pair() as (client, server):
            region = server.worker.alloc(64)
            remote = Remote(client, region.key())
            for offset in (1 << 64, 8 - (1 << 64), -(1 << 63), 1 << 80, 64, -8):
                with self.assertRaises(weft.InvalidParamError):
                    await remote.put(b"12345678", offset, remote=True)
                with self.assertRaises(weft.InvalidParamError):
                    await remote.atomic("add", 1, offset)
            await remote.put(b"12345678", 8, remote=True)
            self.assertIsNone(client.post_put(b"abcdefgh", Index(remote._key.base + 16), remote._key))
            await remote.flush()
            self.assertEqual(bytes(memoryview(region)[:24]), bytes(8) + b"12345678abcdefgh")

    async def test_large_transfers_and_strided_ones_are_whole(self):
        async with pair() as (client, server):
            region = server.worker.alloc(8 << 20)
            remote = Remote(client, region.key())
            data = os.urandom(8 << 20)
            await remote.put(data, remote=True)
            got = bytearray(16 << 20)
            await remote.get(memoryview(got)[::2])
            self.assertTrue(got[::2] == data)

    async def test_what_is_posted_after_a_fence_is_performed_after_it(self):
        size = 1 << 20
        for scheme in ("tcp", "shm"):
            async with pair(scheme=scheme) as (client, server):
                region = server.worker.alloc(size + 8)
                remote = Remote(client, region.key())
                for turn, order in enumerate((client.fence, client.worker.fence) * 4, 1):
                    written = asyncio.ensure_future(remote.put(bytes([turn]) * size))
                    await asyncio.sleep(0)  # the put is posted
                    order()
                    raised = asyncio.ensure_future(remote.atomic("add", 1, size, fetch=False))
                    while True:
                        with memoryview(region) as view:
                            if view[size] == turn:
                                self.assertTrue(bytes(view[:size]) == bytes([turn]) * size)
                                break
                        await asyncio.sleep(0)
                    await asyncio.gather(written, raised)
                del remote
                await client.close()
                with self.assertRaises(weft.ClosedError):
                    client.fence()

    async def test_a_range_or_a_right_that_is_not_there_is_refused(self):
        async with pair() as (client, server):
            region = server.worker.alloc(64, rights=weft.rma.READ)
            remote = Remote(client, region.key())
            with self.assertRaises(weft.InvalidParamError):
                await remote.get(bytearray(65))
            with self.assertRaises(weft.InvalidParamError):
                await remote.put(b"x")
            with self.assertRaises(weft.AddressError):
                Remote(client, b"no key")
            with self.assertRaisesRegex(weft.InvalidParamError, "'inc': not one of add, and"):
                await remote.atomic("inc", 1)
            for call in remote.put, remote.get:
                with self.assertRaises(TypeError):
                    await call(None)

    async def test_a_revoked_key_is_useless_and_a_new_one_works(self):
        async with pair() as (client, server):
            region = server.worker.alloc(64)
            remote = Remote(client, region.key())
            await remote.put(b"x", remote=True)
            await revoke(region)
            with self.assertRaises(weft.RevokedError):
                await remote.get(bytearray(1))
                await remote.flush()
            await Remote(client, region.key()).get(got := bytearray(1))
            self.assertEqual(got, b"x")

    async def test_memory_in_use_is_not_released_under_its_views(self):
        async with pair() as (client, server):
            region = server.worker.alloc(64)
            view = memoryview(region)
            with self.assertRaises(BufferError):
                await release(region)
            with self.assertRaises(BufferError):
                await server.worker.close()
            view.release()
            await release(region)
            with self.assertRaises(weft.ClosedError):
                memoryview(region)

    async def test_memory_that_is_about_to_go_is_given_to_nobody(self):
        async with pair(scheme="shm") as (client, server):
            region = server.worker.alloc(64)
            remote = Remote(client, region.key())
            await remote.put(b"x", remote=True)
            while not region.describe()["n_peers"]:  # until it has learned that the peer has it mapped
                await asyncio.sleep(0)
            request = region.post_release()
            self.assertIsInstance(request, weft.Request)
            with self.assertRaises(weft.ClosedError):
                memoryview(region)
            await server.worker.complete(request)
            del remote
        worker = weft.Worker(transports="self")
        region = worker.alloc(64)
        request = worker.post_close()
        self.assertFalse(worker.closed)
        with self.assertRaises(weft.ClosedError):
            memoryview(region)
        while not worker.closed:
            worker.progress()

    def test_a_length_that_cannot_be_is_refused(self):
        with weft.Worker(transports="self") as worker:
            for length in (-1, 0, -sys.maxsize - 1):
                with self.assertRaises(weft.InvalidParamError):
                    worker.alloc(length)

    async def test_registered_memory_is_held_until_no_peer_has_it(self):
        async with pair() as (client, server):
            backing = bytearray(64)
            region = server.worker.register(backing)
            remote = Remote(client, region.key())
            await remote.put(b"x", remote=True)
            del region  # released by its last reference
            with self.assertRaises(weft.WeftError):
                await remote.get(bytearray(1))
                await remote.flush()
            await client.flush()
            backing.extend(b"free")

    def test_a_region_is_a_file(self):
        at, ended = queue.Queue(), threading.Event()

        async def own():
            async with weft.Worker() as worker:
                listener, region = worker.listen(lambda ep: kept.append(ep)), worker.alloc(1000)
                at.put((listener.uri, region.key()))
                await asyncio.get_running_loop().run_in_executor(None, ended.wait)

        kept = []
        owner = threading.Thread(target=lambda: asyncio.run(own()))
        owner.start()
        self.addCleanup(owner.join)
        self.addCleanup(ended.set)
        with weft.Worker() as worker:
            uri, key = at.get()
            file = RemoteIO(worker.run(worker.connect(uri)), key)
            self.assertEqual(file.write(b"0123456789"), 10)
            self.assertEqual(file.seek(-5, os.SEEK_CUR), 5)
            self.assertEqual(file.read(3), b"567")
            file.seek(0, os.SEEK_END)
            self.assertEqual((file.tell(), file.read(1), file.write(b"")), (1000, b"", 0))
            file.seek(-2, os.SEEK_END)
            self.assertEqual(file.write(b"xyz"), 2)
            with self.assertRaises(OSError) as raised:  # not 0, after which io.BufferedWriter would try for ever
                file.write(b"z")
            self.assertEqual(raised.exception.errno, errno.ENOSPC)
            for offset, whence in ((-1, os.SEEK_SET), (0, 9)):
                with self.assertRaises(ValueError):
                    file.seek(offset, whence)
            buffered = io.BufferedWriter(RemoteIO(file._remote.ep, key))
            buffered.seek(990)
            self.assertEqual(buffered.write(bytes(20)), 20)
            with self.assertRaises(OSError):
                buffered.close()
            with io.BufferedReader(RemoteIO(file._remote.ep, key)) as reader:
                self.assertEqual((reader.read(4), reader.peek(1)[:1]), (b"0123", b"4"))
            with RemoteIO(file._remote.ep, key) as closed:
                pass
            for call in (lambda: closed.read(1), lambda: closed.write(b"x"), lambda: closed.seek(0), closed.tell, closed.flush):
                with self.assertRaises(ValueError):
                    call()
            self.assertEqual(file.seek(0), 0)  # which another file's end leaves open


class Streams(Case):
    async def test_an_endpoint_of_a_team_has_no_pair(self):
        async with weft.Worker() as worker:
            team = await weft.teams.create(worker, "self")
            with self.assertRaises(weft.UnsupportedError):
                await open_stream(team.endpoint(0))
            await team.close()

    async def test_reader_and_writer_carry_bytes_both_ways_and_end(self):
        async with pair() as (client, server):
            (reader, writer), (far_reader, far_writer) = await open_stream(client), await open_stream(server)
            writer.write(b"line one\nline two\n")
            self.assertEqual(await far_reader.readline(), b"line one\n")
            far_writer.write(b"answer")
            self.assertEqual(await reader.readexactly(6), b"answer")
            writer.close()
            self.assertEqual(await far_reader.read(), b"line two\n")
            await writer.wait_closed()
            far_writer.close()

    async def test_a_second_pair_is_refused(self):
        async with pair() as (client, server):
            reader, writer = await open_stream(client)
            with self.assertRaises(weft.BusyError):
                await open_stream(client)
            far_reader, far_writer = await open_stream(server)
            far_writer.write(b"to the first")
            self.assertEqual(await reader.readexactly(12), b"to the first")
            for each in writer, far_writer:
                each.close()

    async def test_a_slow_reader_stops_the_writer(self):
        async with pair(settings={"stream.window": "64k"}) as (client, server):
            (_, writer), (reader, _) = await open_stream(client), await open_stream(server)
            total = 8 << 20
            most = 0

            async def write():
                nonlocal most
                for _ in range(total >> 16):
                    writer.write(bytes(1 << 16))
                    most = max(most, writer.transport.get_write_buffer_size())
                    await writer.drain()

            writing = asyncio.ensure_future(write())
            got = 0
            while got < total:
                got += len(await reader.read(1 << 16))
            await writing
            self.assertGreater(most, 0)
            self.assertLessEqual(most, 512 << 10)

    async def test_a_writers_limits_are_the_programs(self):
        async with pair(settings={"stream.window": "64k"}) as (client, server):
            reader, writer = await open_stream(client)
            transport = writer.transport
            self.assertEqual(transport.get_write_buffer_limits(), (64 << 10, 256 << 10))
            for low, high, taken in ((None, 0, (0, 0)), (10, None, (10, 40)), (1, 2, (1, 2)), (None, 4 << 20, (1 << 20, 4 << 20))):
                transport.set_write_buffer_limits(high, low)
                self.assertEqual(transport.get_write_buffer_limits(), taken)
            for low, high in ((2, 1), (-1, 1)):
                with self.assertRaises(ValueError):
                    transport.set_write_buffer_limits(high, low)
            writer.write(bytes(2 << 20))
            await asyncio.wait_for(writer.drain(), 60)
            transport.set_write_buffer_limits(1 << 20)
            draining = asyncio.ensure_future(writer.drain())
            self.assertEqual(await asyncio.wait({draining}, timeout=0.05), (set(), {draining}))
            far_reader, far_writer = await open_stream(server)
            await far_reader.readexactly(2 << 20)
            await asyncio.wait_for(draining, 60)
            for each in writer, far_writer:
                each.close()

    async def test_a_writer_has_closed_when_its_bytes_have_left(self):
        async with weft.Worker(settings={"stream.window": "64k"}) as one:
            listener = one.listen()

            async def tells():
                async with weft.Worker(settings={"close.timeout": "100s"}) as two:  # all of it crosses within the close
                    reader, writer = await open_stream(await two.connect(listener.uri))
                    writer.write(bytes(8 << 20))
                    writer.close()
                    await writer.wait_closed()

            telling = asyncio.ensure_future(tells())
            reader, writer = await open_stream(await listener.accept())
            self.assertEqual(len(await reader.read()), 8 << 20)
            await telling
            writer.close()
            await writer.wait_closed()

    async def test_a_writer_whose_bytes_do_not_leave_says_so(self):
        async with pair(settings={"stream.window": "64k", "close.timeout": "100ms"}) as (client, server):
            reader, writer = await open_stream(client)
            writer.write(bytes(8 << 20))
            writer.close()
            with self.assertRaises(weft.TimedOutError):
                await asyncio.wait_for(writer.wait_closed(), 60)

    async def test_an_abort_ends_the_close_of_a_writer(self):
        async with pair(settings={"stream.window": "64k", "close.timeout": "100s"}) as (client, server):
            reader, writer = await open_stream(client)
            writer.write(bytes(8 << 20))
            writer.close()
            await asyncio.sleep(0.05)
            self.assertFalse(client.closed)
            writer.transport.abort()
            await asyncio.wait_for(writer.wait_closed(), 60)
            async with asyncio.timeout(60):
                while not client.closed:
                    await asyncio.sleep(0.01)

    async def test_a_writer_closes_with_its_endpoint(self):
        for abort in (False, True):
            async with pair() as (client, server):
                reader, writer = await open_stream(client)
                client.abort() if abort else await client.close()
                await asyncio.wait_for(writer.wait_closed(), 60)
            async with pair() as (client, server):
                reader, writer = await open_stream(client)
                writer.transport.abort() if abort else server.abort()
                await asyncio.wait_for(writer.wait_closed(), 60)

    async def test_what_a_protocol_raises_ends_its_connection(self):
        class Raises(asyncio.Protocol):
            def data_received(self, data):
                raise OSError(data)

            def connection_lost(self, error):
                lost.set_result(error)

        async with pair() as (client, server):
            loop = asyncio.get_running_loop()
            lost = loop.create_future()
            EndpointTransport(client, Raises(), loop)
            await server.stream_send(b"abc")
            self.assertIsInstance(await asyncio.wait_for(lost, 60), OSError)
            self.assertEqual([type(one["exception"]) for one in self.complaints], [OSError])
            self.complaints.clear()
            self.assertFalse(client.alive)

    async def test_a_reader_that_had_no_room_gets_what_came_before_the_end_of_its_peer(self):
        for scheme in ("tcp", "shm"):
            for n, size in ((5, 100000), (100, 1000)):
                async with pair(scheme=scheme) as (client, server):
                    reader, writer = await open_stream(client, limit=1000)
                    for i in range(n):
                        await server.stream_send(bytes([i]) * size)
                    await server.close()
                    async with asyncio.timeout(60):
                        while client.alive and client.error is None and writer.transport.is_reading():
                            await asyncio.sleep(0.01)
                    await asyncio.sleep(0.05)  # the end of the peer is here, too
                    self.assertEqual(await reader.read(), b"".join(bytes([i]) * size for i in range(n)))
                    await asyncio.wait_for(writer.wait_closed(), 60)

    async def test_a_worker_that_closes_ends_its_streams(self):
        for closes in (lambda worker: worker.close(), lambda worker: asyncio.sleep(0, worker.destroy())):
            one, two = weft.Worker(settings={"log.level": "none"}), weft.Worker(settings={"log.level": "none"})
            listener = one.listen()
            reader, writer = await open_stream(await two.connect(listener.uri))
            reading = asyncio.ensure_future(reader.read())
            ended = asyncio.ensure_future(writer.wait_closed())
            await asyncio.sleep(0.01)
            await closes(two)
            self.assertEqual(await asyncio.wait_for(reading, 60), b"")
            await asyncio.wait_for(ended, 60)
            await one.close()

    async def test_the_end_of_the_peer_ends_the_reader(self):
        async with pair() as (client, server):
            reader, writer = await open_stream(client)
            server.abort()
            self.assertEqual(await reader.read(), b"")


if __name__ == "__main__":
    unittest.main()
