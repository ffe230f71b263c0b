"""Connecting, closing, cancelling, errors, and what is left afterwards."""
import asyncio
import contextlib
import gc
import itertools
import os
import pickle
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock
import weakref

import weft
import weft.graph
import weft.rma
import weft.teams
import weft.view
from pair import Case, pair


class Connecting(Case):
    async def test_by_host_and_port_by_uri_and_by_address(self):
        async with weft.Worker() as one, weft.Worker() as two:
            listener = one.listen()
            self.assertEqual(listener.host, "127.0.0.1")
            self.assertGreater(listener.port, 0)
            accepted = []
            one.on_connect(accepted.append)
            for to in ((listener.host, listener.port), listener.uri, pickle.loads(pickle.dumps(one.address()))):
                ep = await two.connect(to)
                await ep.send(b"x")
                self.assertTrue(ep.alive)
            self.assertEqual(len(accepted), 1)
            self.assertTrue(ep.is_connected(one.address()))
            self.assertEqual(one.describe()["id"], ep.describe()["peer_worker"])
            self.assertEqual(one.describe(), {**one.describe(), "name": "", "thread_mode": "single", "on_loop": False,
                                              "has_thread": False, "is_associated": False, "unopened": {}})

    async def test_the_peer_of_an_address_answers_over_its_own_endpoint(self):
        async with weft.Worker() as one, weft.Worker() as two:
            there = asyncio.get_running_loop().create_future()
            one.on_connect(there.set_result)
            ep = await two.connect(one.address())
            other = await there
            got = bytearray(4)
            await other.send(b"pong")
            await ep.recv(got)
            self.assertEqual(got, b"pong")

    async def test_a_coroutine_is_called_for_each_endpoint(self):
        async def echo(ep):
            got = bytearray(8)
            await ep.send(memoryview(got)[:await ep.recv(got)])

        async with weft.Worker() as one, weft.Worker() as two:
            listener = one.listen(echo)
            for _ in range(3):
                ep = await two.connect(listener.uri)
                got = bytearray(8)
                await ep.send(b"echo")
                self.assertEqual(await ep.recv(got), 4)

    async def test_nobody_listens(self):
        async with weft.Worker(settings={"log.level": "none"}) as worker:
            with self.assertRaises(weft.RefusedError) as caught:
                await worker.connect(("127.0.0.1", 1))
            self.assertIsInstance(caught.exception, ConnectionRefusedError)
            self.assertEqual(caught.exception.name, "WEFT_ERR_REFUSED")
            self.assertIn("127.0.0.1:1", str(caught.exception))
            with self.assertRaises(weft.AddressError):
                await worker.connect("no uri")

    async def test_what_is_no_address_is_named(self):
        async with weft.Worker() as worker:
            for to in (5, None, ["127.0.0.1", 7000]):
                with self.assertRaisesRegex(TypeError, "a URI, .*, not " + re.escape(repr(to))):
                    await worker.connect(to)

    async def test_a_listener_refuses_and_its_address_is_taken(self):
        async with weft.Worker(settings={"log.level": "none"}) as one, weft.Worker(settings={"log.level": "none"}) as two:
            asked = []
            listener = one.listen(accepts=lambda peer: asked.append(peer))
            with self.assertRaises(weft.RejectedError):
                await two.connect(listener.uri)
            self.assertIn("127.0.0.1", asked[0])
            with self.assertRaises(weft.ExistsError):
                two.listen(port=listener.port)
            listener.close()
            with self.assertRaises(weft.ClosedError):
                await listener.accept()

    async def test_a_listener_queues_as_many_as_its_backlog(self):
        for backlog, room in ((2, 3), (64, 8)):  # the system lets one more in
            worker = weft.Worker(settings={"log.level": "none"})
            listener = worker.listen(backlog=backlog)
            with contextlib.ExitStack() as dialers:  # nothing drives the worker: none is accepted
                sockets = [dialers.enter_context(socket.socket()) for _ in range(8)]
                for dialer in sockets:
                    dialer.setblocking(False)
                    dialer.connect_ex((listener.host, listener.port))
                let_in, ends = [], time.monotonic() + 60
                while len(let_in) < room and time.monotonic() < ends:  # not all at once on a busy machine
                    let_in += select.select([], [each for each in sockets if each not in let_in], [], 1)[1]
                waiting = [each for each in sockets if each not in let_in]
                self.assertEqual((len(let_in), select.select([], waiting, [], 0.1)[1]), (room, []))
            with self.assertRaises(weft.InvalidParamError):
                worker.listen(backlog=-1)
            await worker.close()

    async def test_a_listening_socket_goes_from_one_worker_to_the_next(self):
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as inherited:
            port, uri = inherited.getsockname()[1], "tcp://@%d" % inherited.fileno()
            async with weft.Worker() as one, weft.Worker() as two, weft.Worker() as client:
                first = one.listen(uri=uri)
                ep = await client.connect(("127.0.0.1", port))
                old = await first.accept()
                first.close()
                between = asyncio.ensure_future(two.connect(("127.0.0.1", port)))  # waits in the socket's queue
                await asyncio.sleep(0)
                second = client.listen(uri=uri)
                new = await second.accept()
                await between
                await old.send(b"old")
                got = bytearray(3)
                self.assertEqual(await ep.recv(got), 3)
                self.assertTrue(new.alive)
                second.close()

    async def test_bytes_of_any_kind_are_an_address_or_a_key(self):
        async with weft.Worker() as one, weft.Worker() as two:
            ep = await two.connect(bytearray(one.address()))
            region = one.alloc(8)
            remote = weft.rma.Remote(ep, bytearray(region.key()))
            await remote.put(b"12345678", remote=True)
            self.assertEqual(bytes(memoryview(region)), b"12345678")
            with self.assertRaisesRegex(weft.InvalidParamError, "5 bytes at .* region, 8 bytes at"):
                await remote.put(b"12345", 4)

    async def test_wrong_types_are_named(self):
        async with weft.Worker() as worker:
            with self.assertRaisesRegex(TypeError, "port is an int, not '7000'"):
                await worker.connect(("127.0.0.1", "7000"))
            with self.assertRaisesRegex(TypeError, "settings are strings: 'worker.spin': 1000"):
                weft.Worker(settings={"worker.spin": 1000})
            for exchange in ("runs", None, True):
                with self.assertRaisesRegex(weft.InvalidParamError, "exchange %r: not" % exchange):
                    await weft.teams.create(worker, exchange)

    async def test_describe_says_how(self):
        async with pair() as (client, server):
            info = client.describe()
            self.assertEqual(info["connected_by"], "tcp")
            self.assertTrue(info["why"] and info["peer"])


class Mistakes(Case):
    """What a program gives by mistake is refused at once, by a text that says what is wanted."""

    async def test_what_cannot_be_called_is_no_handler(self):
        async with weft.Worker() as worker:
            with weft.graph.Graph(n_threads=1) as graph:
                calls = {"listen": lambda: worker.listen("tcp://127.0.0.1:0"), "on_connect": lambda: worker.on_connect(5),
                         "am_handler": lambda: worker.am_handler(1, 5), "add": lambda: graph.add(1),
                         "allocator": lambda: worker.register_am_allocator(None)}
                for name, call in calls.items():
                    with self.subTest(name), self.assertRaisesRegex(TypeError, "function|called"):
                        call()
            with self.assertRaises(TypeError):
                worker.am_handler("1", print)
            ep = worker.connect_now(worker.listen().uri)
            with self.assertRaisesRegex(TypeError, "function"):
                ep.on_close = 5
            ep.on_close = None
            worker.on_connect(None)
            worker.am_handler(1, None)

    async def test_what_is_no_peer_or_deadline_says_what_is(self):
        async with weft.Worker() as worker:
            for peer in (None, 7000, ("127.0.0.1",), ("127.0.0.1", 1, 2), ["127.0.0.1", 1]):
                with self.subTest(peer), self.assertRaisesRegex(TypeError, "a peer is a URI"):
                    await worker.connect(peer)
            for peer, wanted in ((("127.0.0.1", "1"), "a port is an int"), ((127, 1), "a host is a str")):
                with self.subTest(peer), self.assertRaisesRegex(TypeError, wanted):
                    await worker.connect(peer)
            with self.assertRaisesRegex(TypeError, "seconds are a number"):
                await worker.recv(bytearray(1), 1, deadline="3")
            with self.assertRaisesRegex(weft.UnsupportedError, "'udp' .* is no scheme .* self, shm, tcp"):
                await worker.connect("udp://127.0.0.1:1")

    def test_what_is_no_coroutine_is_not_run(self):
        async def nothing():
            pass

        with weft.Worker() as worker:
            for other in (5, nothing, None):
                with self.assertRaisesRegex(TypeError, "run drives a coroutine"):
                    worker.run(other)
            self.assertIsNone(worker.run(nothing()))

    async def test_a_text_is_no_memory(self):
        async with pair() as (client, _):
            with self.assertRaisesRegex(TypeError, "encode"):
                await client.send("hello")
            with self.assertRaisesRegex(TypeError, "send_obj"):
                await client.send({})

    async def test_objects_say_what_they_are(self):
        async with weft.Worker(name="mine") as worker:
            self.assertIn("'mine'", repr(worker))
            listener = worker.listen()
            self.assertIn(listener.uri, repr(listener))
            ep = worker.connect_now(listener.uri)
            self.assertRegex(repr(ep), r"Endpoint \d+ to 127.0.0.1:%d by \w+: connecting>" % listener.port)
            server = await listener.accept()
            await ep.ready()
            self.assertTrue(repr(ep).endswith("ready>") and repr(server).endswith("ready>"))
            self.assertEqual(repr(await weft.teams.create(worker, exchange="self")), "<weft.Team: rank 0 of 1>")
            said = []
            other = threading.Thread(target=lambda: said.extend(map(repr, (worker, listener, ep))))
            other.start()
            other.join()
            self.assertEqual(len(said), 3)
            region = worker.alloc(4096)
            self.assertRegex(repr(region), r"^<weft.Memory: 4096 bytes at 0x[0-9a-f]+>$")
            remote = weft.rma.Remote(ep, server.worker.alloc(64).key())
            self.assertEqual(repr(remote), "<weft.rma.Remote: 64 bytes over %r>" % ep)
            await weft.rma.release(region)
            self.assertTrue(repr(region).endswith(", released>"))
            self.assertEqual(repr(weft.Block(8)), "<weft.Block: 8 bytes>")
            await ep.close()
            listener.close()
            self.assertTrue(repr(ep).endswith(": closed>") and repr(listener).endswith(": closed>"))
        self.assertTrue(repr(worker).endswith(": closed>"))


class Ending(Case):
    async def test_the_peers_receive_ends_when_the_endpoint_is_closed(self):
        async with pair() as (client, server):
            waits = asyncio.ensure_future(server.recv(bytearray(1)))
            await asyncio.sleep(0)
            await client.close()
            with self.assertRaises(weft.PeerClosedError):
                await waits
            self.assertFalse(server.alive)
            with self.assertRaises(weft.PeerClosedError):
                await server.recv(bytearray(1))

    async def test_what_a_close_callback_raises_is_unraisable(self):
        def raises(ep, error):
            raise ValueError(repr(error))

        said = []
        with unittest.mock.patch("sys.unraisablehook", lambda args: said.append((args.exc_value, args.object))):
            for end in (weft.Endpoint.close, weft.Endpoint.abort):
                async with pair() as (client, server):
                    client.on_close = server.on_close = raises
                    ended = end(client)
                    if ended is not None:
                        await ended
                    self.assertTrue(not client.alive)
                    async with asyncio.timeout(60):
                        while server.alive:
                            await asyncio.sleep(0.01)
        self.assertEqual([(type(error), of) for error, of in said], [(ValueError, raises)] * 4)
        self.assertEqual([str(said[at][0]) for at in (0, 2)], ["None"] * 2)
        self.assertTrue(said[0][0].__traceback__)

    async def test_the_close_of_a_worker_calls_the_close_callbacks_of_its_endpoints(self):
        for destroys in (False, True):
            one, two = weft.Worker(settings={"log.level": "none"}), weft.Worker(settings={"log.level": "none"})
            listener, seen = one.listen(), []
            kept = [await two.connect(listener.uri) for _ in range(3)]
            kept[0].on_close = kept[1].on_close = lambda ep, error: seen.append((ep, error))
            await kept[0].close()
            two.destroy() if destroys else await two.close()
            self.assertEqual(seen, [(kept[0], None), (kept[1], None)])
            await one.close()

    async def test_what_was_sent_before_the_close_is_still_received(self):
        async with pair() as (client, server):
            lost = asyncio.get_running_loop().create_future()
            server.on_close = lambda ep, error: lost.set_result(error)
            await client.send(b"last", 2)
            await client.close()
            self.assertIsInstance(await lost, weft.PeerClosedError)
            got = bytearray(4)
            self.assertEqual(await server.recv(got, 2), 4)

    async def test_own_operations_end_when_the_endpoint_is_closed_or_aborted(self):
        for abort in (False, True):
            async with pair() as (client, server):
                waits = asyncio.ensure_future(client.recv(bytearray(1)))
                await asyncio.sleep(0)
                client.abort() if abort else await client.close()
                with self.assertRaises(weft.ClosedError):
                    await waits
                with self.assertRaises(weft.ClosedError):
                    await client.send(b"x")
                await client.close()

    async def test_an_abort_ends_a_close_that_has_begun(self):
        async with pair(settings={"close.timeout": "100s"}) as (client, server):
            sending = asyncio.ensure_future(client.send_tag(bytes(8 << 20), 5))  # no one receives it
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(client.close())
            await asyncio.sleep(0.05)
            self.assertFalse(closing.done() or client.closed)
            client.abort()
            client.abort()
            await asyncio.wait_for(closing, 60)
            self.assertTrue(client.closed)
            with self.assertRaises(weft.ClosedError):
                await sending
            client.abort()

    async def test_cancelling_a_task_cancels_its_operation(self):
        async with pair() as (client, server):
            got = bytearray(4)
            waits = asyncio.ensure_future(server.recv(got, 1))
            await asyncio.sleep(0)
            waits.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waits
            got.extend(b"free")  # nobody holds the buffer any more
            await client.send(b"next", 1)
            again = bytearray(4)
            await server.recv(again, 1)
            self.assertEqual((bytes(again), bytes(got)), (b"next", b"\0\0\0\0free"))

    async def test_a_deadline_ends_an_operation(self):
        async with pair() as (client, server):
            with self.assertRaises(TimeoutError) as caught:
                await server.recv(bytearray(1), deadline=0.02)
            self.assertIsInstance(caught.exception, weft.TimedOutError)
            await client.send(b"x")
            self.assertEqual(await server.recv(bytearray(1), deadline=10), 1)

    async def test_a_worker_that_closes_ends_everything_of_it(self):
        async with weft.Worker() as one:
            two = weft.Worker()
            listener = one.listen()
            ep = await two.connect(listener.uri)
            waits = asyncio.ensure_future(ep.recv(bytearray(1)))
            await asyncio.sleep(0)
            await two.close()
            with self.assertRaises(weft.ClosedError):
                await waits
            self.assertTrue(ep.closed and two.closed)
            for call in (two.fd, two.address, two.progress, ep.describe):
                with self.assertRaises(weft.ClosedError):
                    call()
            await two.close()

    async def test_endpoints_that_nobody_refers_to_are_closed(self):
        async with weft.Worker() as one, weft.Worker() as two:
            listener = one.listen()
            ep = await two.connect(listener.uri)
            server = await listener.accept()
            waits = asyncio.ensure_future(server.recv(bytearray(1)))
            del ep
            gc.collect()
            with self.assertRaises(weft.PeerClosedError):
                await waits

    async def test_a_killed_peer_is_noticed_at_once(self):
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
        uri = child.stdout.readline().strip()
        async with weft.Worker(settings={"log.level": "none"}) as worker:
            ep = await worker.connect(uri)
            waits = asyncio.ensure_future(ep.recv(bytearray(1)))
            await asyncio.sleep(0)
            began = time.monotonic()
            os.kill(child.pid, signal.SIGKILL)
            with self.assertRaises(weft.PeerFailedError):
                await waits
            self.assertLess(time.monotonic() - began, 20)
        child.communicate()

    @unittest.skipIf("STALLS_SEED" in os.environ, "a stall continues what the test has stopped")
    async def test_a_stopped_client_is_lost_to_a_listener_with_heartbeats(self):
        async with weft.Worker(settings={"log.level": "none"}) as worker:
            listener = worker.listen(heartbeat=0.25)
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", WAITS, listener.uri)
            ep = await listener.accept()
            with self.assertRaises(weft.TimedOutError):
                await ep.recv(bytearray(1), deadline=1)
            child.send_signal(signal.SIGSTOP)
            with self.assertRaises(weft.PeerFailedError):
                await ep.recv(bytearray(1), deadline=60)
            child.kill()
            await child.wait()

    async def test_a_process_that_leaves_without_closing_ends_at_once(self):
        async with weft.Worker(settings={"log.level": "none"}) as worker:
            listener = worker.listen()
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", LEAVES, listener.uri)
            ep = await listener.accept()
            with self.assertRaises(ConnectionError):
                await ep.recv(bytearray(1))
            self.assertEqual(await child.wait(), 0)


WAITS = """
import asyncio, sys, weft
async def main():
    async with weft.Worker() as worker:
        ep = await worker.connect(sys.argv[1])
        await ep.recv(bytearray(1))
asyncio.run(main())
"""

CHILD = """
import asyncio, weft
async def main():
    worker = weft.Worker(settings={"log.level": "none"})
    listener = worker.listen()
    print(listener.uri, flush=True)
    ep = await listener.accept()
    await ep.recv(bytearray(1))
asyncio.run(main())
"""
LEAVES = """
import asyncio, sys, time, weft
async def main():
    global worker, ep
    worker = weft.Worker(settings={"log.level": "none"})
    ep = await worker.connect(sys.argv[1])
    asyncio.ensure_future(ep.recv(bytearray(1)))
    await asyncio.sleep(0)
asyncio.run(main())
"""


class Alarm(Exception):
    """What a handler of a signal raises."""


def refused(calls):
    """How many of them raise WrongThreadError on this thread."""
    count = 0
    for call in calls:
        try:
            call()
        except weft.WrongThreadError:
            count += 1
    return count


def refused_elsewhere(calls):
    counts = []
    thread = threading.Thread(target=lambda: counts.append(refused(calls)))
    thread.start()
    thread.join()
    return counts[0]


class Plain(unittest.TestCase):
    """Without asyncio."""

    def test_a_coroutine_is_driven_without_a_loop(self):
        with weft.Worker() as one, weft.Worker() as two:
            listener = one.listen()
            ep = two.connect_now(listener.uri)
            got = bytearray(5)

            async def send():
                await ep.send(b"hello")

            async def receive():
                server = await listener.accept()
                await server.recv(got)

            # Two workers on one thread: each is driven while the other has to answer.
            receiver, sender = receive(), send()
            drive([(sender, two), (receiver, one)])
            self.assertEqual(got, b"hello")

    def test_the_descriptor_is_readable_while_there_is_work_and_only_then(self):
        with weft.Worker() as one, weft.Worker() as two:
            listener = one.listen()
            seen = []
            listener._handler = seen.append
            ep = two.connect_now(listener.uri)
            while not (seen and ep._is_ready and ep._peer_number):
                for fd in select.select([one.fd(), two.fd()], [], [])[0]:
                    (one if fd == one.fd() else two).progress()
            while one.progress() + two.progress():
                pass
            self.assertEqual(select.select([one.fd(), two.fd()], [], [], 0)[0], [])

    @contextlib.contextmanager
    def on_alarm(self, handler):
        old = signal.signal(signal.SIGALRM, handler)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)

    def test_a_signal_ends_a_wait(self):
        def handler(number, frame):
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Alarm

        with weft.Worker() as worker, self.on_alarm(handler):
            began = time.monotonic()
            with self.assertRaises(Alarm):
                # More than one: the first may come an instruction before the sleep.
                signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
                worker.wait(60000)
            self.assertLess(time.monotonic() - began, 30)
            self.assertFalse(worker.wait(1))
            worker.wake()
            self.assertTrue(worker.wait(20000))

    def test_a_signal_that_comes_before_the_sleep_of_a_wait_ends_it(self):
        """A thread sends it that takes the interpreter's lock between the wait's first look and its sleep."""
        def handler(number, frame):
            raise Alarm

        def send():
            go_on.acquire()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

        go_on = threading.Lock()
        with weft.Worker(unlock=True) as worker, self.on_alarm(handler):
            go_on.acquire()
            thread = threading.Thread(target=send)
            thread.start()
            began = time.monotonic()
            # The thread asks for the lock while the sum is made. Between that and the wait no line of Python gives it away.
            ms = map(sum, [itertools.repeat(0, 10**7)], [60000])
            waits = map(worker.wait, ms)
            with self.assertRaises(Alarm):
                go_on.release()
                next(waits)
            thread.join()
            self.assertLess(time.monotonic() - began, 30)

    def test_what_the_handler_of_a_signal_raises_ends_the_wait_of_a_busy_worker(self):
        """Most of the time it comes within the library, and the next code of Python is a callback's."""
        lost, handled = [], []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda it: lost.append(it.exc_value)

        def handler(number, frame):
            raise KeyboardInterrupt

        async def both():
            listener = worker.listen()
            return await worker.connect(listener.uri), await listener.accept()

        async def talk():
            while True:
                await ep.send(b"x")
                await server.recv(bytearray(1))

        async def call():
            while True:
                await ep.am(5, b"x")
                await worker.flush()

        with weft.Worker() as worker, self.on_alarm(handler):
            worker.am_handler(5, lambda ep, message: handled.append(message.bytes()))
            ep, server = worker.run(both())
            for _ in range(5):
                for busy in talk, call:
                    with self.assertRaises(KeyboardInterrupt):
                        signal.setitimer(signal.ITIMER_REAL, 0.01)
                        worker.run(busy())
        self.assertEqual(lost, [])
        self.assertTrue(handled)

    def interrupt_the_next_failure(self):
        """As a signal would whose handler raises while the class of the failure is made."""
        def trace(frame, event, arg):
            if frame.f_code is weft.errors.make.__code__:
                sys.settrace(None)
                raise KeyboardInterrupt

        self.addCleanup(sys.settrace, sys.gettrace())
        sys.settrace(trace)

    def test_an_interrupt_while_a_failure_is_made_ends_the_call_that_drives(self):
        """Perhaps no task awaits the failure's future, as with that of a wait that was given up."""
        with weft.Worker() as worker:
            request = worker.tag_recv(bytearray(1), 5, 2**64 - 1)
            request.future = future = weft._drivers.PollFuture()
            request.cancel()
            self.interrupt_the_next_failure()
            with self.assertRaises(KeyboardInterrupt):
                worker.wait(20000)
            self.assertTrue(request.done)
            with self.assertRaises(weft.errors.CancelledError):
                next(future.__await__())

    def test_an_endpoint_is_lost_although_an_interrupt_comes_while_its_failure_is_made(self):
        async def both():
            listener = worker.listen()
            return await worker.connect(listener.uri), await listener.accept()

        with weft.Worker() as worker:
            ep, server = worker.run(both())
            ep.abort()
            self.interrupt_the_next_failure()
            with self.assertRaises(KeyboardInterrupt):
                while server.alive:
                    worker.wait(20000)
                worker.wait(0)
            self.assertIsInstance(server.error, weft.WeftError)

    def test_an_exit_in_a_callback_ends_the_call_that_drives(self):
        def handler(ep, message):
            handled.append(message.bytes())
            raise SystemExit(7)

        handled = []
        with weft.Worker() as worker:
            worker.am_handler(5, handler)

            async def both():
                listener = worker.listen()
                return await worker.connect(listener.uri), await listener.accept()

            ep, server = worker.run(both())
            for number, drives in enumerate((worker.progress, worker.wait, worker.spin)):
                ep.am_send(b"x", 5, b"")
                with self.assertRaises(SystemExit) as caught:
                    while True:
                        drives()
                self.assertEqual((caught.exception.code, len(handled)), (7, number + 1))
            worker.polls = True
            ep.am_send(b"x", 5, b"")
            with self.assertRaises(SystemExit):
                worker.tag_recv(bytearray(1), 5, 2**64 - 1, 20000)
            worker.polls = False

    def test_signals_whose_handlers_return_do_not_prolong_a_wait(self):
        handled = []
        with weft.Worker() as worker, self.on_alarm(lambda number, frame: handled.append(number)):
            began = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
            self.assertFalse(worker.wait(200))
            self.assertLess(time.monotonic() - began, 30)
        self.assertTrue(handled)

    def test_a_handler_of_a_signal_may_destroy_the_worker_that_waits(self):
        said = subprocess.run([sys.executable, "-c", """
import signal, weft
worker = weft.Worker()
signal.signal(signal.SIGALRM, lambda number, frame: worker.destroy())
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
woken = worker.wait(60000)
signal.setitimer(signal.ITIMER_REAL, 0)  # the end of an interpreter takes its handlers back first
print(woken)
"""], capture_output=True, text=True, timeout=200)
        self.assertEqual((said.returncode, said.stdout), (0, "True\n"), said.stderr)

    def test_another_thread_may_not_use_the_worker(self):
        with weft.Worker() as worker:
            self.assertEqual(refused_elsewhere([worker.address]), 1)

    def test_another_thread_may_not_close_a_listener(self):
        with weft.Worker() as worker:
            accepted = []
            listener = worker.listen(accepted.append)
            uri = listener.uri
            self.assertEqual(refused_elsewhere([listener.close]), 1)
            self.assertFalse(listener.closed)
            worker.run(worker.connect(uri))
            self.assertEqual(len(accepted), 1)
            listener.close()
            with self.assertRaises(weft.RefusedError):
                worker.run(worker.connect(uri))

    def test_another_thread_may_not_drive_a_worker_whose_own_thread_is_in_the_library(self):
        with weft.Worker(unlock=True) as worker:
            view = worker.run(weft.view.open(worker))
            calls, counts = [worker.progress, worker.spin, worker.wait, lambda: view.at(0)], []
            worker.polls = True
            thread = threading.Timer(0.02, lambda: counts.append(refused(calls * 10)))
            thread.start()
            with self.assertRaises(weft.TimedOutError):
                worker.tag_recv(bytearray(1), 5, 2**64 - 1, 500)
            thread.join()
            self.assertEqual(counts, [40])
            worker.run(view.release())

    def test_threads_each_with_a_loop_and_a_worker(self):
        uris, done = [], []
        there = threading.Barrier(2, timeout=60)

        async def serve():
            async with weft.Worker(unlock=True) as worker:
                listener = worker.listen()
                uris.append(listener.uri)
                there.wait()
                ep = await listener.accept()
                got = bytearray(1 << 20)
                for _ in range(20):
                    await ep.recv(got)
                    await ep.send(got)
                done.append(1)

        async def ask():
            there.wait()
            async with weft.Worker(unlock=True) as worker:
                ep = await worker.connect(uris[0])
                data, got = bytes(range(256)) * 4096, bytearray(1 << 20)
                for _ in range(20):
                    await ep.send(data)
                    await ep.recv(got)
                assert got == data
                done.append(2)

        threads = [threading.Thread(target=asyncio.run, args=(each(),)) for each in (serve, ask)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(done), [1, 2])

    def test_nothing_is_left_after_a_hundred_lives(self):
        async def life():
            async with pair() as (client, server):
                await client.send(b"x" * 100)
                await server.recv(bytearray(100))
                return weakref.ref(client), weakref.ref(client.worker)

        for _ in range(5):
            asyncio.run(life())
        gc.collect()
        before, fds = len(gc.get_objects()), len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            refs = asyncio.run(life())
        gc.collect()
        self.assertEqual([ref() for ref in refs], [None, None])
        self.assertLess(len(gc.get_objects()) - before, 200)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), fds)

    def test_a_request_of_no_operation_can_be_looked_at(self):
        worker = weft.Worker(transports="self")
        worker.run(worker.flush())
        # Only the garbage collector knows it: it waits for the next operation.
        spare = [one for one in gc.get_objects() if type(one) is weft._core.Request and not one.done and one.worker is None]
        self.assertTrue(spare)
        for request in spare:
            self.assertEqual((request.future, request.cancel()), (None, None))
            with self.assertRaises(ReferenceError):
                request.result()
        del spare, request
        worker.run(worker.close())

    def test_what_a_future_raises_does_not_pass_for_the_workers(self):
        raised = []

        class Odd:
            def done(self):
                raise OSError("no answer")

            def set_exception(self, error):
                raised.append(type(error))

        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda it: raised.append(type(it.exc_value))
        with weft.Worker(transports="self") as worker:
            request = worker.tag_recv(bytearray(1), 5, 2**64 - 1)
            request.future = Odd()
            request.cancel()
            while not request.done:
                worker.progress()
        self.assertEqual(raised, [OSError, weft.CancelledError])

    def test_a_listener_may_go_while_it_decides(self):
        said = subprocess.run([sys.executable, "-c", """
import functools, weft
one, two = (weft.Worker(settings={"log.level": "none"}) for _ in range(2))
listeners, lost = [], []
def decide(peer, much):
    listeners.pop()
    raise OSError
listeners.append(one.post_listen("tcp://127.0.0.1:0", print, functools.partial(decide, much=bytearray(100))))
ep = two.connect_now(listeners[0].uri)
while listeners:
    two.progress()
    one.progress()
for _ in range(10):
    two.progress()
    one.progress()
print("end")
"""], capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONMALLOC": "debug"})
        self.assertEqual((said.returncode, said.stdout), (0, "end\n"), said.stderr)

    def test_texts_that_are_no_utf8_hide_no_error(self):
        for pad in ("", "x"):  # the library cuts a long text, perhaps within a character
            with self.assertRaises(weft.InvalidParamError):
                weft.Context({"log.level": pad + "\u00e9" * 500})
            with weft.Worker(transports="self") as worker, self.assertRaises(weft.WeftError):
                worker.connect_now("tcp://" + pad + "\u00e9" * 500)
        os.environb[b"WEFT_TCP_KEY_FILE"] = b"/no\xff"
        self.addCleanup(os.environ.pop, "WEFT_TCP_KEY_FILE", None)
        rows = {row["name"]: row["value"] for row in weft.Context().settings()}
        self.assertEqual(rows["tcp.key_file"], "/no\ufffd")

    def test_a_zero_within_a_text_ends_it_not(self):
        with weft.Worker(transports="self") as worker, self.assertRaises(ValueError):
            worker.connect_now("tcp://127.0.0.1:7000\0")
        with self.assertRaises(ValueError):
            weft.Context({"log.level": "info\0"})

    def test_a_further_interpreter_has_no_weft(self):
        import importlib

        for name in ("_interpreters", "_xxsubinterpreters"):
            with contextlib.suppress(ImportError):
                interpreters = importlib.import_module(name)
                break
        else:
            self.skipTest("no further interpreters here")
        runs = getattr(interpreters, "run_string", None) or interpreters.exec
        other = interpreters.create()
        code = "import sys; sys.path[:0] = %r\ntry: import weft\nexcept ImportError: pass\nelse: raise OSError" % sys.path
        self.assertIsNone(runs(other, code))
        interpreters.destroy(other)

    def test_settings_are_listed_and_checked(self):
        context = weft.Context({"log.level": "info"})
        rows = {row["name"]: row for row in context.settings()}
        self.assertEqual((rows["log.level"]["value"], rows["log.level"]["origin"]), ("info", "params"))
        with self.assertRaises(weft.InvalidParamError):
            weft.Context({"link.rails": "77"})

    def test_each_status_has_its_class(self):
        names = {"TimedOutError": TimeoutError, "PeerFailedError": ConnectionResetError, "NoMemoryError": MemoryError}
        for name, also in names.items():
            self.assertTrue(issubclass(getattr(weft, name), (weft.WeftError,)) and issubclass(getattr(weft, name), also))
        self.assertEqual(len(weft.errors.__all__), 1 + 35)
        for name in weft.errors.__all__:
            error = getattr(weft, name)("why")
            self.assertIs(type(type(error).__new__(type(error), "why")), type(error))
            other = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(other), str(other), other.status), (type(error), "why", error.status))


def drive(pairs):
    left = list(pairs)
    while left:
        for item in list(left):
            coroutine, worker = item
            try:
                coroutine.send(None)
            except StopIteration:
                left.remove(item)
            for _, other in pairs:
                other.progress()


if __name__ == "__main__":
    unittest.main()
