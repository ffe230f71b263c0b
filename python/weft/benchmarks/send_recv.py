"""python -m weft.benchmarks.send_recv [OPTIONS]: round trips of messages between two processes, by size.

The peer is a process that this one starts. What is measured is the interface that a program uses: `await ep.send`,
`await ep.recv` on an event loop, or (--backend polled) the same calls of the core, polled. --backend streams is asyncio's own
streams over tcp, for comparison.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Awaitable, Callable, Iterator

import weft
from weft._program import run

SIZES = (8, 1024, 65536, 1 << 20)
BACKENDS = ("weft", "polled", "streams")
UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
Exchange = Callable[[Any, Any], Awaitable[Any]]


def size_text(size: int) -> str:
    scale, unit = next(pair for pair in UNITS if size >= pair[0])
    return "%g %s" % (size / scale, unit)


def rounds_of(size: int, seconds: float) -> int:
    """Round trips that take about so long on any machine of today; at least 20."""
    return max(20, int(seconds / (20e-6 + size / 1e9)))


# ---- the two sides ----


async def answer(exchange: Exchange, reply: Exchange, seconds: float, sizes: list[int]) -> None:
    for size in sizes:
        buffer = bytearray(size)
        for _ in range(rounds_of(size, seconds) + warm_up(size)):
            await exchange(buffer, size)
            await reply(buffer, size)


def warm_up(size: int) -> int:
    return 200 if size <= 65536 else 10


async def measure(send: Exchange, receive: Exchange, seconds: float, sizes: list[int], progress: Callable[[float], None]) -> \
        list[dict[str, Any]]:
    """Half round trips of each size: a row with median, 99th percentile and mean in µs, and bandwidth in MB/s."""
    rows = []
    for place, size in enumerate(sizes):
        data, buffer = bytearray(os.urandom(size)), bytearray(size)
        times = []
        count = rounds_of(size, seconds)
        for number in range(count + warm_up(size)):
            began = time.perf_counter_ns()
            await send(data, size)
            await receive(buffer, size)
            times.append(time.perf_counter_ns() - began)
            if number % 256 == 0:
                progress((place + number / count) / len(sizes))
        rows.append(row_of(size, times, data == buffer))
    progress(1)
    return rows


def row_of(size: int, times: list[int], came_back: bool) -> dict[str, Any]:
    """A row of round trips in ns."""
    if not came_back:
        raise SystemExit("send_recv: other bytes came back")
    halves = sorted(each / 2000 for each in times[warm_up(size):])
    median = statistics.median(halves)
    return {"size": size, "round_trips": len(halves), "median_us": median, "mean_us": statistics.fmean(halves),
            "p99_us": halves[len(halves) * 99 // 100], "bandwidth_mb_s": size / median}


async def weft_pair(ep: weft.Endpoint) -> tuple[Exchange, Exchange]:
    async def send(buffer: Any, size: int) -> None:
        await ep.send(buffer)

    async def receive(buffer: Any, size: int) -> None:
        await ep.recv(buffer)

    return send, receive


def polled(ep: weft.Endpoint, worker: weft.Worker) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The core's calls on a worker that polls: each ends within its call."""
    there, here, everything = ep._peer_number << 32, ep._number << 32, 0xFFFFFFFFFFFFFFFF
    tag_send, tag_recv = ep.tag_send, worker.tag_recv
    return lambda buffer: tag_send(buffer, there), lambda buffer: tag_recv(buffer, here, everything)


def answer_polled(ep: weft.Endpoint, worker: weft.Worker, seconds: float, sizes: list[int]) -> None:
    send, receive = polled(ep, worker)
    for size in sizes:
        buffer = bytearray(size)
        for _ in range(rounds_of(size, seconds) + warm_up(size)):
            receive(buffer)
            send(buffer)


def measure_polled(ep: weft.Endpoint, worker: weft.Worker, seconds: float, sizes: list[int]) -> list[dict[str, Any]]:
    send, receive = polled(ep, worker)
    rows, now = [], time.perf_counter_ns
    for size in sizes:
        data, buffer = bytearray(os.urandom(size)), bytearray(size)
        times = []
        for _ in range(rounds_of(size, seconds) + warm_up(size)):
            began = now()
            send(data)
            receive(buffer)
            times.append(now() - began)
        rows.append(row_of(size, times, data == buffer))
    return rows


def stream_pair(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Exchange, Exchange]:
    async def send(buffer: Any, size: int) -> None:
        writer.write(buffer)
        await writer.drain()

    async def receive(buffer: Any, size: int) -> None:
        buffer[:] = await reader.readexactly(size)

    return send, receive


async def serve(options: argparse.Namespace) -> None:
    """The peer: says where it listens, on one line, and answers one connection."""
    if options.backend == "streams":
        ended = asyncio.get_running_loop().create_future()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            send, receive = stream_pair(reader, writer)
            await answer(receive, send, options.seconds, options.sizes)
            writer.close()
            ended.set_result(None)

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await ended
        return
    async with weft.Worker(transports=options.transports) as worker:
        listener = worker.listen(uri=listen_at(options))
        print(listener.uri, flush=True)
        ep = await listener.accept()
        await ep._until(lambda: ep._peer_number != 0)
        if options.backend == "polled":
            worker.polls = True
            answer_polled(ep, worker, options.seconds, options.sizes)
            worker.polls = False
        else:
            send, receive = await weft_pair(ep)
            await answer(receive, send, options.seconds, options.sizes)
        await ep.close()


def listen_at(options: argparse.Namespace) -> str | None:
    return "shm://send-recv-%d" % os.getpid() if options.over == "shm" else None


async def ask(options: argparse.Namespace, where: str) -> list[dict[str, Any]]:
    if options.backend == "streams":
        reader, writer = await asyncio.open_connection("127.0.0.1", int(where))
        try:
            return await measure(*stream_pair(reader, writer), options.seconds, options.sizes, options.bar)
        finally:
            writer.close()
    async with weft.Worker(transports=options.transports) as worker:
        ep = await worker.connect(where)
        if options.backend == "polled":
            await ep._until(lambda: ep._peer_number != 0)
            worker.polls = True
            return measure_polled(ep, worker, options.seconds, options.sizes)
        return await measure(*await weft_pair(ep), options.seconds, options.sizes, options.bar)


# ---- what is printed ----


def bar(done: float) -> None:
    if sys.stderr.isatty():
        filled = int(done * 40)
        end = "\n" if done >= 1 else ""
        print("\r[%s%s] %3d %%" % ("#" * filled, " " * (40 - filled), done * 100), end=end, file=sys.stderr, flush=True)


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "%10s %12s %12s %12s %12s" % ("size", "median µs", "p99 µs", "mean µs", "MB/s")
    for row in rows:
        yield "%10s %12.2f %12.2f %12.2f %12.1f" % (size_text(row["size"]), row["median_us"], row["p99_us"], row["mean_us"],
                                                   row["bandwidth_mb_s"])


def plot(rows: list[dict[str, Any]], title: str) -> str:
    """Medians and 99th percentiles by size as an SVG, both axes logarithmic."""
    import math

    width, height, left, top = 640, 360, 70, 30
    xs = [math.log2(row["size"]) for row in rows]
    ys = [math.log10(row[name]) for row in rows for name in ("median_us", "p99_us")]
    x0, x1, y0, y1 = min(xs), max(xs) + 1e-9, math.floor(min(ys)), math.ceil(max(ys) + 1e-9)

    def at(row: dict[str, Any], name: str) -> tuple[float, float]:
        return (left + (math.log2(row["size"]) - x0) / (x1 - x0) * (width - left - 20),
                height - 40 - (math.log10(row[name]) - y0) / (y1 - y0) * (height - 40 - top))

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">'
             % (width, height), '<rect width="100%" height="100%" fill="white"/>', '<text x="%d" y="18">%s</text>' % (left, title)]
    for power in range(y0, y1 + 1):
        y = height - 40 - (power - y0) / (y1 - y0) * (height - 40 - top)
        parts.append('<path d="M%d %.1fH%d" stroke="#ddd"/><text x="5" y="%.1f">%g µs</text>' % (left, y, width - 20, y + 4, 10.0**power))
    for name, colour in (("median_us", "#2060a0"), ("p99_us", "#c06020")):
        points = [at(row, name) for row in rows]
        parts.append('<polyline fill="none" stroke="%s" points="%s"/>' % (colour, " ".join("%.1f,%.1f" % each for each in points)))
        parts += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (*each, colour) for each in points]
        parts.append('<text x="%.1f" y="%.1f" fill="%s">%s</text>' % (points[-1][0] - 45, points[-1][1] - 8, colour, name[:-3]))
    parts += ['<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (at(row, "median_us")[0], height - 20, size_text(row["size"]))
              for row in rows]
    return "\n".join(parts + ["</svg>"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m weft.benchmarks.send_recv", description=__doc__.split("\n")[0])
    parser.add_argument("--backend", choices=BACKENDS, default="weft")
    parser.add_argument("--over", choices=("tcp", "shm"), default="shm", help="what the endpoint is connected by")
    parser.add_argument("--transports", help="of the workers, as the setting")
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=1, help="about so long for each size")
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="the rows, and what they were measured on; - for standard output")
    parser.add_argument("--svg", metavar="FILE", help="a plot")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.sizes) < 1:
        parser.error("sizes are at least 1 byte")
    options.bar = bar
    factory = None
    if options.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        if options.serve:
            runner.run(serve(options))
            return
        peer = subprocess.Popen([sys.executable, "-m", "weft.benchmarks.send_recv", *sys.argv[1:], "--serve"],
                                stdout=subprocess.PIPE, text=True)
        assert peer.stdout is not None
        try:
            rows = runner.run(ask(options, peer.stdout.readline().strip()))
        except BaseException:
            peer.kill()
            raise
        finally:
            peer.wait()
    over = "tcp" if options.backend == "streams" else options.over
    title = "%s%s over %s, half round trips" % (options.backend, " (uvloop)" if options.uvloop else "", over)
    found = {"title": title, "version": weft.__version__, "python": sys.version.split()[0], "cores": os.cpu_count(), "rows": rows}
    if options.json == "-":
        print(json.dumps(found, indent=1))
    else:
        print(title, *table(rows), sep="\n")
        if options.json:
            with open(options.json, "w") as file:
                json.dump(found, file, indent=1)
    if options.svg:
        with open(options.svg, "w") as file:
            file.write(plot(rows, title))


if __name__ == "__main__":
    run(main)
