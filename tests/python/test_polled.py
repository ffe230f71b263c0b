"""A worker that polls: each operation drives it until it has ended, within its call."""
import signal
import subprocess
import sys
import threading
import unittest

import weft
import weft.view
from weft.rma import Remote

PEER = """
import sys, weft
worker = weft.Worker(polls=True)
ep = worker.run(worker.connect(sys.argv[1]))
got = bytearray(1 << 20)
while True:
    n = worker.run(ep.recv(got))
    if not n:
        break
    worker.run(ep.send(memoryview(got)[:n]))
worker.destroy()
"""


class Polled(unittest.TestCase):
    def test_operations_end_within_their_calls(self):
        with weft.Worker(polls=True) as worker:
            listener = worker.listen()
            peer = subprocess.Popen([sys.executable, "-c", PEER, listener.uri])
            ep = worker.run(listener.accept())
            got = bytearray(1 << 20)
            for size in (1, 8, 1024, 1 << 20):
                for _ in range(5):
                    self.assertIsNone(worker.run(ep.send(b"x" * size)))
                    self.assertEqual(worker.run(ep.recv(got)), size)
            there = ep._peer_number << 32
            self.assertIsNone(ep.tag_send(b"direct", there))
            self.assertEqual(worker.tag_recv(got, ep._number << 32, 2**64 - 1), (6, ep._number << 32))
            self.assertIsNone(ep.tag_send(b"", there))
            while peer.poll() is None:  # over tcp a message that was taken leaves in a later turn
                worker.progress()
            self.assertEqual(peer.returncode, 0)

    def test_errors_are_raised_by_the_call(self):
        with weft.Worker(polls=True) as worker:
            with self.assertRaises(weft.TimedOutError):
                worker.tag_recv(bytearray(1), 5, 2**64 - 1, 20)
            with self.assertRaises(weft.RefusedError):
                worker.run(worker.connect("tcp://127.0.0.1:1"))

    def test_a_wait_looks_at_memory_without_arming_the_descriptor_each_time(self):
        with weft.Worker(polls=True) as worker:
            worker.fd()  # as a loop would watch it
            before = worker.counters()["worker.sleeps"]
            with self.assertRaises(weft.TimedOutError):
                worker.tag_recv(bytearray(1), 5, 2**64 - 1, 50)
            self.assertLess(worker.counters()["worker.sleeps"] - before, 500)

    def test_remote_memory_within_one_call(self):
        with weft.Worker() as worker, weft.Worker() as owner:
            listener = owner.listen()
            region = owner.alloc(4096)
            ep = worker.connect_now(listener.uri)
            while not ep._peer_number:
                owner.progress()
                worker.progress()
            worker.polls = True
            remote = Remote(ep, region.key())
            worker.run(remote.put(b"mapped"))  # has left this side
            while not memoryview(region)[0]:
                owner.progress()
                worker.progress()
            self.assertEqual(bytes(memoryview(region)[:6]), b"mapped")
            del remote

    def test_a_handler_of_a_signal_ends_the_wait_and_other_threads_run(self):
        def interrupt(number, frame):
            raise KeyboardInterrupt

        old = signal.signal(signal.SIGUSR1, interrupt)
        try:
            with weft.Worker(polls=True) as worker:
                ran = threading.Event()
                main = threading.main_thread().ident

                def other():
                    ran.set()
                    signal.pthread_kill(main, signal.SIGUSR1)

                thread = threading.Timer(0.05, other)
                thread.start()
                got = bytearray(1)
                with self.assertRaises(KeyboardInterrupt):
                    worker.tag_recv(got, 5, 2**64 - 1)
                thread.join()
                self.assertTrue(ran.is_set())
                for _ in range(10):
                    worker.progress()  # the cancelled receive gives its buffer back
                got.append(1)
        finally:
            signal.signal(signal.SIGUSR1, old)

    def test_a_handler_within_progress_does_not_wait(self):
        with weft.Worker(polls=True) as worker:
            said = []
            worker.am_handler(3, lambda ep, message: said.append(worker.tag_recv(bytearray(1), 77, 2**64 - 1)))
            listener = worker.listen()
            ep = worker.connect_now(listener.uri)
            worker.run(ep.am(3, b"x"))
            while not said:
                worker.progress()
            self.assertIsInstance(said[0], weft.Request)
            said[0].cancel()
            while not said[0].done:
                worker.progress()

    def test_a_request_that_a_callback_has_got_stays_that_of_its_operation(self):
        with weft.Worker() as worker:
            view = worker.run(weft.view.open(worker))
            held = []
            view.push_finalizer(lambda: held.append(view._core.post_release()))
            worker.polls = True
            self.assertIsNone(view._core.post_release())
            self.assertIsInstance(held[0], weft.Request)
            for _ in range(3):
                with self.assertRaises(weft.TimedOutError):
                    worker.tag_recv(bytearray(1), 5, 2**64 - 1, 1)
            self.assertTrue(held[0].done)
            self.assertEqual((held[0].result(), held[0].worker), (None, worker))

    def test_a_handler_that_asks_for_progress_is_still_within_progress(self):
        with weft.Worker(polls=True) as worker:
            said = []

            def handler(ep, message):
                try:
                    worker.progress()
                except weft.BusyError as error:
                    said.append(error)
                try:
                    said.append(worker.tag_recv(bytearray(1), 77, 2**64 - 1))
                except weft.BusyError as error:
                    said.append(error)

            worker.am_handler(3, handler)
            listener = worker.listen()
            ep = worker.connect_now(listener.uri)
            worker.run(ep.am(3, b"x"))
            while not said:
                worker.progress()
            self.assertIsInstance(said[0], weft.BusyError)
            self.assertIsInstance(said[1], weft.Request)
            said[1].cancel()
            while not said[1].done:
                worker.progress()


if __name__ == "__main__":
    unittest.main()
