"""python/bench/compare.py [OPTIONS]: Weft for Python beside ucxx, pyzmq, asyncio's and uvloop's streams, and a bare socket
under them, in one run.

Half round trips between two processes, each on a core of its own, by size; and messages a second over 100 connections. Peers
that are not installed are left out. The package is found by PYTHONPATH. Each pair of programs is run several times in turn,
and the median of the medians is printed, with its ratio to Weft's.
"""
from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = {8: 4000, 1024: 4000, 65536: 1500, 1 << 20: 200}  # bytes: round trips
CONNECTIONS, MESSAGES = 100, 40  # of the test with many endpoints: connections, round trips on each, of 1 KiB


LIMIT = 4 << 20  # of the streams' buffers: with the default, 64 KiB, they take many times as long for 1 MiB

# ---- the peers: each has connect(where) and serve(one, ready), and pairs of send(buffer) and recv(buffer) ----


class Weft:
    over, eager = "tcp", False

    async def serve(self, one, ready):
        import weft

        worker = weft.Worker(settings={"log.level": "error"}, eager=self.eager)

        async def accepted(ep):
            await one(ep.send, ep.recv)
            await ep.flush()

        listener = worker.listen(accepted, uri="shm://compare-%d" % os.getpid() if self.over == "shm" else None)
        ready(listener.uri)
        self.kept = worker, listener

    async def connect(self, where):
        import weft

        if not hasattr(self, "worker"):
            self.worker = weft.Worker(settings={"log.level": "error"}, eager=self.eager)
        ep = await self.worker.connect(where)
        return ep.send, ep.recv


class WeftShm(Weft):
    over = "shm"


class EagerShm(WeftShm):
    eager = True


class Eager(Weft):
    eager = True


class Streams:
    def calls(self, reader, writer):
        async def send(buffer):
            writer.write(buffer)
            await writer.drain()

        async def recv(buffer):
            buffer[:] = await reader.readexactly(len(buffer))

        return send, recv

    async def serve(self, one, ready):
        async def accepted(reader, writer):
            await one(*self.calls(reader, writer))

        self.server = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=LIMIT)
        ready(str(self.server.sockets[0].getsockname()[1]))

    async def connect(self, where):
        return self.calls(*await asyncio.open_connection("127.0.0.1", int(where), limit=LIMIT))


class Bare:
    """What asyncio itself takes: a socket that is watched by add_reader, whose callback reads and sets a Future."""

    def calls(self, connection):
        loop, want, future = asyncio.get_running_loop(), memoryview(b""), None
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def readable():
            nonlocal want
            if len(want):
                want = want[connection.recv_into(want):]
                if not len(want):
                    future.set_result(None)

        async def send(buffer):
            sent = connection.send(buffer)
            if sent < len(buffer):
                await loop.sock_sendall(connection, memoryview(buffer)[sent:])

        async def recv(buffer):
            nonlocal want, future
            want, future = memoryview(buffer), loop.create_future()
            await future

        loop.add_reader(connection, readable)
        return send, recv

    async def serve(self, one, ready):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            ready(str(server.getsockname()[1]))
            connection, _ = await asyncio.get_running_loop().sock_accept(server)
        await one(*self.calls(connection))

    async def connect(self, where):
        return self.calls(socket.create_connection(("127.0.0.1", int(where))))


class Zmq:
    def calls(self, socket):
        async def recv(buffer):
            buffer[:] = (await socket.recv(copy=False)).buffer

        return lambda buffer: socket.send(buffer, copy=len(buffer) < 65536), recv

    async def serve(self, one, ready):
        import zmq.asyncio

        self.context = zmq.asyncio.Context()
        socket = self.context.socket(zmq.PAIR)
        ready(str(socket.bind_to_random_port("tcp://127.0.0.1")))
        await one(*self.calls(socket))

    async def connect(self, where):
        import zmq.asyncio

        self.context = zmq.asyncio.Context()
        socket = self.context.socket(zmq.PAIR)
        socket.connect("tcp://127.0.0.1:" + where)
        return self.calls(socket)


class Ucxx:
    async def serve(self, one, ready):
        import ucxx

        async def accepted(ep):
            self.ep = ep
            await one(as_array(ep.send), as_array(ep.recv))

        self.listener = ucxx.create_listener(accepted)
        ready(str(self.listener.port))

    async def connect(self, where):
        import ucxx

        self.ep = await ucxx.create_endpoint("127.0.0.1", int(where))
        return as_array(self.ep.send), as_array(self.ep.recv)


def as_array(call):
    import numpy

    return lambda buffer: call(numpy.frombuffer(buffer, "u1"))


PEERS = {"weft shm": WeftShm, "weft tcp": Weft, "eager shm": EagerShm, "eager tcp": Eager, "ucxx": Ucxx, "streams": Streams, "bare": Bare, "zmq": Zmq}
NEEDS = {"ucxx": "ucxx", "zmq": "zmq"}
MANY = ("weft shm", "weft tcp", "streams")


# ---- the two sides ----


async def answer(options, send, recv):
    if options.many:
        buffer = bytearray(1024)
        for _ in range(MESSAGES):
            await recv(buffer)
            await send(buffer)
        return
    for size in SIZES:
        buffer = bytearray(size)
        for _ in range(SIZES[size] + SIZES[size] // 10):
            await recv(buffer)
            await send(buffer)


async def serve(options):
    left = CONNECTIONS if options.many else 1
    ended = asyncio.get_running_loop().create_future()

    async def one(send, recv):
        nonlocal left
        await answer(options, send, recv)
        left -= 1
        if left == 0:
            await asyncio.sleep(0.2)
            ended.set_result(None)

    peer = PEERS[options.serve]()
    await peer.serve(one, lambda where: print("at " + where, flush=True))
    await ended


async def ask(options, name, where):
    peer, found = PEERS[name](), {}
    if options.many:
        calls = [await peer.connect(where) for _ in range(CONNECTIONS)]

        async def talk(send, recv):
            buffer = bytearray(1024)
            for _ in range(MESSAGES):
                await send(buffer)
                await recv(buffer)

        began = time.perf_counter()
        await asyncio.gather(*(talk(*pair) for pair in calls))
        return {"messages a second": 2 * CONNECTIONS * MESSAGES / (time.perf_counter() - began)}
    send, recv = await peer.connect(where)
    for size in SIZES:
        data, buffer, times = bytearray(os.urandom(size)), bytearray(size), []
        for _ in range(SIZES[size] + SIZES[size] // 10):
            began = time.perf_counter_ns()
            await send(data)
            await recv(buffer)
            times.append(time.perf_counter_ns() - began)
        if data != buffer:
            raise SystemExit("%s: other bytes came back" % name)
        found["%d B" % size] = statistics.median(times[SIZES[size] // 10:]) / 2000
    return found


def run(options, name, loop):
    os.sched_setaffinity(0, {options.cores[0]})
    arguments = [sys.executable, __file__, "--serve", name, *(["--many"] if options.many else []),
                 *(["--uvloop"] if loop else [])]
    peer = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True,
                            preexec_fn=lambda: os.sched_setaffinity(0, {options.cores[1]}))
    where = next((line[3:].strip() for line in peer.stdout if line.startswith("at ")), "")
    child = subprocess.run([*arguments, "--where", where], stdout=subprocess.PIPE, text=True, timeout=120)
    peer.kill()
    peer.wait()
    found = [line for line in child.stdout.splitlines() if line.startswith("{")]
    return json.loads(found[0]) if found else {}


def enter(coroutine, uvloop):
    factory = None
    if uvloop:
        import uvloop as fast

        factory = fast.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cores", type=lambda text: [int(each) for each in text.split(",")], default=[0, 1])
    parser.add_argument("--times", type=int, default=3, help="runs of each pair of programs")
    parser.add_argument("--many", action="store_true", help="messages of 1 KiB a second over 100 connections")
    parser.add_argument("--uvloop", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.where is not None:
        found = enter(ask(options, options.serve, options.where), options.uvloop)
        print(json.dumps(found), flush=True)
        os._exit(0)  # a peer's threads must not keep the process
    if options.serve:
        enter(serve(options), options.uvloop)
        os._exit(0)
    rows = [(name, loop) for loop in (False, True) for name in (MANY if options.many else PEERS)
            if importlib.util.find_spec(NEEDS.get(name, "asyncio")) and not (loop and (name == "ucxx" or
                                                                             not importlib.util.find_spec("uvloop")))]
    found = {row: [] for row in rows}
    for _ in range(options.times):
        for row in rows:
            found[row].append(run(options, *row))
    for loop in (False, True):
        base = None
        for name, _ in (row for row in rows if row[1] == loop):
            runs = [each for each in found[name, loop] if each]
            if not runs:
                print("%-18s did not end well" % name)
                continue
            medians = {key: statistics.median(each[key] for each in runs) for key in runs[0]}
            base = base or medians
            print("%-18s" % (name + (" uvloop" if loop else "")),
                  "  ".join("%s %10.1f (%.2f)" % (key, value, base[key] / value) for key, value in medians.items()), flush=True)


if __name__ == "__main__":
    main()
