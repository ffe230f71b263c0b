"""A thousand calls of each kind leave nothing behind: no block of the interpreter's, no memory of the library."""
import asyncio
import gc
import os
import sys
import unittest

import weft
import weft.rma
import weft.view
from pair import Case, pair
from weft import teams
from weft.graph import Graph

CALLS = 1000

# AddressSanitizer keeps what is freed (256 MiB of it), so there memory in use says nothing.
MEMORY_SAYS = os.environ.get("WEFT_TEST_SANITIZER") != "asan"


def resident_kib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4


async def grows_by(call, times):
    """Blocks and KiB that `times` calls left, after as many that filled what is kept."""
    for _ in range(times):
        await call()
    await asyncio.sleep(0.02)
    gc.collect()
    blocks, kib = sys.getallocatedblocks(), resident_kib()
    for _ in range(times):
        await call()
    await asyncio.sleep(0.02)
    gc.collect()
    return sys.getallocatedblocks() - blocks, resident_kib() - kib


@unittest.skipUnless(sys.getallocatedblocks(), "the interpreter counts no blocks")
class Repeats(Case):
    async def holds(self, call, times=CALLS):
        blocks, kib = await grows_by(call, times)
        self.assertLess(blocks, times / 4, call.__name__)
        if MEMORY_SAYS:
            self.assertLess(kib, 8 * times + 2048, call.__name__)

    async def test_what_stays_is_seen(self):
        kept = []

        async def keeps():
            kept.append(object())

        blocks, _ = await grows_by(keeps, CALLS)
        self.assertGreaterEqual(blocks, CALLS / 2)

    async def test_messages(self):
        async with pair() as (client, server):
            into, long, long_into = bytearray(64), bytearray(300000), bytearray(300000)

            async def short():
                received = asyncio.ensure_future(server.recv(into, tag=5))
                await client.send(b"x" * 32, tag=5)
                await received

            async def offered():
                received = asyncio.ensure_future(server.recv(long_into, tag=6))
                await client.send(long, tag=6)
                await received

            async def cancelled():
                received = asyncio.ensure_future(server.recv(into, tag=7))
                await asyncio.sleep(0)
                received.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await received

            async def refused():
                with self.assertRaises(TypeError):
                    await client.send(object(), tag=5)

            async def flush():
                await client.flush()

            for call in (short, cancelled, refused, flush):
                await self.holds(call)
            await self.holds(offered, 200)

    async def test_memory(self):
        async with pair() as (client, server):
            memory, word = server.worker.alloc(4096), bytearray(64)
            remote = weft.rma.Remote(client, memory.key())

            async def put():
                await remote.put(word)

            async def get():
                await remote.get(word)

            async def region():
                client.worker.register(bytearray(100)).key()

            async def key():
                weft.rma.Remote(client, memory.key())

            async def no_key():
                with self.assertRaises(weft.WeftError):
                    weft.rma.Remote(client, b"no key")

            for call in (put, get, region, key, no_key):
                await self.holds(call)

    async def test_lives(self):
        async with pair() as (client, server):

            async def team():
                made = await teams.create(client.worker, "self")
                await made.barrier()
                await made.close()

            async def graph():
                with Graph(1) as made:
                    made.add(lambda: 5)
                    made.run_wait()

            async def endpoint():
                made = await client.worker.connect(server.worker.address())
                await made.close()

            for call in (team, graph, endpoint):
                await self.holds(call, 200)

        async def worker():
            made = weft.Worker(settings={"log.level": "none"})
            await made.close()

        async def view_that_is_left():
            made = weft.Worker(settings={"log.level": "none"})
            (await weft.view.open(made)).push_finalizer(lambda: None)
            await made.close()

        await self.holds(worker, 100)
        await self.holds(view_that_is_left, 100)


if __name__ == "__main__":
    unittest.main()
