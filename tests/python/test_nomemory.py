"""The interpreter has no memory: an operation raises MemoryError or its own error, and what waits for it goes on."""
import subprocess
import sys
import unittest

try:
    import _testcapi
except ImportError:
    _testcapi = None

# Each operation runs with the n-th allocation failing, then all after it, until one run has had memory enough. set_nomemory
# takes first and last: 0 is all from there on.
PROGRAM = """
import sys, _testcapi, weft, weft.rma, weft.view
from weft import teams
from weft.graph import Graph

which, lasting = sys.argv[1], int(sys.argv[2])
settings = {"log.level": "none"}
one, two = weft.Worker(settings=settings), weft.Worker(settings=settings)


def turn(holds=lambda: True):
    for _ in range(100000):
        one.progress(), two.progress()
        if holds():
            return
    raise SystemExit("it does not go on")


def done(request):
    if not hasattr(request, "done"):
        return request  # it ended within its call
    turn(lambda: request.done)
    return request.result()


def send_to(request, tag):
    try:
        done(client.tag_send(data, tag))
    except BaseException:
        request.cancel()
        raise
    return request


accepted = []
listener = one.post_listen("tcp://127.0.0.1:0", accepted.append)
client = two.post_connect(listener.uri)
client._join()
turn(lambda: accepted)
server = accepted[0]
region = one.alloc(4096)
key = client.unpack_key(region.key())
key_bytes, uri, data = region.key(), listener.uri, bytes(100)
got, all_tags = bytearray(100), 0xFFFFFFFFFFFFFFFF
team = done(one.post_team(None))
graph = Graph(1)
task = graph.add(lambda: 5)
view = done(one.post_view("single"))
seen = []
one.am_handler(7, lambda ep, message: seen.append((message.header, message.bytes())))


class Future:
    value = None

    def done(self):
        return self.value is not None

    def set_result(self, value):
        self.value = (value,)

    set_exception = set_result


# CPython 3.13 crashes by itself where it makes a function without memory, so these are made before.
def ignore(*_):
    pass


def give_own(mine, finish):
    finish(mine)


def send():
    done(client.tag_send(data, 3))

def receive():
    return send_to(one.tag_recv(got, 4, all_tags), 4)

def probe():
    return one.tag_probe(9, all_tags), one.tag_take(9, all_tags)

def reported():
    request = one.tag_recv(got, 1 << 40, all_tags)
    try:
        request.future = future
    except BaseException:
        request.cancel()
        raise
    return send_to(request, 1 << 40)

def message():
    client.am_send(data, 7, b"header")

def put():
    return client.post_put(data, key.base, key)

def get():
    return client.post_get(got, key.base, key)

def atomic():
    return client.post_atomic(0, 8, 1, 0, True, key.base, key)

def strided():
    return client.tag_send(memoryview(data)[::2], 6)

def pieces():
    return client.tag_send([data, data, data], 6)

def registered():
    return two.register(got)

def allocated():
    return two.alloc(4096).key()

def unpacked():
    return client.unpack_key(key_bytes).describe()

def listens():
    return two.post_listen("tcp://127.0.0.1:0", print).close()

def connects():
    ep = two.post_connect(uri)
    ep._ready = ep._lost = ignore
    return ep

def described():
    return client.describe(), region.describe(), two.describe(), two.counters(), two.transports(), two.address(), team.describe()

def of_team():
    return team.member(0), team.algorithm(0, 0, 0), team.invite()

def subset():
    return team.post_subset((0,))

def hardware():
    return view.at(0), view.mine()

def adds():
    return graph._core.add(print, (), 0, "name", 0, -1, -1, False, -1, -1)

def result():
    return graph._core.result(task)

def datatype():
    return team.datatype(8, 8, 0, 0, 0, None), team.reduction(print, 8, True)

def collective():
    return team.post((0, 0, 0, 0, None, None, 0, (None,) * 4, False, None, None), 0, 0)

def block():
    return weft.Block(1000) if hasattr(weft, "Block") else None

def teams_made():
    return one.post_team(None)

def exchanged():
    return one.post_team((0, 1, give_own))

def makes_worker():
    return weft._core.Worker(one_context, None, None, False)

one_context = weft.Context(settings)
graph.run_wait()
operation = globals()[which]
for n in range(300):
    future = Future()
    request = None
    sys.stderr.flush()
    _testcapi.set_nomemory(n, 0 if lasting else n + 1)
    try:
        request = operation()
        for _ in range(20):
            one.progress(), two.progress()
        failed = False
    except (MemoryError, weft.WeftError):
        failed = True
    except SystemError as error:
        _testcapi.remove_mem_hooks()
        raise
    _testcapi.remove_mem_hooks()
    if hasattr(request, "done"):
        turn(lambda: request.done)
        try:
            request.result()
        except (MemoryError, weft.WeftError):
            pass
    if which == "reported" and request is not None:
        turn(future.done)
    del request
    for _ in range(5):
        one.progress(), two.progress()
    while one.tag_probe(0, 0):  # what a receive that was cancelled did not take
        done(one.tag_recv(bytearray(1000), 0, 0))
    if not failed and n > 60:
        break
# All goes on.
client.tag_send(data, 1)
assert done(one.tag_recv(got, 1, all_tags)) == (100, 1)
print("went on", flush=True)
"""

RUN = """
import _testcapi, weft
from weft.graph import Graph
worker, graph = weft.Worker(), Graph(1)
task = graph.add(lambda: 5)
graph.run_wait()
_testcapi.set_nomemory(0, 1)
try:
    request = graph._core.post_run(worker)
except MemoryError:
    _testcapi.remove_mem_hooks()
    print(graph.result(task))
"""

ACCEPTED = """
import _testcapi, weft
settings = {"log.level": "none"}
one, two = weft.Worker(settings=settings), weft.Worker(settings=settings)
accepted, lost = [], []
listener = one.post_listen("tcp://127.0.0.1:0", accepted.append)
class Endpoint(weft._core.Endpoint):
    def _ready(self):
        pass
    def _lost(self, error):
        lost.append(error)
two.endpoint_type = Endpoint
for n in range(40):
    ep = two.post_connect(listener.uri)
    for _ in range(200):
        _testcapi.set_nomemory(n, n + 1)
        try:
            one.progress()
        except MemoryError:
            pass
        finally:
            _testcapi.remove_mem_hooks()
        two.progress()
    for _ in range(100000):
        if accepted or lost:
            break
        one.progress(), two.progress()
    else:
        raise SystemExit("neither accepted nor lost: %d" % n)
    accepted.clear(), lost.clear()
    ep.post_close()
print("each was accepted or lost")
"""

OPERATIONS = [line[4:-3] for line in PROGRAM.splitlines() if line.startswith("def ") and line.endswith("():")]


@unittest.skipUnless(_testcapi and hasattr(_testcapi, "set_nomemory"), "no _testcapi here")
class NoMemory(unittest.TestCase):
    def run_all(self, lasting):
        wrong = []
        for name in OPERATIONS:
            ran = subprocess.run([sys.executable, "-c", PROGRAM, name, str(lasting)], capture_output=True, text=True,
                                 timeout=200)
            if (ran.returncode, ran.stdout) != (0, "went on\n") or "SystemError" in ran.stderr:
                wrong.append((name, ran.returncode, ran.stdout, ran.stderr[-1000:]))
        self.assertEqual(wrong, [])

    # Tasks are left out: a thread of a graph that finds no memory for its thread state is the interpreter's fatal error.
    def test_a_run_that_could_not_begin_keeps_the_results(self):
        ran = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=200)
        self.assertEqual((ran.returncode, ran.stdout), (0, "5\n"), ran.stderr[-3000:])

    def test_an_endpoint_that_has_no_object_is_closed(self):
        ran = subprocess.run([sys.executable, "-c", ACCEPTED], capture_output=True, text=True, timeout=200)
        self.assertEqual((ran.returncode, ran.stdout), (0, "each was accepted or lost\n"), ran.stderr[-3000:])

    def test_one_allocation_that_fails(self):
        self.run_all(0)

    def test_all_allocations_from_one_on_fail(self):
        self.run_all(1)


if __name__ == "__main__":
    unittest.main()
