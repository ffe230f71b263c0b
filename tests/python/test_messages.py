"""Messages of every kind between two workers on one asyncio loop."""
import array
import asyncio
import os
import pickle
import unittest

import weft
from pair import Case, Index, pair


class Tagged(Case):
    async def test_a_message_arrives_once_with_its_length(self):
        async with pair() as (client, server):
            got = bytearray(16)
            sent, length = await asyncio.gather(client.send(b"hello", 7), server.recv(got, 7))
            self.assertEqual((length, bytes(got[:5])), (5, b"hello"))

    async def test_every_size_arrives_whole_both_ways(self):
        async with pair() as (client, server):
            for size in (0, 1, 39, 41, 1024, 8193, 65536, 1 << 20, 5 << 20):
                data = bytes(i * 7 & 255 for i in range(256)) * (size // 256 + 1)
                data, got, back = data[:size], bytearray(size), bytearray(size)
                results = await asyncio.gather(client.send(data), server.recv(got), server.send(data), client.recv(back))
                self.assertEqual(results, [None, size, None, size])
                self.assertTrue(data == got == back, size)

    async def test_tags_match_and_hashed_ones_too(self):
        async with pair() as (client, server):
            for tag in (3, "name", b"bytes", 1 << 40):
                await client.send(repr(tag).encode(), tag)
            for tag in ("name", 1 << 40, 3, b"bytes"):
                got = bytearray(32)
                length = await server.recv(got, tag)
                self.assertEqual(bytes(got[:length]), repr(tag).encode())

    async def test_a_tag_may_be_a_number_that_is_no_int(self):
        async with pair() as (client, server):
            got = bytearray(2)
            await client.send(b"hi", Index(5))
            self.assertEqual(await server.recv(got, 5, deadline=20), 2)
            handled = []
            server.worker.am_handler(Index(7), lambda ep, message: handled.append(message.bytes()))
            await client.am(Index(7), b"hi")
            await client.flush()
            self.assertEqual(handled, [b"hi"])
            for number, error in ((1 << 32) + 7, weft.InvalidParamError), (-1, OverflowError), (1 << 64, OverflowError):
                with self.assertRaises(error):
                    await client.am(number, b"hi")
            await client.send_tag(b"hi", Index(6))
            self.assertEqual(await server.worker.recv(got, Index(6), Index(0xFFFFFFFF), deadline=20), (2, 6))

    async def test_a_tag_of_more_than_64_bits_is_no_other_tag(self):
        async with pair() as (client, server):
            for tag in (1 << 64, -1):
                with self.assertRaises(OverflowError):
                    await client.send_tag(b"", tag)
                with self.assertRaises(OverflowError):
                    await server.worker.recv(bytearray(), tag)
                with self.assertRaises(OverflowError):
                    server.worker.tag_probe(tag, 0)

    async def test_two_endpoints_of_one_worker_do_not_take_each_others_messages(self):
        async with weft.Worker() as one, weft.Worker() as two:
            listener = one.listen()
            a, b = await two.connect(listener.uri), await two.connect(listener.uri)
            at_a, at_b = await listener.accept(), await listener.accept()
            await b.send(b"b", 1)
            await a.send(b"a", 1)
            got = bytearray(1)
            await at_a.recv(got, 1)
            self.assertEqual(got, b"a")
            await at_b.recv(got, 1)
            self.assertEqual(got, b"b")

    async def test_a_message_that_is_too_long_is_truncated(self):
        async with pair() as (client, server):
            await client.send(b"0123456789")
            got = bytearray(4)
            with self.assertRaises(weft.TruncatedError):
                await server.recv(got)
            self.assertEqual(got, b"0123")

    async def test_a_send_that_completes_at_once_makes_no_future(self):
        async with pair() as (client, server):
            await client.send(b"first")
            made = []
            driver = client.worker._driver
            future, driver.future = driver.future, lambda: made.append(1) or future()
            for _ in range(100):
                await client.send(b"12345678")
            self.assertEqual(made, [])

    async def test_there_is_no_thread_and_no_task_of_the_library(self):
        before = set(os.listdir("/proc/self/task"))  # a thread of an earlier test may end before the comparison
        async with pair() as (client, server):
            for size in (8, 1 << 20):
                waits = asyncio.ensure_future(server.recv(bytearray(size)))
                await client.send(bytes(size))
                await waits
            self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})
            self.assertLessEqual(set(os.listdir("/proc/self/task")), before)
        self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

    async def test_completions_of_one_wakeup_are_one_callback(self):
        ended = []  # how many receives each callback of the loop has ended

        class Counted(weft.Worker):
            def progress(self, *args):
                before = sum(request.done for request in posted)
                super().progress(*args)
                ended.append(sum(request.done for request in posted) - before)

        posted = []
        async with Counted() as receiver, weft.Worker() as sender:
            listener = receiver.listen()
            client = await sender.connect(listener.uri)
            server = await listener.accept()
            await server.ready()
            buffers = [bytearray(8) for _ in range(20)]
            posted += [receiver.tag_recv(buffer, 5, 2**64 - 1) for buffer in buffers]
            del ended[:]
            for number in range(20):  # each completes within its call: the loop gets no turn
                await client.send_tag(b"%08d" % number, 5)
            await asyncio.gather(*(receiver.complete(request) for request in posted))
            self.assertEqual([n for n in ended if n], [20])
            self.assertEqual([int(buffer) for buffer in buffers], list(range(20)))

    async def test_many_buffers_are_one_message(self):
        async with pair() as (client, server):
            await client.send([b"ab", b"", array.array("H", [1, 2]), memoryview(b"xyz")[1:]])
            first, rest = bytearray(3), bytearray(5)
            self.assertEqual(await server.recv([first, rest]), 8)
            self.assertEqual(bytes(first + rest), b"ab" + bytes(array.array("H", [1, 2])) + b"yz")

    async def test_strided_memory_is_sent_and_received_in_place(self):
        async with pair() as (client, server):
            data = bytes(range(240))
            grid = memoryview(data).cast("B", (240,))
            target = bytearray(480)
            await client.send(grid[::3])
            self.assertEqual(await server.recv(memoryview(target)[::6]), 80)
            self.assertEqual(bytes(target[::6]), data[::3])
            self.assertEqual(bytes(target[1::6]), bytes(80))
            await client.send(grid[::-1])
            await server.recv(got := bytearray(240))
            self.assertEqual(bytes(got), data[::-1])

    async def test_read_only_memory_is_not_received_into(self):
        async with pair() as (client, server):
            with self.assertRaises((BufferError, TypeError)):
                await server.recv(b"constant")
            with self.assertRaises(TypeError):
                await client.send(17)

    async def test_none_is_no_buffer_and_a_header_may_come_alone(self):
        async with pair() as (client, server):
            for call in client.send, client.recv, client.stream_send, client.stream_recv, client.worker.recv:
                with self.assertRaises(TypeError):
                    await call(None)
            heard = asyncio.get_running_loop().create_future()
            server.worker.am_handler(5, lambda ep, message: heard.set_result((message.header, message.len)))
            await client.am(5, None, b"alone")
            self.assertEqual(await heard, (b"alone", 0))

    async def test_probe_and_receive_by_handle(self):
        async with pair() as (client, server):
            self.assertIsNone(server.tag_probe(5))
            await client.send(b"waiting", 5)
            await client.flush()
            length, _, ep = server.tag_probe(5)
            self.assertEqual((length, ep), (7, server))
            message = server.tag_probe(5, remove=True)
            self.assertIsNone(server.tag_probe(5))
            self.assertEqual(bytes(await server.recv_taken(message)), b"waiting")
            with self.assertRaises(weft.NotFoundError):
                await server.recv_taken(message)

    async def test_messages_to_the_worker_come_from_any_endpoint(self):
        async with pair() as (client, server):
            await client.send_tag(b"any", 99)
            got = bytearray(3)
            self.assertEqual(await server.worker.recv(got, 0, 0xFFFFFFFF00000000), (3, 99))


class Other(Case):
    async def test_active_messages_are_queued_in_order_small_and_large(self):
        async with pair() as (client, server):
            for size in (5, 3 << 20, 0, 100):
                await asyncio.gather(client.am_post(bytes([size & 255]) * size), self.gets(server, size))

    async def gets(self, server, size):
        got = await server.am_recv()
        self.assertEqual(bytes(got), bytes([size & 255]) * size)

    async def test_a_handler_gets_header_and_payload(self):
        async with pair() as (client, server):
            arrived = asyncio.get_running_loop().create_future()
            server.worker.am_handler(8, lambda ep, m: arrived.set_result((ep, m.header, m.bytes(), m.eager)))
            await client.am(8, b"payload", b"header")
            self.assertEqual(await arrived, (server, b"header", b"payload", True))
            with self.assertRaises(weft.WeftError):
                server.worker.am_handler(5000, print)

    async def test_an_id_of_more_than_32_bits_is_no_other_id(self):
        async with pair() as (client, server):
            server.worker.am_handler(3, lambda ep, message: self.fail("a message to another id"))
            with self.assertRaises(weft.InvalidParamError):
                await client.am(2**32 + 3, b"payload")

    async def test_the_handlers_of_the_package_are_not_replaced(self):
        async with pair() as (client, server):
            for reserved in (1021, 1022, 1023):
                for fn in (print, None):
                    with self.assertRaises(weft.InvalidParamError):
                        server.worker.am_handler(reserved, fn)
            server.worker.am_handler(1020, lambda ep, message: None)
            await client.send_frames([b"one", b"two"])
            self.assertEqual([bytes(frame) for frame in await server.recv_frames()], [b"one", b"two"])

    async def test_a_large_message_that_its_handler_leaves_is_rejected(self):
        async with pair() as (client, server):
            server.worker.am_handler(8, lambda ep, m: None)
            with self.assertRaises(weft.RejectedError):
                await client.am(8, bytes(8 << 20))

    async def test_the_receivers_allocator_makes_the_memory(self):
        async with pair() as (client, server):
            server.worker.register_am_allocator(bytearray)
            await client.am_post(b"x" * 100)
            self.assertEqual(await server.am_recv(), bytearray(b"x" * 100))
            with self.assertRaises(weft.UnsupportedError):
                server.worker.register_am_allocator(bytearray, "rocm")

    async def test_what_an_allocator_raises_is_raised_by_am_recv(self):
        async with pair() as (client, server):
            def no_memory(size):
                raise MemoryError("none of %d bytes" % size)

            for make, error, words in ((no_memory, MemoryError, "none of"), (bytes, BufferError, "writable"),
                                       (lambda size: bytearray(size - 1), weft.TruncatedError, "")):
                server.worker.register_am_allocator(make)
                for size in (100, 8 << 20):
                    sends = asyncio.ensure_future(client.am_post(bytes(size)))
                    with self.assertRaisesRegex(error, words):
                        await server.am_recv(deadline=20)
                    await asyncio.wait([sends])
                    if sends.exception() is not None:  # one that waits at its sender
                        self.assertIsInstance(sends.exception(), weft.RejectedError)
            server.worker.register_am_allocator(bytearray)
            await client.am_post(b"next")
            self.assertEqual(await server.am_recv(), b"next")

    async def test_a_message_for_am_recv_has_a_header_of_the_programs_own(self):
        async with pair() as (client, server):
            for header in (b"", b"\0", b"\1", b"h" * 255):
                for size in (0, 5, 3 << 20):
                    sends = asyncio.ensure_future(client.am_post(b"x" * size, header))
                    got, theirs = await server.am_recv_with_header()
                    await sends
                    self.assertEqual((bytes(got), theirs), (b"x" * size, header))
            await client.am_post([b"several ", b"", bytearray(b"buffers")], b"h")
            self.assertEqual(bytes(await server.am_recv()), b"several buffers")
            await client.am_post(None, b"a header alone")
            self.assertEqual((await server.am_recv_with_header())[1], b"a header alone")
            with self.assertRaisesRegex(weft.TooBigError, "256 bytes: it has at most 255"):
                await client.am_post(b"x", bytes(256))
            with self.assertRaises(weft.TimedOutError):
                await server.am_recv_with_header(deadline=0.01)

    async def test_frames_arrive_as_they_were_each_aligned(self):
        async with pair() as (client, server):
            for frames in ([], [b""], [b"a", b"", b"bc" * 500], [bytes([i]) * i for i in range(100)], [bytes(4 << 20), b"end"]):
                sent, got = await asyncio.gather(client.send_frames(frames), server.recv_frames())
                self.assertEqual([bytes(frame) for frame in got], [bytes(frame) for frame in frames])
                self.assertEqual(sent, sum(map(len, frames)))
                base = weft.Block
                for frame in got:
                    self.assertIsInstance(frame.obj, base)
                    self.assertFalse(frame.readonly)

    async def test_objects_arrive_equal(self):
        async with pair() as (client, server):
            value = {"list": [1, 2.5, "three"], "bytes": bytearray(100000), "buffer": pickle.PickleBuffer(b"in place")}
            _, got = await asyncio.gather(client.send_obj(value), server.recv_obj())
            self.assertEqual((got["list"], got["bytes"], bytes(got["buffer"])), (value["list"], value["bytes"], b"in place"))

    async def test_a_stream_keeps_its_order_and_ends(self):
        async with pair() as (client, server):
            await client.stream_send(b"0123")
            await client.stream_send(b"456789")
            got = bytearray(10)
            self.assertEqual(await server.stream_recv(got, all=True), 10)
            self.assertEqual(got, b"0123456789")
            await client.close()
            with self.assertRaises(weft.PeerClosedError):
                await server.stream_recv(got)

    async def test_a_streams_send_that_fails_says_how_much_was_sent(self):
        data = bytes(range(256)) * (32 << 12)
        async with pair() as (client, server):
            with self.assertRaises(weft.TimedOutError) as caught:
                await client.stream_send(data, deadline=0.2)
            sent = caught.exception.sent
            self.assertTrue(0 < sent < len(data))
            got, last = bytearray(sent), bytearray(3)
            await asyncio.gather(client.stream_send(b"end"), server.stream_recv(got, all=True))
            self.assertEqual(got, data[:sent])
            await server.stream_recv(last, all=True)
            self.assertEqual(last, b"end")
            with self.assertRaises(weft.TimedOutError) as caught:
                await client.recv(bytearray(1), deadline=0.01)
            self.assertIsNone(caught.exception.sent)

    async def test_flush_reports_that_the_peer_has_all(self):
        async with pair() as (client, server):
            await client.send(b"x", 4)
            await client.flush()
            await client.worker.flush()
            self.assertIsNotNone(server.tag_probe(4))


if __name__ == "__main__":
    unittest.main()
