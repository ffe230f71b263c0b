"""What operations leave behind, forked children, idle workers, many endpoints, and a cancellation at every await."""
import asyncio
import gc
import os
import select
import socket
import subprocess
import sys
import time
import tracemalloc
import unittest

import weft
from weft import _core
from pair import Case, pair
from weft.rma import Remote


class Left(Case):
    async def test_operations_leave_no_reference_to_their_buffers(self):
        async with pair() as (client, server):
            region = server.worker.alloc(1 << 16)
            remote = Remote(client, region.key())
            data, got = bytes(5000), bytearray(5000)

            async def each_kind():
                await asyncio.gather(client.send(data), server.recv(got))
                await client.am_post(data)
                await server.am_recv()
                await client.send_frames([data, data])
                await server.recv_frames()
                await client.stream_send(data)
                await server.stream_recv(got, all=True)
                await remote.put(data)
                await remote.get(got)
                await client.flush()
                waits = asyncio.ensure_future(server.recv(got, 5))
                await asyncio.sleep(0)
                waits.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waits
                with self.assertRaises(weft.TruncatedError):
                    await client.send(data, 6)
                    await server.recv(bytearray(1), 6)
                with self.assertRaises(TypeError):
                    await client.send(7)

            async def grows_by():
                """Bytes that a hundred rounds leave: more than 4,000, if each leaves one object."""
                before = tracemalloc.get_traced_memory()[0]
                for _ in range(100):
                    await each_kind()
                gc.collect()
                return tracemalloc.get_traced_memory()[0] - before

            for _ in range(20):
                await each_kind()
            gc.collect()
            refs = sys.getrefcount(data), sys.getrefcount(got), sys.getrefcount(client), sys.getrefcount(client.worker)
            tracemalloc.start()
            objects = len(gc.get_objects())
            # The interpreter's caches and free lists have bounds, and fill within some thousand rounds.
            grown = [await grows_by()]
            while grown[-1] > 3000 and len(grown) < 50:
                grown.append(await grows_by())
            tracemalloc.stop()
            self.assertEqual((sys.getrefcount(data), sys.getrefcount(got), sys.getrefcount(client),
                              sys.getrefcount(client.worker)), refs)
            self.assertLess(grown[-1], 3000, grown)
            self.assertLess(len(gc.get_objects()) - objects, 100)
            del remote

    async def test_a_look_up_of_an_attribute_leaves_no_name_in_the_interpreter(self):
        # Its cache of methods keeps the string of each look-up, unless all are the same one.
        class Eight(weft.Layout):
            def __len__(self):
                return 8

            def pack(self, offset, to):
                pass

        def looks_up(times, layout=Eight()):
            between = []  # so that no string of the same size takes the place of the one before
            for n in range(times):
                _core.pack(layout)
                between.append(b"%025d" % n)

        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        looks_up(10)
        before = tracemalloc.get_traced_memory()[0]
        looks_up(400)
        self.assertLess(tracemalloc.get_traced_memory()[0] - before, 3000)

    async def test_a_forked_child_is_refused_and_its_parent_goes_on(self):
        async with pair() as (client, server):
            child = os.fork()
            if child == 0:
                try:
                    client.worker.address()
                except weft.ForkedError:
                    os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            await client.send(b"x")
            self.assertEqual(await server.recv(bytearray(1)), 1)

    async def test_an_interpreter_with_all_open_ends_at_once(self):
        took = []
        for _ in range(5):  # it takes less than 0.2 s where nothing else runs; the shortest of some counts
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, stdout=subprocess.PIPE)
            said = await child.stdout.read()
            took.append(time.monotonic() - float(said))
            self.assertEqual(await child.wait(), 0)
            if took[-1] < 2:
                return
        self.fail(f"an exit took {took} s; a close in good order would have a minute")

    async def test_workers_with_a_thousand_endpoints_fall_silent(self):
        async with weft.Worker(settings={"log.level": "error"}) as one, weft.Worker(settings={"log.level": "error"}) as two:
            listener = one.listen()
            mine = await asyncio.gather(*(two.connect(listener.uri, deadline=30) for _ in range(1000)))
            theirs = [await listener.accept() for _ in range(1000)]
            await asyncio.gather(*(ep.send(ep.uid.to_bytes(4, "little")) for ep in mine))
            got = bytearray(4)
            seen = set()
            for ep in theirs:
                await ep.recv(got)
                seen.add(bytes(got))
            self.assertEqual(len(seen), 1000)
            wakeups = 0
            while ready := select.select([one.fd(), two.fd()], [], [], 0.5)[0]:
                for worker in (one, two):
                    if worker.fd() in ready:
                        worker.progress()
                wakeups += 1
            self.assertLess(wakeups, 2000)
            self.assertEqual(select.select([one.fd(), two.fd()], [], [], 10), ([], [], []))


OPEN = """
import asyncio, time, weft
async def main():
    global one, two, ep, server, region
    one, two = (weft.Worker(settings={"close.timeout": "60s"}) for _ in range(2))
    listener = one.listen()
    ep = await two.connect(listener.uri)
    server = await listener.accept()
    region = one.alloc(1 << 20)
    asyncio.ensure_future(ep.recv(bytearray(1)))
    await asyncio.sleep(0)
asyncio.run(main())
print(time.monotonic(), flush=True)
"""


class Cancelled(Case):
    async def test_every_await_may_be_cancelled_and_all_goes_on(self):
        async with pair() as (client, server):
            listener = server.worker.listen()
            got = bytearray(8)
            waits = {"recv": lambda: server.recv(got, 1), "worker": lambda: server.worker.recv(got, 12345),
                     "am_recv": server.am_recv, "recv_frames": server.recv_frames, "recv_obj": server.recv_obj,
                     "stream_recv": lambda: server.stream_recv(got), "accept": listener.accept}
            for name, wait in waits.items():
                for turns in range(3):
                    task = asyncio.ensure_future(wait())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError, msg=name):
                        await task
            await client.send(b"1", 1)
            self.assertEqual(await waits["recv"](), 1)
            await client.am_post(b"2")
            self.assertEqual(bytes(await waits["am_recv"]()), b"2")
            await client.send_obj([3])
            self.assertEqual(await waits["recv_obj"](), [3])
            await client.stream_send(b"4")
            self.assertEqual(await waits["stream_recv"](), 1)

    async def test_every_await_has_a_deadline_and_all_goes_on(self):
        async with pair() as (client, server):
            listener = server.worker.listen()
            got = bytearray(8)
            waits = {"recv": lambda **how: server.recv(got, 1, **how),
                     "worker": lambda **how: server.worker.recv(got, 12345, **how),
                     "am_recv": server.am_recv, "recv_frames": server.recv_frames, "recv_obj": server.recv_obj,
                     "stream_recv": lambda **how: server.stream_recv(got, **how), "accept": listener.accept,
                     "send": lambda **how: client.send(bytes(32 << 20), 2, **how),
                     "stream_send": lambda **how: server.stream_send(bytes(32 << 20), **how)}
            for name, wait in waits.items():
                with self.assertRaises(weft.TimedOutError, msg=name):
                    await wait(deadline=0.01)
            await client.send(b"1", 1)
            self.assertEqual(await waits["recv"](deadline=60), 1)
            await client.am_post(b"2")
            self.assertEqual(bytes(await waits["am_recv"](deadline=60)), b"2")
            await client.send_obj([3])
            self.assertEqual(await waits["recv_obj"](deadline=60), [3])
            await client.stream_send(b"4")
            self.assertEqual(await waits["stream_recv"](deadline=60), 1)
            await (await client.worker.connect(listener.uri)).send(b"5")
            await waits["accept"](deadline=60)

    async def test_a_message_whose_deadline_passes_while_it_comes_is_there_later(self):
        async with pair() as (client, server):
            data = os.urandom(1 << 20) * 32
            for post, take in ((client.am_post, server.am_recv), (client.send_obj, server.recv_obj)):
                sends = asyncio.ensure_future(post(data))
                while True:
                    try:
                        got = await take(deadline=0.001)
                        break
                    except weft.TimedOutError:
                        pass
                await sends
                self.assertEqual(bytes(got), data)

    async def test_a_message_that_is_there_later_wakes_who_waits(self):
        async with weft.Worker(settings={"log.level": "error"}) as worker:
            listener = worker.listen()
            driven_here = type("DrivenHere", (weft._core.Worker,), {"_gone": lambda worker: None})
            sender = driven_here(weft.Context({"log.level": "error"}))
            sender.endpoint_type = type("Quiet", (weft._core.Endpoint,), {"_ready": lambda ep: None})
            far = sender.post_connect(listener.uri)
            accepting = asyncio.ensure_future(listener.accept())
            while not accepting.done():
                sender.progress()
                await asyncio.sleep(0)
            server = accepting.result()
            data = bytes(64 << 20)
            sending = far.am_send(data, 1022, b"")
            while not server.am_probe():
                sender.progress()
                await asyncio.sleep(0)
            first = asyncio.ensure_future(server.am_recv(deadline=0.05))
            second = asyncio.ensure_future(server.am_recv())
            await asyncio.wait([first])
            self.assertIsInstance(first.exception(), weft.TimedOutError)
            while not sending.done:
                sender.progress()
                await asyncio.sleep(0)
            self.assertEqual(len(await asyncio.wait_for(second, 60)), len(data))
            sender.post_close()
            while not sender.closed:
                sender.progress()
                await asyncio.sleep(0)

    async def test_a_connect_that_nobody_answers_ends_at_its_deadline(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with weft.Worker(settings={"log.level": "none", "connect.timeout": "1h"}) as worker:
                with self.assertRaises(weft.TimedOutError):
                    await worker.connect(silent.getsockname(), deadline=0.05)
                ep = worker.connect_now(silent.getsockname())
                with self.assertRaises(weft.TimedOutError):
                    await ep.ready(deadline=0.05)
                with self.assertRaises(weft.TimedOutError):
                    await asyncio.wait_for(ep.send(b"x", deadline=0.05), 60)
                ep.abort()

    async def test_a_cancelled_connect_leaves_nothing(self):
        async with weft.Worker() as one, weft.Worker() as two:
            listener = one.listen()
            for turns in range(4):
                task = asyncio.ensure_future(two.connect(listener.uri))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            ep = await two.connect(listener.uri)
            await ep.send(b"x")

    async def test_a_large_send_that_is_cancelled_ends_for_both(self):
        async with pair() as (client, server):
            data = bytes(32 << 20)
            sends = asyncio.ensure_future(client.send(data, 1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            sends.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await sends
            await client.send(b"after", 2)
            self.assertEqual(await server.recv(bytearray(5), 2), 5)


if __name__ == "__main__":
    unittest.main()
