"""Objects whose last reference goes: on another thread, in a callback of a weak reference, while the worker closes."""
import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
import unittest
import weakref

import weft
import weft.rma
import weft.view
from members import Exchange
from pair import Case, pair, reserved_port
from weft import teams
from weft.graph import Graph


def drop_elsewhere(box):
    """Another thread takes the last reference out of the list."""
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()


def threads():
    """The ids of this process's threads. One that another test joined may be among them for a moment."""
    return set(os.listdir("/proc/self/task"))


async def until(holds):
    async def looks():
        while not holds():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(looks(), 60)


class Elsewhere(Case):
    async def test_a_region_gives_its_buffer_back(self):
        async with weft.Worker() as worker:
            memory = bytearray(100)
            drop_elsewhere([worker.register(memory)])

            def is_free():
                try:
                    memory.append(0)
                    return True
                except BufferError:
                    return False

            await until(is_free)

    async def test_a_region_is_lost_to_its_peers(self):
        async with pair() as (client, server):
            box = [server.worker.alloc(100)]
            remote = weft.rma.Remote(client, box[0].key())
            await remote.get(bytearray(100))
            drop_elsewhere(box)

            async def reads():
                while True:
                    await remote.get(bytearray(100))

            with self.assertRaises(weft.RevokedError):
                await asyncio.wait_for(reads(), 60)

    async def test_a_view_runs_its_finalizers(self):
        async with weft.Worker() as worker:
            box, ran = [await weft.view.open(worker)], []
            box[0].push_finalizer(lambda: ran.append(threading.get_ident()))
            drop_elsewhere(box)
            await until(lambda: ran)
            self.assertEqual(ran, [threading.get_ident()])

    async def test_a_view_whose_finalizer_refers_to_it_is_collected(self):
        for elsewhere in (False, True):
            async with weft.Worker() as worker:
                ran = []

                async def make():
                    view = await weft.view.open(worker)
                    view.push_finalizer(lambda: ran.append((threading.get_ident(), view._core.size)))
                    return weakref.ref(view)

                gone = await make()
                await asyncio.sleep(0)  # what has resumed this task holds the view
                if elsewhere:
                    thread = threading.Thread(target=gc.collect)
                    thread.start()
                    thread.join()
                else:
                    gc.collect()
                await until(lambda: ran)
                gc.collect()
                self.assertIsNone(gone())
                self.assertEqual(ran, [(threading.get_ident(), 0)])

    async def test_a_listener_refuses(self):
        async with weft.Worker(settings={"log.level": "none"}) as one, weft.Worker(settings={"log.level": "none"}) as two:
            seen = []
            box = [one.post_listen("tcp://127.0.0.1:0", seen.append)]
            uri = box[0].uri
            drop_elsewhere(box)  # nothing has driven its worker since
            with self.assertRaises(weft.WeftError):
                await two.connect(uri, deadline=20)
            self.assertEqual(seen, [])

    async def test_a_message_that_was_taken_is_dropped(self):
        async with pair() as (client, server):
            sent = asyncio.ensure_future(client.send_tag(bytes(4 << 20), 77))
            await until(lambda: server.worker.tag_probe(77, 0xFFFFFFFFFFFFFFFF))
            drop_elsewhere([server.worker.tag_take(77, 0xFFFFFFFFFFFFFFFF)])
            await asyncio.wait([sent], timeout=60)
            self.assertTrue(sent.done())
            sent.exception()

    async def test_a_team_and_its_collective_end(self):
        exchange = Exchange(2)
        async with weft.Worker(settings={"log.level": "none"}) as one, weft.Worker(settings={"log.level": "none"}) as two:
            mine, other = await asyncio.gather(*(teams.create(worker, exchange.member(rank), deadline=20)
                                                 for rank, worker in enumerate((one, two))))
            await asyncio.gather(mine.barrier(), other.barrier())
            out = bytearray(8)
            box = [mine, mine.persistent("allreduce", memoryview(bytes(8)).cast("q"), memoryview(out).cast("q"))]
            del mine
            gc.collect()
            drop_elsewhere(box)
            with self.assertRaises(weft.WeftError) as caught:
                await other.barrier(deadline=10)
            self.assertNotIsInstance(caught.exception, weft.TimedOutError)

    async def test_what_has_ended_goes_while_its_worker_is_in_the_library(self):
        async with weft.Worker(unlock=True) as worker:
            team = await teams.create(worker, "self")
            box = [worker.register(bytearray(10)), team.persistent("barrier")]
            await weft.rma.release(box[0])
            box[1].free()
            worker.polls = True
            thread = threading.Timer(0.02, box.clear)
            thread.start()
            with self.assertRaises(weft.TimedOutError):
                worker.tag_recv(bytearray(1), 5, 2**64 - 1, 500)
            thread.join()
            worker.polls = False
            await team.close()

    async def test_an_endpoint_that_is_lost_before_its_close(self):
        async with weft.Worker(settings={"log.level": "none"}) as one, weft.Worker(settings={"log.level": "none"}) as two:
            for _ in range(20):
                listener = one.listen()
                box = [await two.connect(listener.uri)]
                (await listener.accept()).abort()
                one.progress()
                drop_elsewhere(box)
                two.progress()
                listener.close()
            await asyncio.sleep(0.05)

    async def test_all_while_the_worker_closes(self):
        for closes in (False, True):
            async with weft.Worker(settings={"log.level": "none"}) as one:
                two = weft.Worker(settings={"log.level": "none"})
                listener = one.listen()
                ep = await two.connect(listener.uri)
                server = await listener.accept()
                region, key = two.register(bytearray(5)), ep.unpack_key(one.alloc(8).key())
                view = await weft.view.open(two)
                box = [ep, region, key, view, two.listen(), await teams.create(two, "self")]
                del ep, region, key, view
                if closes:
                    ending = asyncio.ensure_future(two.close())
                    await asyncio.sleep(0)
                    box.clear()  # here
                    await ending
                else:
                    drop_elsewhere(box)
                    await two.close()
                del server


class Workers(unittest.TestCase):
    """Without a loop: one that drives a worker refers to it."""

    def test_a_worker_ends_on_its_own_thread(self):
        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        def makes():
            weft.Worker(settings={"log.level": "none"}).destroy()

        def collects():
            box.clear()  # each refers to itself
            gc.collect()

        with weft.Worker(settings={"log.level": "none"}) as other:
            for turn in (makes, other.progress, lambda: other.wait(0)):
                turn()
                before, box = descriptors(), [weft.Worker(settings={"log.level": "none"}) for _ in range(2)]
                for elsewhere in (collects, makes):  # who makes one takes none of another's
                    thread = threading.Thread(target=elsewhere)
                    thread.start()
                    thread.join()
                self.assertGreater(descriptors(), before)
                turn()
                self.assertEqual(descriptors(), before)


    def test_another_thread_wakes_it_while_it_closes(self):
        def wakes():
            while workers:
                for worker in workers:
                    worker.wake()

        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-5)
        workers = [weft.Worker(settings={"log.level": "none"}, transports="tcp", unlock=True)]
        threads = [threading.Thread(target=wakes) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            workers[0].destroy()
            workers[0] = weft.Worker(settings={"log.level": "none"}, transports="tcp", unlock=True)
        workers.pop().destroy()
        for thread in threads:
            thread.join()

    def test_a_worker_whose_thread_has_ended_ends_on_any_other(self):
        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        def ends(thread):  # for the kernel, too
            thread.join()
            while os.path.exists("/proc/self/task/%d" % thread.native_id):
                time.sleep(0.001)

        def makes():
            box.append(weft.Worker(settings={"log.level": "none"}))
            made.set()
            go_on.wait()

        def collects():
            box.clear()  # it refers to itself
            gc.collect()

        with weft.Worker(settings={"log.level": "none"}) as other:
            for ended_before in (True, False):
                before, box = descriptors(), []
                made, go_on = threading.Event(), threading.Event()
                maker = threading.Thread(target=makes)
                maker.start()
                made.wait()
                if ended_before:
                    go_on.set()
                    ends(maker)
                collects()
                if not ended_before:
                    self.assertGreater(descriptors(), before)
                    go_on.set()
                    ends(maker)
                    other.progress()
                self.assertEqual(descriptors(), before)


class Closing(Case):
    """What a worker has while its close is in progress."""

    async def test_who_waits_for_an_endpoint_learns_of_it(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            worker = weft.Worker(settings={"log.level": "none"})
            waits = [asyncio.ensure_future(each) for each in (worker.connect(silent.getsockname()), worker.listen().accept())]
            await asyncio.sleep(0)
            await worker.close()
            for wait in waits:
                with self.assertRaises(weft.ClosedError):
                    await asyncio.wait_for(wait, 60)

    async def test_none_of_it_is_used(self):
        async with weft.Worker(settings={"log.level": "none"}) as one:
            two = weft.Worker(settings={"log.level": "none"})
            ep = await two.connect(one.listen().uri)
            key = ep.unpack_key(one.alloc(8).key())
            team, listener, whole = await teams.create(two, "self"), two.listen(), await weft.view.open(two)
            part, planned, ran = await whole.split(0), team.persistent("barrier"), []
            whole.push_finalizer(lambda: ran.append(whole._core.mine()))
            ending = two.post_close()
            while not ending.done:
                for call in (lambda: ep.tag_send(b"x", 1), ep.post_close, lambda: ep.post_put(b"x", 0, key), lambda: listener.uri,
                             lambda: team._core.post_split(0, 0), team._core.describe, lambda: team._core.size,
                             planned._core.post_start, lambda: whole.at(0), lambda: part._core.post_fetch(0)):
                    with self.assertRaises(weft.ClosedError):
                        call()
                gone = ep.closed, listener.closed, team._core.closed, whole._core.size, part._core.engine
                self.assertEqual(gone, (True, True, True, 0, "null"))
                self.assertIsNone(whole._core.post_release())
                listener.close()
                two.progress()
                one.progress()
            self.assertEqual(ran, [None])


class Collected(unittest.TestCase):
    def test_a_worker_whose_views_finalizers_refer_to_it_is_collected(self):
        for has_view in (False, True):  # one that goes before its worker
            ran = []

            def make():
                worker = weft.Worker()
                view = worker.run(weft.view.open(worker))
                view.push_finalizer((lambda: ran.append(view)) if has_view else lambda: ran.append(worker))
                return weakref.ref(worker)

            gone = make()
            gc.collect()
            self.assertIsNone(gone())
            self.assertEqual(ran, [])  # nothing has driven it since


class Callbacks(Case):
    async def test_a_weak_references_callback_gets_no_endpoint_back(self):
        async with weft.Worker(settings={"log.level": "none"}) as one, weft.Worker(settings={"log.level": "none"}) as two:
            got = []
            two.am_handler(5, lambda ep, message: got.append(ep))
            listener = two.listen()
            client = await one.connect(listener.uri)
            server = await listener.accept()
            await client.send(b"x")
            await server.recv(bytearray(1))

            def look(ref):
                while not got:
                    two.progress()

            gone = weakref.ref(server, look)
            client.am_send(b"x", 5, b"")
            one.progress()
            self.assertEqual(got, [])
            del server
            gc.collect()
            self.assertEqual(got, [None])
            self.assertIsNone(gone())

    async def test_what_a_view_raises_is_not_taken_by_a_report(self):
        reports = []

        class Report:
            def done(self):
                return False

            def set_exception(self, error):
                reports.append(type(error))

        def handler(ep, message):
            with self.assertRaises(weft.InvalidParamError):
                view.at(99)
            handled.append(len(reports))

        handled = []
        async with weft.Worker() as worker:
            worker.am_handler(5, handler)
            view, listener = await weft.view.open(worker), worker.listen()
            ep = await worker.connect(listener.uri)
            for turn in range(10):
                request = worker.tag_recv(bytearray(1), 5, 2**64 - 1)
                request.future = Report()
                ep.tag_send(b"xx", 5)  # ends the receive, and comes before the message
                ep.am_send(None, 5, b"")
                while len(handled) == turn or not request.done:
                    worker.progress()
            self.assertEqual(reports, [weft.TruncatedError] * 10)
            self.assertTrue(any(count == turn + 1 for turn, count in enumerate(handled)), handled)
            await view.release()

    async def test_a_set_of_a_view_that_a_report_ends_is_read_before(self):
        port = self.enterContext(reserved_port())
        store, over, ended = "127.0.0.1:%d" % port, threading.Event(), []

        def other():
            async def member():
                async with weft.Worker(settings={"log.level": "none"}) as worker:
                    view = await weft.view.open(worker, "store", store=store, rank=1, size=2)
                    while not over.is_set():
                        await asyncio.sleep(0.01)
                    await view.release()

            asyncio.run(member())

        thread = threading.Thread(target=other)
        thread.start()
        async with weft.Worker(settings={"log.level": "none"}) as worker:
            view = await weft.view.open(worker, "store", store=store, rank=0, size=2)

            class Report:
                def done(self):
                    return False

                def set_exception(self, error):
                    release = view._core.post_release()
                    over.set()
                    while not release.done:
                        worker.wait(10)
                    ended.append(view._core.mine())

            try:
                request = worker.tag_recv(bytearray(1), 1, 0xFFFFFFFFFFFFFFFF)
                request.cancel()  # it ends in the next turn
                request.future = Report()
                self.assertEqual(view._core.at(1, True)["rank"], 1)
                self.assertEqual(ended, [None])
            finally:
                over.set()
                await asyncio.get_running_loop().run_in_executor(None, thread.join)


class Waits(Case):
    """What a wait that ended otherwise leaves, without the collector."""

    async def test_no_buffer_and_no_frame_is_kept(self):
        class Buffer(bytearray):
            pass

        async def kept(call, ends=None):
            async def waits(buffer):
                with contextlib.suppress(weft.WeftError, asyncio.CancelledError):
                    await call(buffer)

            buffer = Buffer(10)
            gone, task = weakref.ref(buffer), asyncio.ensure_future(waits(buffer))
            del buffer
            await asyncio.sleep(0.02)
            if ends is not None:
                ends(task)
            await asyncio.wait([task])
            del task
            await asyncio.sleep(0)
            return gone() is not None

        async def am(buffer):
            await ep.am_recv(deadline=0.01)

        async def accept(buffer):
            await listener.accept(deadline=0.01)

        def lose(task):
            server.abort()

        async with weft.Worker(settings={"log.level": "none"}) as one, weft.Worker(settings={"log.level": "none"}) as two:
            listener = two.listen()
            ep = await one.connect(listener.uri)
            server = await listener.accept()
            gc.collect()
            gc.disable()
            self.addCleanup(gc.enable)
            for call, ends in ((lambda buffer: ep.recv(buffer, deadline=0.01), None),
                               (lambda buffer: one.recv(buffer, 5, deadline=0.01), None),
                               (lambda buffer: ep.stream_recv(buffer, deadline=0.01), None), (am, None), (accept, None),
                               (ep.recv, asyncio.Task.cancel), (lambda buffer: one.recv(buffer, 5), asyncio.Task.cancel),
                               (ep.recv, lose), (ep.recv, None), (am, None)):
                self.assertFalse(await kept(call, ends))
            caught = []
            for _ in range(5):
                try:
                    await ep.recv(bytearray(1))
                except weft.PeerClosedError as error:
                    caught.append(error)
            frames = [len(traceback.extract_tb(error.__traceback__)) for error in caught]
            self.assertEqual(frames, [frames[0]] * 5)
            self.assertEqual({(type(error), str(error)) for error in caught}, {(type(ep.error), str(ep.error))})

    async def test_waits_that_end_leave_no_waiter(self):
        async with pair() as (client, server):
            listener = client.worker.listen()
            for _ in range(3):
                for wait in (client.am_recv, client.recv_frames, listener.accept):
                    with self.assertRaises(weft.TimedOutError):
                        await wait(deadline=0.001)
                    with self.assertRaises(TimeoutError):
                        await asyncio.wait_for(wait(), 0.001)
            self.assertEqual((client._waiters, listener._waiters), ([], []))
            waits = [asyncio.ensure_future(listener.accept()) for _ in range(3)]
            await asyncio.sleep(0)
            waits[1].cancel()
            await asyncio.wait([waits[1]])
            eps = [await server.worker.connect(listener.uri) for _ in range(2)]
            self.assertEqual([type(await waits[at]) for at in (0, 2)], [weft.Endpoint] * 2)
            del eps


class Cycles(unittest.TestCase):
    def test_a_worker_that_holds_what_is_its_own_is_collected(self):
        def region(worker):
            return worker.alloc(10)

        def registered(worker):
            return worker.register(bytearray(10))

        def view(worker):
            request = worker.post_view("single")
            while not request.done:
                worker.progress()
            return request.result()

        def of_peer(worker, make):
            with weft.Worker(settings={"log.level": "none"}) as other:
                seen = []
                listener = other.listen(seen.append)
                ep = worker.connect_now(listener.uri)
                while not (seen and ep._is_ready):
                    worker.progress()
                    other.progress()
                made = make(worker, other, ep, seen[0])
                while not made:
                    worker.progress()
                    other.progress()
                return made[0]

        def key(worker):
            return of_peer(worker, lambda worker, other, ep, server: [ep.unpack_key(other.alloc(10).key())])

        def taken(worker):
            def make(worker, other, ep, server):
                server.tag_send(b"taken", 5)
                while not (message := worker.tag_take(5, 2**64 - 1)):
                    worker.progress()
                    other.progress()
                return [message]

            return of_peer(worker, make)

        def message(worker):
            got = []

            def make(worker, other, ep, server):
                worker.am_handler(5, lambda ep, message: got.append(message))
                server.am_send(b"x", 5, b"header")
                return got

            return of_peer(worker, make)

        def persistent(worker):
            return worker.run(teams.create(worker, "self")).persistent("barrier")

        def reduced(worker):
            team, mine = worker.run(teams.create(worker, "self")), []
            op = team.reduction(lambda left, right, out: mine, 8)
            mine.append(team.persistent("allreduce", memoryview(bytes(8)).cast("q"), op=op))
            return mine

        for make in (region, registered, view, key, taken, message, persistent, reduced):
            worker = weft.Worker(settings={"log.level": "error"})
            worker.mine = make(worker)
            gone = weakref.ref(worker)
            del worker
            gc.collect()
            self.assertIsNone(gone(), make.__name__)


class Graphs(unittest.TestCase):
    def test_results_of_a_run_that_did_not_begin_are_not_there(self):
        async def elsewhere(graph):
            worker = weft.Worker()
            with self.assertRaises(weft.ClosedError):
                worker.destroy()
                await graph.run(worker)

        with Graph(1) as graph:
            task = graph.add(lambda: 5)
            graph.run_wait()
            asyncio.run(elsewhere(graph))
            self.assertEqual(graph.result(task), 5)
            with self.assertRaises(weft.InvalidParamError):
                graph.result(1 << 32)

    def test_one_of_a_team_ends_with_it(self):
        async def body(end):
            worker = weft.Worker(settings={"log.level": "none"})
            view = await weft.view.open(worker)
            team = await teams.create(worker, "self")
            graphs = [Graph(1, team=which) for which in (team, team, view.team)]
            for graph in graphs:
                graph.add(lambda: 5)
            began, go_on = threading.Event(), threading.Event()
            graphs[0].add(lambda: (began.set(), go_on.wait(20)))
            running = asyncio.ensure_future(graphs[0].run())
            await asyncio.get_running_loop().run_in_executor(None, began.wait)
            await graphs[2].run()
            go_on.set()
            await end(worker, team, view)
            with self.assertRaises(weft.ClosedError):
                graphs[2 if end is release else 1].add(print)
            await asyncio.wait([running], timeout=60)
            self.assertTrue(running.done())
            running.exception()
            for graph in graphs:
                graph.close()
            if not worker.closed:
                await worker.close()

        async def close(worker, team, view):
            await worker.close()

        async def destroy(worker, team, view):
            worker.destroy()

        async def close_team(worker, team, view):
            await team.close()

        async def release(worker, team, view):
            await view.release()

        for end in (close, destroy, close_team, release):
            asyncio.run(body(end))

    def test_one_of_a_team_that_another_thread_cannot_close_stays(self):
        async def body():
            async with weft.Worker(settings={"log.level": "none"}) as worker:
                view = await weft.view.open(worker)
                team = await teams.create(worker, "self")
                graphs = [Graph(1, team=which) for which in (team, view.team)]
                tasks = [graph.add(lambda: 5) for graph in graphs]
                for end in (worker.destroy, worker.post_close, team._core.post_close, view._core.post_release):
                    with self.assertRaises(weft.WrongThreadError):
                        await asyncio.to_thread(end)
                for graph, task in zip(graphs, tasks):
                    await graph.run()
                    self.assertEqual(graph.result(task), 5)
                    graph.close()
                await team.close()
                await view.release()

        asyncio.run(body())

    def test_a_view_of_a_region_that_a_function_takes_during_a_close_keeps_the_worker_open(self):
        async def body():
            worker = weft.Worker(settings={"log.level": "none"})
            region, views = worker.alloc(4096), []
            team = await teams.create(worker, "self")
            began, goes_on = threading.Event(), threading.Event()
            graph = Graph(1, team=team)
            graph.add(lambda: (began.set(), goes_on.wait(60), views.append(memoryview(region))) and None)
            running = asyncio.ensure_future(graph.run())
            await asyncio.to_thread(began.wait, 60)
            threading.Timer(0.05, goes_on.set).start()
            with self.assertRaisesRegex(BufferError, "still in use"):
                worker.destroy()
            views.pop().release()
            await asyncio.wait([running])
            running.exception()
            await worker.close()

        asyncio.run(body())

    def test_one_of_a_team_is_destroyed_by_its_workers_thread(self):
        async def body():
            worker = weft.Worker(settings={"log.level": "none"})
            team = await teams.create(worker, "self")
            before = threads()
            box = [Graph(3, team=team)]
            box[0].add(lambda: 5)
            await box[0].run()
            of_graph = threads() - before
            self.assertTrue(of_graph)
            drop_elsewhere(box)
            if getattr(sys, "_is_gil_enabled", lambda: True)():  # else its maker ends it: the worker's thread
                self.assertLessEqual(of_graph, threads())  # nothing has driven the worker since
            await until(lambda: not of_graph & threads())
            await team.close()
            await worker.close()

        asyncio.run(body())

    def test_one_of_a_team_that_closes_after_another_thread_dropped_it(self):
        async def body(end):
            worker = weft.Worker(settings={"log.level": "none"})
            team = await teams.create(worker, "self")
            box = [Graph(2, team=team)]
            box[0].add(lambda: 5)
            await box[0].run()
            drop_elsewhere(box)
            await end(worker, team)
            if not worker.closed:
                await worker.close()

        async def close(worker, team):
            await worker.close()

        async def destroy(worker, team):
            worker.destroy()

        async def close_team(worker, team):
            await team.close()

        for end in (close, destroy, close_team):
            asyncio.run(body(end))

    def test_one_of_a_team_that_another_thread_dropped_keeps_no_worker(self):
        worker = weft.Worker(settings={"log.level": "error"})

        async def makes():
            team = await teams.create(worker, "self")
            graph = Graph(1, team=team)
            graph.add(lambda: 5)
            await graph.run()
            return [graph]

        box = worker.run(makes())
        drop_elsewhere(box)
        gone = weakref.ref(worker)
        del worker, makes
        gc.collect()
        self.assertIsNone(gone())

    def test_one_of_a_team_that_runs_is_closed_by_its_workers_thread_alone(self):
        async def body():
            async with weft.Worker() as worker:
                team = await teams.create(worker, "self")
                began, goes_on = threading.Event(), threading.Event()
                graph = Graph(1, team=team)
                graph.add(lambda: (began.set(), goes_on.wait(60)) and None)
                run = asyncio.ensure_future(graph.run())
                try:
                    await asyncio.to_thread(began.wait, 60)
                    with self.assertRaises(weft.WrongThreadError):
                        await asyncio.wait_for(asyncio.to_thread(graph.close), 60)
                finally:
                    goes_on.set()
                await run
                graph.close()
                await team.close()

        asyncio.run(body())

    def test_one_that_another_thread_drops_ends(self):
        ran = []
        box = [Graph(2)]
        box[0].add(lambda: ran.append(1))
        box[0].run_wait()
        drop_elsewhere(box)
        self.assertEqual(ran, [1])


# Another thread takes references of its own, so that the last one goes there, also without the interpreter's lock.
LOOKED_UP = """
import threading, weft
class Endpoint(weft._core.Endpoint):
    def _ready(self):
        pass
    def _lost(self, error):
        pass
settings = {"log.level": "none"}
one, two = weft.Worker(settings=settings), weft.Worker(settings=settings)
one.endpoint_type = two.endpoint_type = Endpoint
accepted, box, dropped = [], [], []
begin, taken, alone = threading.Event(), threading.Event(), threading.Event()
listener = one.post_listen("tcp://127.0.0.1:0", accepted.append)
def handler(ep, message):
    assert ep is None or type(ep) is Endpoint and ep.closed in (True, False)
one.am_handler(5, handler)
def drops():
    while True:
        begin.wait(), begin.clear()
        mine = list(box)
        if not mine:
            return
        taken.set(), alone.wait(), alone.clear()
        while mine:
            mine.pop()
            for _ in range(200):
                pass
        dropped.append(1)
thread = threading.Thread(target=drops)
thread.start()
for _ in range(60):
    eps = [two.post_connect(listener.uri) for _ in range(30)]
    while len(accepted) < 30:
        one.progress(), two.progress()
    box[:] = accepted
    accepted.clear(), begin.set(), taken.wait(), taken.clear(), box.clear(), alone.set()
    while not dropped:
        for ep in eps:
            try:
                ep.am_send(b"x", 5, b"")
            except weft.WeftError:
                pass
        two.progress(), one.progress()
    dropped.clear()
    for ep in eps:
        try:
            ep.post_close(True)
        except weft.WeftError:
            pass
    for _ in range(20):
        one.progress(), two.progress()
begin.set()
thread.join()
print("all rounds")
"""

# One thread takes views of regions that another releases.
VIEWED = """
import threading, weft
worker = weft.Worker(settings={"log.level": "none"})
box, ended = [None], False
def views():
    while not ended:
        try:
            view = memoryview(box[0])
        except (TypeError, BufferError, weft.ClosedError):
            continue
        bytes(view[::4096])
        view.release()
threads = [threading.Thread(target=views) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(150):
    box[0] = region = worker.alloc(1 << 20)
    while True:
        try:
            request = region.post_release()
        except BufferError:
            continue
        break
    while request is not None and not request.done:
        worker.progress()
ended = True
for thread in threads:
    thread.join()
print("all rounds")
"""


@unittest.skipIf(sys.version_info < (3, 14) and not getattr(sys, "_is_gil_enabled", lambda: True)(), "no PyUnstable_TryIncRef here")
class Races(unittest.TestCase):
    def test_an_endpoint_that_another_thread_drops_is_looked_up(self):
        ran = subprocess.run([sys.executable, "-c", LOOKED_UP], capture_output=True, text=True, timeout=200)
        self.assertEqual((ran.returncode, ran.stdout), (0, "all rounds\n"), ran.stderr[-3000:])

    def test_a_region_is_released_while_another_thread_takes_views_of_it(self):
        ran = subprocess.run([sys.executable, "-c", VIEWED], capture_output=True, text=True, timeout=200)
        self.assertEqual((ran.returncode, ran.stdout), (0, "all rounds\n"), ran.stderr[-3000:])


if __name__ == "__main__":
    unittest.main()
