"""Interrupts: at each place where a signal's handler can run in the binding's own callbacks, and in functions of the program
that the library calls. Cancellations that come with something else."""
import array
import asyncio
import collections
import contextlib
import ctypes
import functools
import operator
import os
import signal
import sys
import threading
import unittest
import unittest.mock

import weft
import weft.graph
import weft.rma
import weft.streams
import weft.teams
import weft.view
from members import run_members
from pair import Case, pair

try:
    import trio
except ImportError:
    trio = None

HERE = os.path.dirname(weft.__file__)


class Interrupt:
    """Raises KeyboardInterrupt at the n-th place in the package where CPython looks for signals: where a function in Python
    begins, and where one in C has returned. Counts from 0, while it is entered."""

    def __init__(self, n):
        self._left, self.where = n, None

    def _look(self, frame, event, what):
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(HERE):
            return
        if self._left:
            self._left -= 1
            return
        sys.setprofile(None)
        self.where = "%s:%d %s %r" % (frame.f_code.co_name, frame.f_lineno, event, what)
        raise KeyboardInterrupt

    def __enter__(self):
        if self.where is None:
            sys.setprofile(self._look)
        return self

    def __exit__(self, *exception):
        sys.setprofile(None)


def until(worker, holds, seen):
    """Drives the worker until it holds, and counts the interrupts that its caller gets."""
    while not holds():
        try:
            if not worker.wait(20000):
                raise TimeoutError
        except KeyboardInterrupt:
            seen.append(1)
        except TimeoutError:
            raise AssertionError("it does not come to hold") from None


class Anywhere(unittest.TestCase):
    def everywhere(self, scenario):
        """scenario(interrupt, seen): until it was not interrupted any more. What its callers saw is what was raised."""
        for n in range(1000):
            interrupt, seen = Interrupt(n), []
            try:
                scenario(interrupt, seen)
            except BaseException as error:
                raise AssertionError("interrupted at %s: %r" % (interrupt.where, error)) from error
            self.assertEqual(len(seen), 1 if interrupt.where else 0, interrupt.where)
            if interrupt.where is None:
                self.assertGreater(n, 2)
                return
        self.fail("it has no end")

    @staticmethod
    async def both(worker):
        listener = worker.listen()
        ep = await worker.connect(listener.uri)
        server = await listener.accept()
        await ep._introduced(None)
        await server._introduced(None)
        return ep, server

    def test_an_endpoint_is_lost(self):
        def scenario(interrupt, seen):
            with weft.Worker() as worker:
                ep, server = worker.run(self.both(worker))
                told = []
                server.on_close = lambda *args: told.append(args)
                receive, waits = server.recv(bytearray(1)), [server.am_recv() for _ in range(3)]
                for one in (receive, *waits):
                    one.send(None)
                futures = list(server._waiters)
                ep.abort()
                with interrupt:
                    until(worker, lambda: server._error is not None and all(request.done for request in server._receives), seen)
                self.assertTrue(all(future.done() for future in futures))
                self.assertIsInstance(server.error, weft.WeftError)
                self.assertEqual(len(told), 1)
                for one in (receive, *waits):
                    with self.assertRaises(weft.WeftError):
                        one.send(None)

        self.everywhere(scenario)

    def test_a_message_is_received(self):
        def scenario(interrupt, seen):
            with weft.Worker() as worker:
                ep, server = worker.run(self.both(worker))
                wait = server.am_recv()
                wait.send(None)
                [future] = server._waiters
                for i in range(3):
                    ep.am_send(b"%d" % i, weft._endpoint.AM_QUEUED, b"")
                with interrupt:
                    until(worker, lambda: len(server._queues[weft._endpoint.AM_QUEUED]) == 3, seen)
                self.assertTrue(future.done())
                with self.assertRaises(StopIteration) as end:
                    wait.send(None)
                self.assertEqual(bytes(end.exception.value), b"0")
                for i in (1, 2):
                    self.assertEqual(bytes(worker.run(server.am_recv())), b"%d" % i)

        self.everywhere(scenario)

    def test_a_large_message_is_received(self):
        def scenario(interrupt, seen):
            with weft.Worker() as worker:
                ep, server = worker.run(self.both(worker))
                sent = ep.am_send(b"x" * 1000000, weft._endpoint.FRAMES, (0).to_bytes(8, "little"))
                with interrupt:
                    until(worker, lambda: server._queues[weft._endpoint.FRAMES], seen)
                    until(worker, lambda: sent.done and server._queues[weft._endpoint.FRAMES][0][1].done, seen)
                [(header, memory)] = server._queues[weft._endpoint.FRAMES]
                self.assertEqual(len(memory.result()), 1000000)

        self.everywhere(scenario)

    def test_an_endpoint_is_accepted(self):
        def scenario(interrupt, seen):
            with weft.Worker() as worker:
                listener = worker.listen()
                ep, accept = worker.connect_now(listener.uri), listener.accept()
                accept.send(None)
                [future] = listener._waiters
                with interrupt:
                    until(worker, lambda: ep._is_ready and ep._peer_number and listener._waiting, seen)
                self.assertTrue(future.done())
                with self.assertRaises(StopIteration) as end:
                    accept.send(None)
                server = end.exception.value
                self.assertFalse(listener._waiting)

                async def talk():
                    await ep.send(b"x")
                    await server.recv(bytearray(1))
                    await server.send(b"x")
                    await ep.recv(bytearray(1))

                worker.run(talk())

        self.everywhere(scenario)

    def test_a_future_gets_its_result(self):
        def scenario(interrupt, seen):
            with weft.Worker() as worker:
                ep, server = worker.run(self.both(worker))
                receives = [server.recv(bytearray(1)) for _ in range(3)]
                for receive in receives:
                    receive.send(None)
                for _ in receives:
                    ep.tag_send(b"x", server._number << 32)
                with interrupt:
                    until(worker, lambda: all(request.done for request in server._receives), seen)
                for receive in receives:
                    with self.assertRaises(StopIteration) as end:
                        receive.send(None)
                    self.assertEqual(end.exception.value, 1)

        self.everywhere(scenario)

    def test_an_eager_task_goes_on(self):
        def scenario(interrupt, seen):
            async def main():
                async with weft.Worker(eager=True) as one, weft.Worker() as other:
                    listener = one.listen()
                    ep = await other.connect(listener.uri)
                    server = await listener.accept()
                    receive = asyncio.ensure_future(server.recv(bytearray(1)))
                    await asyncio.sleep(0)

                    def readable():
                        try:
                            with interrupt:
                                one._driver._readable()
                        except KeyboardInterrupt:
                            seen.append(1)

                    asyncio.get_running_loop().add_reader(one.fd(), readable)
                    await ep.send(b"x")
                    await asyncio.wait([receive], timeout=20)
                    self.assertTrue(receive.done())
                    with contextlib.suppress(KeyboardInterrupt):  # it may have come in the task
                        self.assertEqual(await receive, 1)

            asyncio.run(main())

        self.everywhere(scenario)


class Operations(unittest.TestCase):
    def everywhere(self, operation):
        """operation(ep, server): each interrupt while Worker.run runs it is what that raises, and its worker goes on."""
        for n in range(3000):
            with weft.Worker() as worker:
                ep, server = worker.run(Anywhere.both(worker))
                interrupt, coroutine = Interrupt(n), operation(ep, server)
                try:
                    with interrupt:
                        worker.run(coroutine)
                except KeyboardInterrupt:
                    pass
                except BaseException as error:
                    raise AssertionError("interrupted at %s: %r" % (interrupt.where, error)) from error
                else:
                    self.assertIsNone(interrupt.where)
                    self.assertGreater(n, 2)
                    return
                coroutine.close()
                worker.run(self.talk(*worker.run(Anywhere.both(worker))))
        self.fail("it has no end")

    @staticmethod
    async def talk(ep, server):
        await ep.send(b"x", deadline=20)
        await server.recv(bytearray(1), deadline=20)

    def test_of_messages(self):
        async def operation(ep, server):
            await ep.send(b"x")
            await server.recv(bytearray(1))
            await ep.am_post(b"x", deadline=20)
            await server.am_recv(deadline=20)
            await ep.send_frames([b"x", b"y"])
            await server.recv_frames()

        self.everywhere(operation)

    def test_of_streams_and_remote_memory(self):
        async def operation(ep, server):
            await ep.stream_send(b"x")
            await server.stream_recv(bytearray(1))
            region = server.worker.alloc(64)
            remote = weft.rma.Remote(ep, region.key())
            await remote.put(b"x", remote=True)
            await remote.get(bytearray(1))
            await remote.atomic("add", 1)
            await weft.rma.release(region)

        self.everywhere(operation)

    def test_of_ends(self):
        async def operation(ep, server):
            listener = ep.worker.listen()
            other, accepted = await ep.worker.connect(listener.uri), await listener.accept()
            listener.close()
            await other.close()
            try:
                await accepted.recv(bytearray(1))
            except weft.PeerClosedError:
                pass
            server.abort()

        self.everywhere(operation)

    def test_of_teams_and_graphs(self):
        async def operation(ep, server):
            team = await weft.teams.create(ep.worker, "self")
            await team.allreduce(array.array("q", [1]))
            await team.close()
            with weft.graph.Graph(n_threads=1) as graph:
                graph.add(int)
                await graph.run(ep.worker)

        self.everywhere(operation)


class Program(unittest.TestCase):
    """In functions of the program."""

    def setUp(self):
        hook = unittest.mock.patch("sys.unraisablehook")
        self.unraisable = hook.start()
        self.addCleanup(hook.stop)
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, self.on_alarm))
        self.addCleanup(lambda: self.assertFalse(self.unraisable.called))

    @staticmethod
    def on_alarm(number, frame):
        raise KeyboardInterrupt

    def test_of_a_layout_is_the_driving_calls_where_no_task_waits(self):
        class Interrupted(weft.Layout):
            def __len__(self):
                return 1

            def unpack(self, offset, data):
                raise KeyboardInterrupt

        with weft.Worker() as worker:
            ep, server = worker.run(Anywhere.both(worker))
            request = worker.tag_recv(Interrupted(), 5, 2**64 - 1)
            ep.tag_send(b"x", 5)
            with self.assertRaises(KeyboardInterrupt):
                while not request.done:
                    worker.wait(20000)
            while not request.done:
                worker.wait(20000)
            with self.assertRaises(weft.CancelledError):
                request.result()

    def test_of_a_layout_within_the_call_that_posts_is_of_that_call(self):
        class Interrupted(weft.Layout):
            def __len__(self):
                return 1

            def pack(self, offset, to):
                raise KeyboardInterrupt

        with weft.Worker() as worker:
            ep, server = worker.run(Anywhere.both(worker))
            with self.assertRaises(KeyboardInterrupt):
                request = ep.tag_send(Interrupted(), 5)
                while not request.done:
                    worker.wait(20000)
            while worker.wait(1):
                pass

    def signals(self, types):
        """A function in C that has a signal sent to this thread: its handler waits for code of Python."""
        function = ctypes.CDLL(None)["raise"]
        function.argtypes = [ctypes.c_int, *types]
        return functools.partial(function, signal.SIGALRM)

    def test_a_signal_before_a_finalizer_does_not_take_it_away(self):
        ran = []
        with weft.Worker() as worker:
            view = worker.run(weft.view.open(worker))
            view.push_finalizer(lambda: ran.append(1))
            release = view._core.post_release()
            while not release.done:
                with self.assertRaises(KeyboardInterrupt):  # no code of Python runs between the two
                    collections.deque(map(operator.call, (self.signals([]), worker.progress)))
        self.assertEqual(ran, [1])

    def test_a_signal_before_a_layout_is_called_does_not_end_its_operation(self):
        class Signals(weft.Layout):
            unpack = staticmethod(self.signals([ctypes.c_ssize_t, ctypes.py_object]))

            def __len__(self):
                return 1

        class Layout(weft.Layout):
            def __len__(self):
                return 1

            def unpack(self, offset, data):
                got.append(bytes(data))

        got = []
        with weft.Worker() as worker:
            ep, server = worker.run(Anywhere.both(worker))
            requests = [worker.tag_recv(layout, 5, 2**64 - 1) for layout in (Signals(), Layout())]
            for byte in (b"x", b"y"):
                ep.tag_send(byte, 5)
            with self.assertRaises(KeyboardInterrupt):
                while not requests[1].done:
                    worker.wait(20000)
            while not requests[1].done:
                worker.wait(20000)
            self.assertEqual((got, requests[1].result()), ([b"y"], (1, 5)))

    def test_of_a_task_ends_a_graph_although_it_has_retries(self):
        def task():
            tries.append(1)
            signal.raise_signal(signal.SIGALRM)

        tries, later = [], []
        with weft.graph.Graph(n_threads=1) as graph:
            first = graph.add(task, retries=5)
            graph.add(later.append, first)
            with self.assertRaises(KeyboardInterrupt):
                # A task may run on the graph's own thread, where the signal is the waiting thread's at the end.
                graph.run_wait()
        self.assertEqual((len(tries), later), (1, []))

    def test_of_the_progress_of_a_graph_ends_its_run(self):
        def progress(done, total):
            signal.raise_signal(signal.SIGALRM)

        with weft.graph.Graph(n_threads=1, on_progress=progress) as graph:
            graph.add(int)
            with self.assertRaises(KeyboardInterrupt):
                graph.run_wait()


class Collectives(unittest.TestCase):
    def test_what_a_reduction_raises_does_not_hide_an_exit(self):
        """That a wait is closed by, as Worker.run closes its coroutine when a signal's handler has raised."""
        class Raises:
            def __init__(self, worker):
                self.worker, self.revoked = worker, 0

            def raised(self, reduction, type):
                return ZeroDivisionError()

        for interrupt in (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError):
            with weft.Worker() as worker:
                team = worker.run(weft.teams.create(worker, "self"))
                core, team._core = team._core, Raises(worker)
                team.revoke = lambda: setattr(team._core, "revoked", 1)
                wait = team._ended(lambda: worker.tag_recv(bytearray(1), 5, 2**64 - 1), 0, 0)
                wait.send(None)
                with self.assertRaises(interrupt):
                    wait.throw(interrupt)
                    while True:
                        worker.wait(20000)
                        wait.send(None)
                self.assertEqual(team._core.revoked, 1)
                team._core = core

    def test_an_exit_of_a_reduction_ends_the_call_that_drives(self):
        """Before the collective has ended, whose peers may be late."""
        async def body(team, worker):
            def reduce(left, right, out):
                if team.rank == 0:
                    raise SystemExit(7)
                out[:] = left

            def readable():
                try:
                    worker.progress()
                except SystemExit as error:
                    exits.append((team.rank, error.code))

            op, loop = team.reduction(reduce, 8), asyncio.get_running_loop()
            await team.barrier()
            worker._driver._looks = False
            loop.add_reader(worker.fd(), readable)
            if team.rank:
                await loop.run_in_executor(None, posted.wait)
            reducing = asyncio.ensure_future(team.allreduce(array.array("q", [1]), op=op))
            await asyncio.sleep(0)
            posted.set()
            with contextlib.suppress(weft.WeftError):
                await reducing

        exits, posted = [], threading.Event()
        run_members(2, body)
        self.assertEqual(exits, [(0, 7)])


class Waits(Case):
    async def test_a_message_whose_arrival_a_cancelled_task_waited_for_is_there_for_the_next(self):
        async with pair() as (client, server):
            for cancels in (lambda task: task.cancel(), lambda task: task.get_coro().close()):
                send = asyncio.ensure_future(client.am_post(b"x" * 3000000))
                queue = server._queues[weft._endpoint.AM_QUEUED]
                while not queue:
                    await asyncio.sleep(0)
                await client.am_post(b"y")
                task = asyncio.ensure_future(server.am_recv())
                await asyncio.sleep(0)
                self.assertFalse(send.done())
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual([len(await server.am_recv()) for _ in range(2)], [3000000, 1])
                await send

    async def test_a_protocol_that_raises_at_the_end_is_told_that_the_connection_is_lost(self):
        class Protocol(asyncio.Protocol):
            def eof_received(self):
                raise ZeroDivisionError

            def connection_lost(self, error):
                lost.set_result(error)

        async with pair() as (client, server):
            loop = asyncio.get_running_loop()
            lost, closed = loop.create_future(), loop.create_future()
            server.on_close = lambda ep, error: closed.set_result(error)
            weft.streams.EndpointTransport(server, Protocol(), loop)
            await asyncio.sleep(0)
            await client.close()
            self.assertIsNone(await asyncio.wait_for(lost, 20))
            self.assertIsInstance(await asyncio.wait_for(closed, 20), weft.PeerClosedError)
            self.assertIsInstance(self.complaints.pop()["exception"], ZeroDivisionError)


@unittest.skipIf(trio is None, "no trio here")
class Trio(unittest.TestCase):
    def test_an_interrupt_comes_before_or_after_the_end_of_a_future(self):
        from weft.trio import TrioFuture

        code = getattr(TrioFuture.set_result, "__wrapped__", TrioFuture.set_result).__code__

        def profile(frame, event, what):
            if event == "call" and frame.f_code is code:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

        async def main():
            async with weft.Worker() as worker:
                listener = worker.listen()
                ep = await worker.connect(listener.uri)
                server = await listener.accept()
                await ep.send(b"x")
                sys.setprofile(profile)
                try:
                    await server.recv(bytearray(1))
                    received.append(1)
                finally:
                    sys.setprofile(None)
                await trio.sleep(20)

        received = []
        with self.assertRaises(KeyboardInterrupt):
            trio.run(main)
        self.assertEqual(received, [1])


if __name__ == "__main__":
    unittest.main()
