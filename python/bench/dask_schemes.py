"""python/bench/dask_schemes.py [--svg FOLDER] [SCHEME…]: Dask over weft://, tcp:// and ucxx://, on one host, in one run.

A cluster of two processes runs a shuffle, an array transpose and many tiny tasks. The schemes take turns, and the medians are
printed with their ratio to tcp. The first run of each warms up and does not count. --svg writes each work's task stream, the
last run of each scheme, as a picture. A scheme that `distributed` does not find is left out.
"""
from __future__ import annotations

import argparse
import os
import statistics
import time

import distributed

WORKERS = 2


# ---- the works: each takes a client and a size, and waits ----


def rows_of(index, rows):
    """A partition of a table: a key and 7 columns of 8 bytes."""
    import numpy

    table = numpy.random.default_rng(index).random((rows, 8))
    table[:, 0] = numpy.random.default_rng(index + 1).integers(0, 1 << 30, rows)
    return table


def split(table, n):
    """The rows of each new partition, by the hash of their key."""
    import numpy

    to = table[:, 0].astype("i8") * 2654435761 % (1 << 32) % n
    return [numpy.ascontiguousarray(table[to == i]) for i in range(n)]


def join(parts):
    import numpy

    return numpy.concatenate(parts)


def shuffle(client, n=8, rows=200_000):
    """n partitions of 12.8 MB, every row to the partition of its key: about half of the bytes cross to the other process."""
    tables = client.map(rows_of, range(n), rows=rows, pure=False)
    distributed.wait(tables)
    begun = time.perf_counter()
    pieces = client.map(split, tables, n=n, pure=False)
    joined = [client.submit(join, [client.submit(list.__getitem__, piece, i, pure=False) for piece in pieces], pure=False)
              for i in range(n)]
    sizes = client.gather(client.map(len, joined))
    elapsed = time.perf_counter() - begun
    assert sum(sizes) == n * rows, sizes
    return elapsed


def transpose(client, n=5000, chunk=1250):
    """x + x.T of n × n numbers of 8 bytes in square blocks."""
    import dask.array

    x = dask.array.random.random((n, n), chunks=(chunk, chunk)).persist()
    distributed.wait(x)
    begun = time.perf_counter()
    distributed.wait((x + x.T).persist())
    return time.perf_counter() - begun


def tiny(client, n=100_000):
    """n tasks that do nothing, in chunks of calls to map."""
    begun = time.perf_counter()
    futures = client.map(abs, range(n), pure=False, batch_size=10_000)
    distributed.wait(futures)
    return time.perf_counter() - begun


WORKS = {"shuffle": shuffle, "transpose": transpose, "tiny": tiny}


def spent(events):
    """Seconds of all threads: computing, and waiting for data of others."""
    parts = [part for event in events for part in event["startstops"]]
    return tuple(sum(part["stop"] - part["start"] for part in parts if part["action"] == action)
                 for action in ("compute", "transfer"))


# ---- pictures of task streams ----

COLOURS = {"compute": "#3b7dd8", "transfer": "#d8493b", "deserialize": "#e0a030", "disk-write": "#777", "disk-read": "#777"}
WIDTH, ROW = 900, 26


def picture(events, title):
    """The task stream as SVG: a row for each thread of a worker, computing blue, waiting for data of others red."""
    spans = [(event["worker"], event["thread"], part["action"], part["start"], part["stop"])
             for event in events for part in event["startstops"]]
    begin, end = min(span[3] for span in spans), max(span[4] for span in spans)
    scale = WIDTH / max(end - begin, 1e-9)
    rows = {row: number for number, row in enumerate(sorted({span[:2] for span in spans}))}
    # what is closer than half a point is one
    drawn, last = [], {}
    for worker, thread, action, start, stop in sorted(spans, key=lambda span: span[3]):
        x, right = (start - begin) * scale, (stop - begin) * scale
        key = (worker, thread, action)
        before = last.get(key)
        if before is not None and x - before[1] < 0.5:
            before[1] = max(before[1], right)
        else:
            last[key] = before = [x, right, rows[worker, thread], action]
            drawn.append(before)
    height = ROW * len(rows) + 40
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">'
           % (WIDTH + 20, height), '<rect width="100%" height="100%" fill="white"/>',
           '<text x="10" y="16">%s: %.2f s; computing blue, waiting for data red</text>' % (title, end - begin)]
    for x, right, row, action in sorted(drawn, key=lambda one: one[3] == "transfer"):
        out.append('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>'
                   % (10 + x, 24 + row * ROW + (0 if action != "transfer" else 14), max(right - x, 0.3), 12,
                      COLOURS.get(action, "#999")))
    return "\n".join(out + ["</svg>"]) + "\n"


# ---- the runs ----


def run(scheme, works, folder, rounds, warms):
    """(seconds, computing, waiting) of each run of each work."""
    options = {"protocol": scheme, "host": "127.0.0.1"} if scheme != "ucxx" else {"protocol": "ucxx", "interface": "lo"}
    found = {}
    with distributed.LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, **options) as cluster:
        with distributed.Client(cluster) as client:
            for name in works:
                for number in range(0 if warms else 1, rounds + 1):
                    with distributed.get_task_stream(client) as stream:
                        taken = WORKS[name](client)
                    if number:
                        found.setdefault(name, []).append((taken, *spent(stream.data)))
                    if number == rounds and folder:
                        with open(os.path.join(folder, "dask-%s-%s.svg" % (name, scheme)), "w") as file:
                            file.write(picture(stream.data, "%s over %s" % (name, scheme)))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("schemes", nargs="*", default=["tcp", "weft"])
    parser.add_argument("--works", default="shuffle,transpose,tiny")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-warm", dest="warm", action="store_false", help="the first run counts, too")
    parser.add_argument("--svg")
    options = parser.parse_args()
    results = {}
    for turn in range(options.turns):
        for scheme in list(options.schemes):
            try:
                found = run(scheme, options.works.split(","), options.svg if turn == options.turns - 1 else None, options.rounds,
                            options.warm)
            except Exception as error:
                print("%s is left out: %s: %s" % (scheme, type(error).__name__, str(error).split("\n")[0]), flush=True)
                options.schemes.remove(scheme)
                continue
            for name, times in found.items():
                results.setdefault(name, {}).setdefault(scheme, []).extend(times)
    for name, schemes in results.items():
        tcp = statistics.median(run[0] for run in schemes["tcp"]) if "tcp" in schemes else None
        for scheme, runs in schemes.items():
            times, computing, waiting = zip(*runs)
            median = statistics.median(times)
            print("%-10s %-6s %.3f s (%.3f to %.3f), computing %.3f, waiting for data %.3f%s"
                  % (name, scheme, median, min(times), max(times), statistics.median(computing), statistics.median(waiting),
                     "; %.2f of tcp" % (median / tcp) if tcp else ""))


if __name__ == "__main__":
    main()
