"""Threads beside a worker's own: what they may call, and what they are refused while the worker's thread goes on."""
import subprocess
import sys
import threading
import unittest

import weft

BEGIN = """
import threading, weft
settings = {"log.level": "none"}
every_bit, ended, failures = 2**64 - 1, threading.Event(), []
def pair():
    one, two = weft.Worker(settings=settings), weft.Worker(settings=settings)
    accepted = []
    listener = one.listen(accepted.append)
    ep = two.connect_now(listener.uri)
    while not accepted:
        one.progress(), two.progress()
    return one, two, listener, ep, accepted[0]
def over_and_over(*calls):
    try:
        while not ended.is_set():
            for call in calls:
                call()
    except BaseException as error:
        failures.append(error)
def beside(body, *calls):
    threads = [threading.Thread(target=over_and_over, args=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        body()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    print("all rounds")
"""

# Operations of other threads are refused before they take anything that the worker's thread uses.
REFUSED = BEGIN + """
one, two, listener, ep, server = pair()
region = one.alloc(4096)
key = ep.unpack_key(region.key())
view = memoryview(region)
def refused(call, *args):
    def calls():
        try:
            call(*args)
        except weft.WrongThreadError:
            return
        raise AssertionError(call)
    return calls
def rounds():
    got = bytearray(8)
    for turn in range(2000):
        value = turn.to_bytes(8, "little")
        received = one.tag_recv(got, 5, every_bit)
        sent = ep.tag_send(value, 5)
        put = ep.post_put(value, key.base, key, 0, 1)
        while not all(each is None or each.done for each in (received, sent, put)):
            one.progress(), two.progress()
        assert received.result() == (8, 5), received.result()
        assert bytes(got) == value == bytes(view[:8])
beside(rounds, refused(ep.tag_send, b"wrong", 5), refused(one.tag_recv, bytearray(8), 5, every_bit),
       refused(ep.post_put, b"wrong", key.base, key), refused(ep.am_send, b"wrong", 5, b""), refused(region.post_revoke),
       refused(ep.post_flush), refused(ep.describe), refused(key.describe), refused(one.address))
"""

# Any thread asks what a worker and a listener are, while these end.
ASKED = BEGIN + """
def asks(what):
    def calls():
        try:
            getattr(box[0], what)()
        except weft.ClosedError:
            pass
    return calls
def reads_uri():
    try:
        assert box[1].uri.startswith("tcp://127.0.0.1:")
    except weft.ClosedError:
        pass
def make():
    worker = weft.Worker(settings=settings, transports="tcp")
    return worker, worker.listen()
box = make()
def rounds():
    global box
    for turn in range(200):
        worker, listener = box
        if turn % 2:
            listener.close()
        worker.destroy()
        box = make()
beside(rounds, reads_uri, *(asks(what) for what in ("counters", "describe", "transports", "trace", "calibration")))
"""

# The collector ends coroutines on any thread, which then take their future back, or set another.
FUTURES = BEGIN + """
class Future:
    def done(self):
        return False
    def set_result(self, value):
        assert value == (1, 5), value
one, two, listener, ep, server = pair()
box = [one.tag_recv(bytearray(1), 5, every_bit)]
def sets():
    box[0].future = Future()
def takes():
    box[0].future = None
def reads():
    request = box[0]
    future = request.future
    assert future is None or type(future) is Future
    if request.done:
        assert request.result() == (1, 5)
def rounds():
    for _ in range(2000):
        request = box[0]
        ep.tag_send(b"x", 5)
        while not request.done:
            one.progress(), two.progress()
        request.future = Future()
        box[0] = one.tag_recv(bytearray(1), 5, every_bit)
beside(rounds, sets, takes, reads)
"""


def elsewhere(call):
    """What a call on another thread gives or raises."""
    said = []

    def calls():
        try:
            said.append(call())
        except Exception as error:
            said.append(error)

    thread = threading.Thread(target=calls)
    thread.start()
    thread.join()
    return said[0]


class Beside(unittest.TestCase):
    def run_script(self, script):
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=500)
        self.assertEqual((ran.returncode, ran.stdout), (0, "all rounds\n"), ran.stderr[-3000:])

    def test_what_is_refused_takes_nothing_of_the_workers_thread(self):
        self.run_script(REFUSED)

    def test_a_worker_ends_while_other_threads_ask_what_it_is(self):
        self.run_script(ASKED)

    def test_a_request_is_reported_while_other_threads_set_its_future(self):
        self.run_script(FUTURES)


class Refused(unittest.TestCase):
    def test_a_message_is_of_its_handlers_thread(self):
        with weft.Worker(settings={"log.level": "none"}) as one, weft.Worker(settings={"log.level": "none"}) as two:
            accepted, said, queue = [], [], []

            def handler(ep, message):
                for call in (message.bytes, lambda: message.post_recv(bytearray(1)), lambda: message.queue(queue, b"", bytearray(1))):
                    said.append(type(elsewhere(call)))
                said.append(message.bytes())

            one.am_handler(5, handler)
            listener = one.listen(accepted.append)
            ep = two.connect_now(listener.uri)
            ep.am_send(b"x", 5, b"")
            while not said:
                one.progress()
                two.progress()
            self.assertEqual((said, queue), ([weft.WrongThreadError] * 3 + [b"x"], []))
            del ep, listener
            accepted.clear()

    def test_a_key_is_of_its_worker(self):
        with weft.Worker(settings={"log.level": "none"}) as one, weft.Worker(settings={"log.level": "none"}) as two:
            accepted = []
            listener = one.listen(accepted.append)
            ep = two.connect_now(listener.uri)
            region = one.alloc(64)
            while not accepted:
                one.progress()
                two.progress()
            key = ep.unpack_key(region.key())
            with self.assertRaises(weft.InvalidParamError):
                accepted[0].post_put(b"x", key.base, key)
            accepted.clear()

    def test_what_a_worker_calls_is_set_by_its_thread(self):
        def sets(name, value):
            return type(elsewhere(lambda: setattr(worker, name, value)))

        with weft.Worker(settings={"log.level": "none"}) as worker:
            self.assertEqual({sets(*each) for each in (("on_endpoint", print), ("endpoint_type", weft.Endpoint), ("polls", True))},
                             {weft.WrongThreadError})
            self.assertFalse(worker.polls)


if __name__ == "__main__":
    unittest.main()
