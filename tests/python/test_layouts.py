"""Layouts that a program packs itself."""
import asyncio
import gc
import sys
import unittest

import weft
from pair import Case, pair


class Rows(weft.Layout):
    """A list of bytearrays of different lengths, in a row."""

    def __init__(self, rows):
        self.rows, self.calls, self.views = rows, 0, []

    def __len__(self):
        return sum(map(len, self.rows))

    def parts(self, offset, length):
        for row in self.rows:
            here = max(0, min(len(row) - offset, length)) if offset < len(row) else 0
            if here:
                yield row, offset, here
                length -= here
                offset += here
            offset -= len(row)

    def pack(self, offset, to):
        self.calls += 1
        at = 0
        for row, start, n in self.parts(offset, len(to)):
            to[at:at + n] = row[start:start + n]
            at += n

    def unpack(self, offset, data):
        self.views.append(data)
        at = 0
        for row, start, n in self.parts(offset, len(data)):
            row[start:start + n] = data[at:at + n]
            at += n


class Fails(Rows):
    def pack(self, offset, to):
        raise KeyError("pack")

    unpack = pack


def rows(total, pieces=7, fill=True):
    sizes = [total // pieces + 1] * (pieces - 1)
    sizes.append(total - sum(sizes))
    return [bytearray((i + j) % 251 for j in range(n)) if fill else bytearray(n) for i, n in enumerate(max(0, n) for n in sizes)]


class Layouts(Case):
    async def test_messages_of_every_size_are_packed_and_unpacked(self):
        for scheme in ("tcp", "shm"):
            async with pair(scheme=scheme) as (client, server):
                for total in (0, 1, 100, 5000, 300000, 3000000):
                    sent, got = Rows(rows(total)), Rows(rows(total, fill=False))
                    receiving = asyncio.ensure_future(server.recv(got))
                    await client.send(sent)
                    self.assertEqual(await receiving, len(sent))
                    self.assertEqual(got.rows, sent.rows, (scheme, total))
                    # the two sides need not be alike
                    flat = bytearray(len(sent))
                    receiving = asyncio.ensure_future(server.recv(flat))
                    await client.send(sent)
                    await receiving
                    self.assertEqual(flat, b"".join(sent.rows))
                self.assertEqual(weft._core.pack(sent), b"".join(sent.rows))

    async def test_streams_and_remote_memory_take_them(self):
        async with pair() as (client, server):
            sent, got = Rows(rows(10000)), Rows(rows(10000, fill=False))
            receiving = asyncio.ensure_future(server.stream_recv(got, all=True))
            await client.stream_send(sent)
            await receiving
            self.assertEqual(got.rows, sent.rows)
            region = server.worker.alloc(10000)
            remote = weft.rma.Remote(client, region.key())
            await remote.put(sent)
            await remote.flush()
            self.assertEqual(memoryview(region).tobytes()[:len(sent)], b"".join(sent.rows))
            back = Rows(rows(10000, fill=False))
            await remote.get(back)
            self.assertEqual(back.rows, sent.rows)

    async def test_what_a_layout_raises_is_the_operations_error(self):
        async with pair() as (client, server):
            with self.assertRaisesRegex(KeyError, "pack"):
                await client.send(Fails(rows(100)))
            await client.send(b"x" * 100)
            with self.assertRaisesRegex(KeyError, "pack"):
                await server.recv(Fails(rows(100)))
            await client.send(b"after")
            got = bytearray(5)
            await server.recv(got)
            self.assertEqual(got, b"after")

    async def test_a_layout_that_is_kept_holds_no_memory_of_the_library(self):
        async with pair() as (client, server):
            got = Rows(rows(100, fill=False))
            receiving = asyncio.ensure_future(server.recv(got))
            await client.send(Rows(rows(100)))
            await receiving
            with self.assertRaises(ValueError):
                got.views[0][0]
            one, before = Rows(rows(100)), None
            for i in range(200):
                await client.send(one)
                await server.recv(bytearray(100))
                if i == 100:
                    before = sys.getrefcount(one)
            gc.collect()
            self.assertEqual(sys.getrefcount(one), before)

    async def test_a_length_that_raises_ends_the_call(self):
        class NoLength(weft.Layout):
            pass

        async with pair() as (client, server):
            with self.assertRaises(NotImplementedError):
                await client.send(NoLength())


if __name__ == "__main__":
    unittest.main()
