"""Deadlines of what ends something, of splits and of runs: TimedOutError, and what was begun goes on."""
import array
import asyncio
import math
import os
import threading
import unittest

import weft
from members import Exchange, run_members
from pair import reserved_port
from weft import rma, teams, view
from weft.graph import Graph
from weft.rma import Remote

SHORT, LONG = 0.05, 60
# A close in good order is not cut off before the peer goes on.
SETTINGS = {"log.level": "none", "close.timeout": "60s"}


class Peer:
    """A worker in a thread with a loop of its own. `pause` stops the thread until `go_on`: the worker is not driven."""

    def __init__(self, body):
        """body(peer, worker): a coroutine."""
        self.paused, self.resumed, self.failure = threading.Event(), threading.Event(), None
        self._body = body
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        async def live():
            async with weft.Worker(settings=SETTINGS) as worker:
                await self._body(self, worker)

        try:
            asyncio.run(live())
        except BaseException as error:
            self.failure = error
            self.paused.set()

    def pause(self):
        self.paused.set()
        self.resumed.wait(LONG)

    async def until_paused(self):
        await asyncio.get_running_loop().run_in_executor(None, self.paused.wait, LONG)

    def go_on(self):
        self.resumed.set()

    async def __aenter__(self):
        self._thread.start()
        return self

    async def __aexit__(self, *exception):
        self.go_on()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        if self.failure is not None and exception[0] is None:
            raise self.failure


class Steps:
    """A coroutine that moves when it is asked whether it is over; what it raises goes on."""

    def __init__(self, coroutine):
        self._coroutine, self._over = coroutine, False

    def is_over(self):
        try:
            if not self._over:
                self._coroutine.send(None)
        except StopIteration:
            self._over = True
        return self._over


class Ends(unittest.TestCase):
    def over_a_region(self, make, body):
        """body(region, peer): the peer has the region open, and is not driven."""
        uri, keys = [], []

        async def reads(peer, worker):
            ep = await worker.connect(uri[0])
            keys.append(await ep.recv_obj())
            remote, got = Remote(ep, keys[0]), bytearray(8)
            await remote.get(got)
            peer.got = bytes(got)
            await ep.recv(bytearray(4), deadline=LONG)
            peer.pause()
            await ep.send(b"end")
            await ep.close()

        async def owns():
            async with weft.Worker(settings=SETTINGS) as worker:
                listener = worker.listen(uri=_name())
                uri.append(listener.uri)
                async with Peer(reads) as peer:
                    ep = await listener.accept(deadline=LONG)
                    region = make(worker)
                    await ep.send_obj(region.key())
                    while not region.describe()["n_peers"]:
                        await asyncio.sleep(0)
                    await ep.send(b"open")
                    await peer.until_paused()
                    await body(region, peer)
                    await ep.recv(bytearray(3), deadline=LONG)

        asyncio.run(owns())

    def test_a_release_goes_on_after_its_deadline_and_a_second_call_waits_for_it(self):
        async def body(region, peer):
            for _ in range(2):
                with self.assertRaises(weft.TimedOutError):
                    await rma.release(region, deadline=SHORT)
            peer.go_on()
            await rma.release(region, deadline=LONG)
            await rma.release(region)

        self.over_a_region(lambda worker: worker.alloc(4096), body)

    def test_registered_memory_is_held_until_its_release_has_ended(self):
        buffer = bytearray(os.urandom(1 << 16))

        async def body(region, peer):
            self.assertEqual(peer.got, bytes(buffer[:8]))
            try:
                await rma.release(region, deadline=SHORT)
            except weft.TimedOutError:  # the peer can reach it
                with self.assertRaises(BufferError):
                    buffer.clear()
            peer.go_on()
            await rma.release(region, deadline=LONG)
            del region

        self.over_a_region(lambda worker: worker.register(buffer), body)

    def test_a_revocation_goes_on_after_its_deadline(self):
        async def body(region, peer):
            with self.assertRaises(weft.TimedOutError):
                await rma.revoke(region, deadline=SHORT)
            with self.assertRaises(weft.BusyError):
                region.key()
            peer.go_on()
            await rma.revoke(region, deadline=LONG)
            region.key()

        self.over_a_region(lambda worker: worker.alloc(4096), body)

    def test_a_release_whose_wait_is_cancelled_goes_on(self):
        async def body(region, peer):
            wait = asyncio.ensure_future(rma.release(region))
            await asyncio.sleep(0)
            with self.assertRaises(weft.BusyError):
                await rma.release(region)
            wait.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await wait
            peer.go_on()
            await rma.release(region, deadline=LONG)

        self.over_a_region(lambda worker: worker.alloc(4096), body)

    def over_a_team(self, body):
        """body(team, worker, peer): of two members, the other of which is not driven."""
        exchange = Exchange(2)

        async def other(peer, worker):
            team = await teams.create(worker, exchange.member(1), deadline=LONG)
            await team.barrier(deadline=LONG)
            peer.pause()
            await team.close()

        async def one():
            async with weft.Worker(settings=SETTINGS) as worker:
                async with Peer(other) as peer:
                    team = await teams.create(worker, exchange.member(0), deadline=LONG)
                    await team.barrier(deadline=LONG)
                    await peer.until_paused()
                    await body(team, worker, peer)

        asyncio.run(one())

    def test_a_team_closes_on_after_its_deadline(self):
        async def body(team, worker, peer):
            with self.assertRaises(weft.TimedOutError):
                await team.close(deadline=SHORT)
            peer.go_on()
            await team.close(deadline=LONG)
            self.assertTrue(team.closed)
            await team.close()

        self.over_a_team(body)

    def test_a_worker_closes_on_after_its_deadline(self):
        async def body(team, worker, peer):
            with self.assertRaises(weft.TimedOutError):
                await worker.close(deadline=SHORT)
            self.assertFalse(worker.closed)
            peer.go_on()
            await worker.close(deadline=LONG)
            self.assertTrue(worker.closed)
            await worker.close()

        self.over_a_team(body)

    def test_an_end_has_a_deadline_without_a_loop(self):
        settings = {"log.level": "none", "close.timeout": "100ms"}
        with weft.Worker(settings=settings) as owner, weft.Worker(settings=settings) as reader:
            listener, region = owner.listen(uri=_name()), owner.alloc(4096)
            remote = Remote(reader.connect_now(listener.uri), region.key())
            get = Steps(remote.get(bytearray(8)))
            while not get.is_over() or not region.describe()["n_peers"]:
                reader.progress(), owner.progress()
            for owner.polls in (False, True):  # a worker that polls does not wait within the call either
                with self.assertRaises(weft.TimedOutError):
                    owner.run(rma.release(region, deadline=SHORT))
            owner.polls = False
            release = Steps(rma.release(region, deadline=LONG))
            while not release.is_over():
                reader.progress(), owner.progress()


class Long(unittest.TestCase):
    def test_a_deadline_beyond_32_bits_of_milliseconds_is_no_short_one(self):
        worker = weft.Worker(transports="self")
        for ms in (2**32 + 1, 2**64 - 1):
            request = worker.tag_recv(bytearray(8), 7, 2**64 - 1, ms)
            for _ in range(10):
                worker.wait(10)
            self.assertFalse(request.done)
            request.cancel()
            while not request.done:
                worker.wait(1000)
        worker.run(worker.close())


class Views(unittest.TestCase):
    def over_a_view(self, body, transports=None):
        """body(view, peer): of two processes, here threads, the other of which is not driven."""
        async def other(peer, worker):
            made = await view.open(worker, "store", store=store, rank=1, size=2, deadline=LONG)
            await made.team.barrier(deadline=LONG)
            await worker.flush(deadline=LONG)  # over tcp its part may still be here
            peer.pause()
            await made.release(deadline=LONG)

        async def one():
            async with weft.Worker(settings=SETTINGS, transports=transports) as worker:
                async with Peer(other) as peer:
                    made = await view.open(worker, "store", store=store, rank=0, size=2, deadline=LONG)
                    await made.team.barrier(deadline=LONG)
                    await peer.until_paused()
                    await body(made, peer)

        with reserved_port() as port:
            store = "127.0.0.1:%d" % port
            asyncio.run(one())

    def test_a_view_ends_on_after_its_deadline(self):
        async def body(made, peer):
            seen = []
            made.push_finalizer(lambda: seen.append("finalizer"))
            with self.assertRaises(weft.TimedOutError):
                await made.release(deadline=SHORT)
            self.assertEqual(seen, ["finalizer"])
            peer.go_on()
            await made.release(deadline=LONG)
            await made.release()

        self.over_a_view(body)

    def test_a_split_that_a_member_does_not_call_ends_at_its_deadline(self):
        async def body(made, peer):
            with self.assertRaises(weft.TimedOutError):
                await made.split(1, deadline=SHORT)
            with self.assertRaises(weft.WeftError):  # its team has failed
                await made.team.barrier()
            peer.go_on()

        self.over_a_view(body)

    def test_the_hardware_of_a_member_that_is_not_driven_is_not_waited_for_beyond_the_deadline(self):
        async def body(made, peer):
            self.assertEqual(made.at(0, deadline=LONG)["pid"], os.getpid())
            with self.assertRaises(weft.InvalidParamError):
                made.at(2, deadline=LONG)
            for _ in range(2):
                with self.assertRaises(weft.TimedOutError):
                    made.at(1, deadline=SHORT)
                with self.assertRaises(weft.TimedOutError):
                    await made.fetch(1, deadline=SHORT)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(made.fetch(1), SHORT)

        self.over_a_view(body, "tcp")  # by shm its memory is mapped

    def test_a_split_in_time_has_no_trace_of_its_deadline(self):
        async def body():
            async with weft.Worker(settings=SETTINGS) as worker:
                async with await view.open(worker, "single") as made:
                    part = await made.split(1, deadline=LONG)
                    self.assertEqual((part.rank, part.size), (0, 1))
                    await part.release()

        asyncio.run(body())


class Runs(unittest.TestCase):
    def test_a_run_skips_after_its_deadline_what_has_not_begun(self):
        go_on, ran = threading.Event(), []

        async def body():
            async with weft.Worker() as worker:
                with Graph(1) as graph:
                    first = graph.add(lambda: go_on.wait(LONG))
                    second = graph.add(ran.append, first)
                    run = asyncio.ensure_future(graph.run(worker, deadline=SHORT))
                    await asyncio.sleep(0)  # it has begun, so its deadline passes first
                    asyncio.get_running_loop().call_later(2 * SHORT, go_on.set)
                    with self.assertRaises(weft.TimedOutError):
                        await run
                    self.assertEqual(ran, [])
                    with self.assertRaises(weft.NotFoundError):
                        graph.result(second)
                    await graph.run(worker)
                    await graph.run(worker, deadline=LONG)
                    self.assertEqual(len(ran), 2)

        asyncio.run(body())

    def test_a_run_that_is_waited_for_has_a_deadline(self):
        with Graph(1) as graph:
            first = graph.add(lambda: threading.Event().wait(4 * SHORT))
            graph.add(print, first)
            with self.assertRaises(weft.TimedOutError):
                graph.run_wait(deadline=SHORT)
            self.assertIsNone(graph.failed)

    def test_a_close_waits_for_the_functions_that_run_until_its_deadline(self):
        begun, go_on = threading.Event(), threading.Event()

        async def body():
            async with weft.Worker() as worker:
                graph = Graph(1)
                first = graph.add(lambda: (begun.set(), go_on.wait(LONG)))
                graph.add(print, first)
                run = asyncio.ensure_future(graph.run(worker))
                await asyncio.sleep(0)
                begun.wait()
                with self.assertRaises(weft.TimedOutError):
                    graph.close(deadline=SHORT)
                with self.assertRaises(weft.TimedOutError):
                    await graph.aclose(deadline=SHORT)
                asyncio.get_running_loop().call_later(SHORT, go_on.set)
                await graph.aclose(deadline=LONG)
                with self.assertRaises(weft.CancelledError):
                    await run
                with self.assertRaises(weft.ClosedError):
                    await graph.run(worker)
                async with Graph(1) as other:
                    other.add(list)
                    await other.run(worker)

        asyncio.run(body())

    def test_a_close_ends_a_run_whose_task_was_cancelled_twice(self):
        begun, go_on = threading.Event(), threading.Event()

        async def body():
            async with weft.Worker() as worker:
                graph = Graph(1)
                graph.add(lambda: (begun.set(), go_on.wait(LONG)))
                run = asyncio.ensure_future(graph.run(worker))
                await asyncio.sleep(0)
                begun.wait()
                for _ in range(3):
                    await asyncio.sleep(0)
                    run.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await run
                with self.assertRaises(weft.TimedOutError):
                    await graph.aclose(deadline=SHORT)
                go_on.set()
                await graph.aclose(deadline=LONG)

        asyncio.run(body())

    def test_a_deadline_of_one_member_ends_the_run_of_all(self):
        go_on = threading.Event()

        async def body(team, worker):
            with Graph(1, team=team) as graph:
                first = graph.add(lambda: go_on.wait(LONG), rank=0)
                graph.add(array.array, first, rank=1)
                run = asyncio.ensure_future(graph.run(deadline=SHORT if team.rank == 1 else None))
                if team.rank == 1:
                    await asyncio.sleep(0)  # the run has begun; deadlines of one worker pass in their order
                    with self.assertRaises(weft.TimedOutError):
                        await worker.recv(bytearray(1), 1, deadline=2 * SHORT)
                    go_on.set()
                with self.assertRaises(weft.TimedOutError):
                    await run

        run_members(2, body)


def _name():
    return "shm://deadlines-%d-%s" % (os.getpid(), os.urandom(4).hex())


class Longest(unittest.TestCase):
    """Deadlines beyond 49 days, which the library's 32 bits of ms do not hold, are none. 4294967.2975 s would be 2 ms."""

    def test_a_deadline_that_is_infinite_or_far_does_not_pass(self):
        async def body(deadline):
            async with weft.Worker(settings=SETTINGS) as worker:
                accepted = asyncio.get_running_loop().create_future()
                listener = worker.listen(accepted.set_result)
                client = await worker.connect(listener.uri, deadline=deadline)
                server = await accepted
                receiving = asyncio.ensure_future(client.recv(bytearray(1), deadline=deadline))
                handled = asyncio.ensure_future(client.recv_obj(deadline=deadline))
                await asyncio.sleep(SHORT)
                self.assertFalse(receiving.done() or handled.done())
                await server.send(b"x", deadline=deadline)
                await server.send_obj("object", deadline=deadline)
                self.assertEqual((await receiving, await handled), (1, "object"))
                await rma.release(worker.alloc(64), deadline=deadline)
                await worker.close(deadline=deadline)

        for deadline in (math.inf, 1e30, 4294967.2975, 4294967.2):
            with self.subTest(deadline=deadline):
                asyncio.run(body(deadline))

    def test_ends_without_a_loop_take_them_too(self):
        for deadline in (math.inf, 1e30):
            worker = weft.Worker(settings=SETTINGS)
            worker.run(rma.release(worker.alloc(64), deadline=deadline))
            with Graph(n_threads=1) as graph:
                graph.add(lambda: None)
                graph.run_wait(deadline=deadline)
                graph.close(deadline=deadline)
            worker.run(worker.close(deadline=deadline))

    def test_what_is_no_number_is_refused(self):
        with weft.Worker() as worker, self.assertRaises(ValueError):
            worker.connect_now("tcp://127.0.0.1:1", deadline=math.nan)


if __name__ == "__main__":
    unittest.main()
