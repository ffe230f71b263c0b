"""Other loops than asyncio's own, and the benchmark as a program."""
import asyncio
import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import unittest
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
                                          capture_output=True, text=True, timeout=50)
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


if __name__ == "__main__":
    unittest.main()
