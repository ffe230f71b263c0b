"""Other loops than asyncio's own, and the benchmark as a program."""
import asyncio
import contextvars
import json
import os
import pty
import random
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import warnings
import xml.etree.ElementTree

import weft

try:
    import trio
except ImportError:
    trio = None
try:
    import uvloop
except ImportError:
    uvloop = None


async def conversation(one, two):
    """A message each way, by coroutines of weft alone."""
    listener = one.listen()
    ep = two.connect_now(listener.uri)
    server = await listener.accept()
    await ep.send(b"question", 1)
    got = bytearray(8)
    await server.recv(got, 1)
    await server.send_frames([got, bytes(1 << 20)])
    frames = await ep.recv_frames()
    try:
        await ep.recv(got, 9, deadline=0.01)
    except TimeoutError:
        return bytes(frames[0]), len(frames[1])


@unittest.skipIf(trio is None, "no trio here")
class Trio(unittest.TestCase):
    def test_a_conversation_by_whoever_waits(self):
        async def main():
            one, two = weft.Worker(), weft.Worker()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(drive, one)
                nursery.start_soon(drive, two)
                self.assertEqual(await conversation(one, two), (b"question", 1 << 20))
                nursery.cancel_scope.cancel()
            await two.close()
            await one.close()

        from weft.trio import drive

        trio.run(main)

    def test_cancelling_a_scope_cancels_the_operation(self):
        async def main():
            from weft.trio import drive

            one, two = weft.Worker(), weft.Worker()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(drive, one)
                nursery.start_soon(drive, two)
                listener = one.listen()
                ep = await two.connect(listener.uri)
                server = await listener.accept()
                got = bytearray(4)
                with trio.move_on_after(0.01) as scope:
                    await server.recv(got)
                self.assertTrue(scope.cancelled_caught)
                got.extend(b"free")
                await ep.send(b"next")
                self.assertEqual(await server.recv(got), 4)
                nursery.cancel_scope.cancel()
            await one.close()
            await two.close()

        trio.run(main)


    def test_a_drive_ends_with_its_worker(self):
        async def main():
            from weft.trio import drive

            one, two = weft.Worker(), weft.Worker()
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    for _ in range(2):
                        nursery.start_soon(drive, one)
                        nursery.start_soon(drive, two)
                    self.assertEqual(await conversation(one, two), (b"question", 1 << 20))
                    await one.close()
                    two.destroy()
                await drive(one)

        trio.run(main)

    def test_handlers_run_in_the_nursery_of_drive(self):
        async def echo(ep):
            handled.append(ep)
            got = bytearray(4)
            while True:  # until the client closes, which ends no more than this task
                await ep.recv(got)
                await ep.send(got)

        async def main():
            from weft.trio import drive

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery, weft.Worker() as one, weft.Worker() as two:
                    nursery.start_soon(drive, one)
                    nursery.start_soon(drive, two)
                    listener = one.listen(echo)
                    one.on_connect(echo)
                    for to in (listener.uri, one.address()):
                        ep = await two.connect(to)
                        got = bytearray(4)
                        for text in (b"one.", b"two."):
                            await ep.send(text)
                            await ep.recv(got)
                            self.assertEqual(got, text)
                        ep.on_close = lambda ep, error: later(ep)
                        await ep.close()

        async def later(ep):
            handled.append(ep)

        handled = []
        with unittest.mock.patch.object(sys, "unraisablehook") as complaints:
            trio.run(main)
        complaints.assert_not_called()
        self.assertEqual(len(handled), 4)

    def run_served(self, handler, body):
        """body(server, client, uri, nursery): two workers, of which the client is driven, and the server has the handler."""
        async def main():
            from weft.trio import drive

            with trio.fail_after(60):
                async with weft.Worker() as server, weft.Worker() as client:
                    listener = server.listen(handler)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(drive, client)
                        await body(server, client, listener.uri, nursery)
                        nursery.cancel_scope.cancel()

        trio.run(main)

    def test_what_a_handler_raises_ends_drive(self):
        async def fails(ep):
            raise ZeroDivisionError

        async def body(server, client, uri, nursery):
            from weft.trio import drive

            nursery.start_soon(client.connect, uri)
            try:
                await drive(server)
            except* ZeroDivisionError as group:  # trio 0.25 and later raise it in a group
                raised.append(group)

        raised = []
        self.run_served(fails, body)
        self.assertEqual(len(raised), 1)

    def test_a_handler_without_drive_is_refused(self):
        async def echo(ep):
            self.fail("no loop runs it")

        async def body(server, client, uri, nursery):
            nursery.start_soon(server.recv, bytearray(1), 1)  # it alone drives the worker
            ep = await client.connect(uri)
            with self.assertRaises(weft.WeftError):
                await ep.recv(bytearray(1))

        with unittest.mock.patch.object(sys, "unraisablehook") as complaints:
            self.run_served(echo, body)
        self.assertIn("weft.trio.drive", str(complaints.call_args[0][0].exc_value))

    def test_a_worker_outlives_a_run_of_trio(self):
        async def main():
            from weft.trio import drive

            async with trio.open_nursery() as nursery:
                nursery.start_soon(drive, one)
                nursery.start_soon(drive, two)
                self.assertEqual(await conversation(one, two), (b"question", 1 << 20))
                nursery.cancel_scope.cancel()

        with unittest.mock.patch.object(sys, "unraisablehook") as complaints:
            one, two = weft.Worker(), weft.Worker()
            trio.run(main)
            trio.run(main)
            one.run(one.close())
            two.destroy()
        complaints.assert_not_called()


@unittest.skipIf(uvloop is None, "no uvloop here")
class Uvloop(unittest.TestCase):
    def test_a_conversation(self):
        async def main():
            async with weft.Worker() as one, weft.Worker() as two:
                return await conversation(one, two)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self.assertEqual(runner.run(main()), (b"question", 1 << 20))


class Loops(unittest.TestCase):
    def test_a_worker_goes_from_one_loop_to_the_next(self):
        one, two = weft.Worker(), weft.Worker()
        for _ in range(3):
            self.assertEqual(asyncio.run(conversation(one, two)), (b"question", 1 << 20))
        one.destroy()
        two.destroy()


    def test_a_thread_without_a_loop_takes_no_worker_from_one(self):
        def takes():
            for waits in (worker.close, server.ready, listener.accept):
                try:
                    worker.run(waits())
                except weft.WrongThreadError:
                    refused.append(waits)

        async def main():
            nonlocal worker, listener, server
            async with weft.Worker() as worker, weft.Worker() as other:
                listener = worker.listen()
                client = await other.connect(listener.uri)
                server = await listener.accept()
                served = asyncio.ensure_future(server.recv(bytearray(6)))
                await asyncio.sleep(0.01)  # it waits
                await asyncio.to_thread(takes)
                await client.send(b"served")
                self.assertEqual(await asyncio.wait_for(served, 60), 6)

        worker = listener = server = None
        refused = []
        asyncio.run(main())
        self.assertGreaterEqual(len(refused), 2)


class Threads(unittest.TestCase):
    def test_threads_with_a_loop_and_a_worker_each_talk_at_once(self):
        """Every thread is a server and a client of the next one, over and over."""
        count, rounds = 4, 100
        uris, done, ready, failures = [None] * count, [], threading.Barrier(count), []

        async def talk(number):
            async with weft.Worker(settings={"log.level": "error"}) as worker:
                listener = worker.listen()
                uris[number] = listener.uri
                while None in uris and not failures:
                    await asyncio.sleep(0.001)
                there = await worker.connect(uris[(number + 1) % count])
                here = await listener.accept()
                got = bytearray(4096)
                for turn in range(rounds):
                    data = bytes([number, turn]) * 1500
                    _, length = await asyncio.gather(there.send(data), here.recv(got))
                    self.assertEqual(bytes(got[:length]), bytes([(number - 1) % count, turn]) * 1500)
                    await there.send_obj({"turn": turn})
                    self.assertEqual(await here.recv_obj(), {"turn": turn})
                done.append(number)
                while len(done) < count and not failures:
                    await asyncio.sleep(0.001)

        def run(number):
            try:
                ready.wait()
                asyncio.run(talk(number))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_whatever_another_thread_calls_its_owner_goes_on(self):
        """Each public attribute of each object, with arguments at random. `abandon` is left out: it ends the object by contract."""
        objects, ended, failures = [], threading.Event(), []

        def meddle(seed):
            chance = random.Random(seed)
            while not ended.is_set():
                one = chance.choice(objects)
                name = chance.choice([name for name in dir(one) if not name.startswith("_") and name != "abandon"])
                values = [None, 0, 1, -1, b"x", "tcp://127.0.0.1:1", bytearray(8), one, print]
                try:
                    got = getattr(one, name)
                    got = got(*chance.choices(values, k=chance.randrange(4))) if callable(got) else got
                    if asyncio.iscoroutine(got):
                        got.close()
                    repr(got)
                except SystemError as error:  # a function of the extension raised none, or two
                    failures.append((name, error))
                except Exception:
                    pass

        async def talk():
            async with weft.Worker(settings={"log.level": "none"}) as worker:
                listener = worker.listen()
                there = await worker.connect(listener.uri)
                here = await listener.accept()
                memory = worker.alloc(64)
                key = weft.rma.Remote(there, memory.key())
                objects.extend([worker, listener, there, here, memory, key])
                threads = [threading.Thread(target=meddle, args=(seed,), daemon=True) for seed in (1, 2)]
                for thread in threads:
                    thread.start()
                try:
                    for turn in range(200):
                        await there.send_obj([turn, bytes(1000 * turn)])
                        self.assertEqual((await here.recv_obj())[0], turn)
                        await key.put(turn.to_bytes(8, "little"), remote=True)
                        self.assertEqual(bytes(memory)[:8], turn.to_bytes(8, "little"))
                finally:
                    ended.set()
                    for thread in threads:
                        await asyncio.to_thread(thread.join)
                self.assertFalse(listener.closed or there.closed or here.closed)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # coroutines that are never awaited
            asyncio.run(asyncio.wait_for(talk(), 60))
        self.assertEqual(failures, [])

    @unittest.skipIf(getattr(sys, "_is_gil_enabled", lambda: True)(), "an interpreter with its lock")
    def test_a_free_threaded_interpreter_stays_so(self):
        self.assertFalse(sys._is_gil_enabled())


class Benchmark(unittest.TestCase):
    def test_it_measures_every_backend(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "plot.svg")
            for backend in ("weft", "polled", "streams"):
                for over in ("tcp", "shm"):
                    said = subprocess.run([sys.executable, "-m", "weft.benchmarks.send_recv", "--backend", backend, "--over", over,
                                           "--sizes", "8,70000", "--seconds", "0.002", "--json", "-", "--svg", svg],
                                          capture_output=True, text=True, timeout=200)
                    self.assertEqual(said.returncode, 0, said.stderr)
                    rows = json.loads(said.stdout)["rows"]
                    self.assertEqual([row["size"] for row in rows], [8, 70000])
                    self.assertTrue(all(0 < row["median_us"] <= row["p99_us"] for row in rows), rows)
                    xml.etree.ElementTree.parse(svg)

    def test_a_terminal_gets_a_bar_and_a_table(self):
        mine, theirs = pty.openpty()
        with subprocess.Popen([sys.executable, "-m", "weft.benchmarks.send_recv", "--sizes", "8,70000", "--seconds", "0.002"],
                              stdout=subprocess.PIPE, stderr=theirs, text=True) as program:
            os.close(theirs)
            said = b""
            while True:
                try:
                    part = os.read(mine, 4096)
                except OSError:  # the program's end of the terminal is closed
                    break
                if not part:
                    break
                said += part
            table = program.stdout.read()
        os.close(mine)
        self.assertEqual(program.returncode, 0)
        self.assertIn(b"[%s] 100 %%" % (b"#" * 40), said)
        self.assertRegex(table, r"(?s)median.*\n +8 B .*\n *68.3594 KiB ")


class Counting(weft.Worker):
    """Counts how often its loop looks for more."""

    looks = 0

    def spin(self):
        self.looks += 1
        return super().spin()


class Looks(unittest.TestCase):
    """After what a report brought, the loop looks for what comes soon."""

    async def talk(self, one, other, rounds=200):
        listener = one.listen()
        client = await other.connect(listener.uri)
        server, got = await listener.accept(), bytearray(1)
        for number in range(rounds):
            await client.send(bytes([number % 256]))
            await server.recv(got)
            await server.send(got)
            await client.recv(got)
            self.assertEqual(got[0], number % 256)
        return client, server

    def test_a_worker_looks_after_what_came_and_not_while_nothing_comes(self):
        async def body():
            async with Counting() as one, Counting(eager=True) as other:
                ends = await self.talk(one, other)
                self.assertGreater(one.looks, 0)
                self.assertGreater(other.looks, 0)
                before = None
                while before != (one.looks, other.looks):  # the library has messages of its own to end
                    before = one.looks, other.looks
                    await asyncio.sleep(0.05)
                del ends

        asyncio.run(asyncio.wait_for(body(), 60))

    def test_tasks_run_between_looks_and_a_close_ends_them(self):
        async def body():
            turns = 0

            async def others():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.ensure_future(others())
            async with weft.Worker() as one, weft.Worker(eager=True) as other:
                await self.talk(one, other)
                self.assertGreater(turns, 100)
                for worker in (one, other):
                    worker._driver._readable()  # what it posts is of a worker that is closed by then
            task.cancel()
            await asyncio.sleep(0)

        asyncio.run(body())

    def test_a_worker_that_unlocks_does_not_look(self):
        async def body():
            async with Counting(unlock=True) as one, Counting(settings={"worker.spin": "0"}) as other:
                await self.talk(one, other)
                self.assertEqual(one.looks, 0)
                self.assertEqual(super(Counting, other).spin(), 0)

        asyncio.run(body())

    def test_a_worker_without_a_loop_looks_before_it_sleeps(self):
        with weft.Worker() as one:
            self.assertEqual(one.spin(), 0)
            self.assertFalse(one.wait(1))
            one.wake()
            self.assertTrue(one.wait(20000))


class Eager(unittest.TestCase):
    """Tasks that go on within the callback in which their operation ended."""

    def over(self, body, **how):
        """body(client, server): two ends of one connection, of workers of this loop."""

        async def live():
            async with weft.Worker(eager=True) as one, weft.Worker(eager=True) as other:
                listener = one.listen()
                client = await other.connect(listener.uri)
                await body(client, await listener.accept())

        asyncio.run(live(), **how)

    @staticmethod
    def callers():
        frame, names = sys._getframe(1), []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        return names

    def test_a_task_goes_on_in_the_callback_and_in_its_own_context(self):
        async def body(client, server):
            name = contextvars.ContextVar("name")

            async def receives():
                name.set("mine")
                got = bytearray(1)
                task = asyncio.current_task()
                await server.recv(got)
                self.assertIn("_eager_turn", self.callers())
                self.assertIs(asyncio.current_task(), task)
                self.assertEqual((name.get(), got), ("mine", b"x"))
                server.worker.progress()  # another turn, within this one
                await asyncio.sleep(0)
                self.assertNotIn("_eager_turn", self.callers())

            task = asyncio.ensure_future(receives())
            await asyncio.sleep(0)
            await client.send(b"x")
            await task

        self.over(body)
        self.over(body, debug=True)

    def test_a_cancelled_task_goes_on_in_the_next_turn_with_all_that_it_has(self):
        async def body(client, server):
            order = []

            async def receives():
                try:
                    await server.recv(bytearray(1))
                except asyncio.CancelledError as error:
                    order.append(("cancelled", *error.args))
                    raise

            task = asyncio.ensure_future(receives())
            await asyncio.sleep(0)
            task.cancel("why")
            order.append("goes on")
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(order, ["goes on", ("cancelled", "why")])
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(server.recv(bytearray(1)), 0.01)
            with self.assertRaises(weft.TimedOutError):
                await server.recv(bytearray(1), deadline=0.01)
            got = [bytearray(1) for _ in range(20)]
            await asyncio.gather(*(server.recv(each, tag) for tag, each in enumerate(got)),
                                 *(client.send(bytes([tag]), tag) for tag in range(20)))
            self.assertEqual(b"".join(got), bytes(range(20)))

        self.over(body)

    def test_an_exit_of_a_task_is_the_loops(self):
        async def body(client, server):
            async def receives():
                await server.recv(bytearray(1))
                raise SystemExit(7)

            async def after():
                await server.recv(bytearray(1), 2)

            tasks = [asyncio.ensure_future(each()) for each in (receives, after)]
            await asyncio.sleep(0)
            await asyncio.gather(client.send(b"x"), client.send(b"y", 2))
            await tasks[1]
            await asyncio.sleep(60)

        with self.assertRaises(SystemExit) as caught:
            self.over(body)
        self.assertEqual(caught.exception.code, 7)


if __name__ == "__main__":
    unittest.main()
