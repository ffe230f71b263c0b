"""Collectives with a tag, of some members, persistent, of neighbours; types and reductions of the program's own."""
import array
import asyncio
import gc
import struct
import threading
import unittest
import weakref

import weft
from members import run_members
from pair import Index
from weft import teams

try:
    import numpy
except ImportError:
    numpy = None


class Forms(unittest.TestCase):
    def test_collectives_with_a_tag_match_in_any_order(self):
        async def body(team, worker):
            tags = [5, 6] if team.rank == 1 else [6, 5]
            got = await asyncio.gather(*(team.tagged(tag).allreduce(array.array("q", [tag])) for tag in tags))
            self.assertEqual([list(total) for total in got], [[3 * tag] for tag in tags])
            self.assertEqual(await team.tagged(1 << 63).bcast_obj("all" if team.rank == 2 else None, 2), "all")
            await team.barrier()

        run_members(3, body)

    def test_numbers_that_are_no_ints_count_and_others_are_refused(self):
        async def body(team, worker):
            mine = array.array("B", [team.rank])
            self.assertEqual(list(await team.tagged(Index(4)).allreduce(mine)), [1])
            with self.assertRaises(TypeError):
                await team.allgatherv(mine, [1.0, 1.0])
            for tag in (1 << 64, -1):
                with self.assertRaises(OverflowError):
                    await team.tagged(tag).barrier()
            with self.assertRaises(OverflowError):
                await team.neighbor_alltoallv([1 << 32], [0], mine, [1], [1])
            await team.barrier()
            for flags, agreed in (5, 5), (-1, (1 << 64) - 1):
                self.assertEqual(await team.agree(flags), (agreed, []))
            for flags in (1 << 64, -1 << 64):
                with self.assertRaises(weft.InvalidParamError):
                    await team.agree(flags)
            for nbytes in (1 << 64, -1):
                with self.assertRaises(OverflowError):
                    team.algorithm("allreduce", nbytes)
            for rank, size in (1 << 32, 1), (-1, 1), (0, (1 << 32) + 1):
                with self.assertRaises(weft.WeftError):
                    await teams.create(worker, (rank, size, lambda mine, finish: finish(mine)))

        run_members(2, body)

    def test_some_members_act_while_others_do_not(self):
        async def body(team, worker):
            if team.rank != 1:
                part = team.tagged(3, [0, 2])
                self.assertEqual((part.rank, part.size), (team.rank // 2, 2))
                self.assertEqual(list(await part.allgather(array.array("B", [team.rank]))), [0, 2])
                text = bytearray(b"two" if part.rank == 1 else 3)
                self.assertEqual(await part.bcast(text, root=1), b"two")
                with self.assertRaises(weft.InvalidParamError):
                    await part.bcast(text, root=2)
            for members in ([], [0, 1, 3], [2, 1, 0], [(team.rank + 1) % 3]):
                with self.assertRaises(weft.InvalidParamError):
                    team.tagged(1, members)
            self.assertEqual((team.rank < 3, team.size), (True, 3))
            await team.barrier()

        run_members(3, body)

    def test_a_persistent_collective_runs_with_what_the_arrays_hold(self):
        async def body(team, worker):
            mine = array.array("q", [0])
            total = team.persistent("allreduce", mine)
            text = bytearray(4)
            both = team.tagged(8).persistent("bcast", text, root=1)
            for i in range(50):
                mine[0] = i + team.rank
                self.assertEqual(list(await total.start(deadline=20)), [3 * i + 3])
                if team.rank == 1:
                    text[:] = struct.pack("I", i)
                self.assertEqual(struct.unpack("I", await both.start())[0], i)
            first, second = total.start(), total.start()
            first = asyncio.ensure_future(first)
            await asyncio.sleep(0)
            if not first.done():
                with self.assertRaises(weft.BusyError):
                    await second
            second.close()
            await first
            total.free()
            both.free()
            with self.assertRaises(weft.ClosedError):
                await total.start()
            with self.assertRaises(weft.InvalidParamError):
                team.persistent("no such thing")
            with self.assertRaises(weft.InvalidParamError):
                team.persistent("allreduce", mine, deadline=1)
            await team.barrier()

        run_members(3, body)

    def test_a_second_free_gives_back_no_number_of_another(self):
        with weft.Worker(settings={"log.level": "error"}) as worker:
            team = worker.run(teams.create(worker, "self"))
            op = team.reduction(lambda left, right, out: None, 8)
            mine = memoryview(bytes(8)).cast("q")
            first = team.persistent("allreduce", mine, op=op)
            first.free()
            second = team.persistent("allreduce", mine, op=op)
            first.free()
            third = team.persistent("allreduce", mine, op=op)
            self.assertNotEqual(second._reduction, third._reduction)
            for each in second, third:
                each.free()
            worker.run(team.close())

    def test_a_persistent_collective_that_is_dropped_gives_its_reduction_back(self):
        async def body():
            async with weft.Worker() as worker:
                team = await weft.teams.create(worker, "self")
                op = team.reduction(lambda left, right, out: None, 8)
                mine = array.array("q", [1])
                for _ in range(5000):  # a team has numbers for 4,096
                    await team.persistent("allreduce", mine, op=op).start()
                await team.close()

        asyncio.run(body())

    def test_memory_of_a_persistent_collective_stays(self):
        async def body(team, worker):
            total = team.persistent("allreduce", array.array("q", [team.rank]), array.array("q", [0]))
            gc.collect()
            self.assertEqual(list(await total.start()), [1])
            await team.barrier()

        run_members(2, body)

    def test_neighbours_exchange_along_their_edges(self):
        async def body(team, worker):
            rank, size = team.rank, team.size
            left, right = (rank - 1) % size, (rank + 1) % size
            # a ring with one element to the right and two to the left, and an edge from each member to itself
            got = await team.neighbor_alltoallv([left, right, rank], [right, left, rank],
                                                array.array("i", [rank, 10 + rank, 20 + rank, 30 + rank]), [1, 2, 1], [1, 2, 1])
            self.assertEqual(list(got), [left, 10 + right, 20 + right, 30 + rank])
            got = await team.neighbor_alltoallv([], [], array.array("i"), [], [])
            self.assertEqual(len(got), 0)
            with self.assertRaises(weft.InvalidParamError):
                await team.neighbor_alltoallv([left], [right], array.array("i", [1]), [1, 1], [1])
            persistent = team.persistent("neighbor_alltoallv", [left], [right], array.array("i", [rank]), [1], [1])
            for _ in range(3):
                self.assertEqual(list(await persistent.start()), [left])
            await team.barrier()

        run_members(4, body)

    def test_a_safe_collective_gives_all_one_outcome(self):
        async def body(team, worker):
            self.assertEqual(list(await team.safe.allreduce(array.array("q", [1]))), [3])
            if team.rank == 1:
                await worker.close()
                return
            with self.assertRaises(weft.WeftError):
                while True:
                    await team.safe.allreduce(array.array("q", [1]), deadline=20)

        run_members(3, body)


class Types(unittest.TestCase):
    def test_elements_with_gaps_are_sent_without_them(self):
        async def body(team, worker):
            column = team.datatype(4, strided=(2, 8, 2), extent=16)  # two parts of 2 bytes, 8 apart
            self.assertEqual((column.size, column.span, column.extent), (4, 10, 16))
            self.assertEqual([column.count(n) for n in (0, 9, 10, 25, 26)], [0, 0, 1, 1, 2])
            source = bytes(range(32)) if team.rank == 0 else bytes(32)
            buffer = bytearray(source)
            await team.bcast(buffer, dtype=column)
            wanted = bytearray(32) if team.rank else bytearray(source)
            for at in (0, 8, 16, 24):
                wanted[at:at + 2] = bytes((at, at + 1))
            self.assertEqual(buffer, wanted)
            again = team.persistent("bcast", buffer, root=1, dtype=column)
            for round in range(1, 4):
                before = bytes([round * 16 + team.rank]) * 32
                buffer[:] = before
                await again.start()
                for at in range(32):
                    got = bytes([round * 16 + 1]) if at % 8 < 2 else before[at:at + 1]
                    self.assertEqual(buffer[at:at + 1], got)
            with self.assertRaises(weft.UnsupportedError):
                await team.allgather(bytes(32), dtype=column)
            with self.assertRaises(weft.InvalidParamError):
                team.datatype(5, strided=(2, 8, 2))
            await team.barrier()

        run_members(2, body)

    def test_elements_are_packed_by_objects_of_the_program(self):
        class Reversed:
            """Elements of 3 bytes, which lie in 4, the last byte first."""

            def __init__(self, memory, count):
                self.memory = memory
                assert len(memory) == 4 * count

            def place(self, at):
                return at // 3 * 4 + 2 - at % 3

            def pack(self, offset, to):
                for at in range(len(to)):
                    to[at] = self.memory[self.place(offset + at)]

            def unpack(self, offset, data):
                for at in range(len(data)):
                    self.memory[self.place(offset + at)] = data[at]

        async def body(team, worker):
            rank, size = team.rank, team.size
            dtype = team.datatype(3, layout=Reversed, extent=4)
            self.assertEqual((dtype.count(15), dtype.count(16)), (3, 4))
            mine = bytes((rank, 1, 2, 9, 10 + rank, 4, 5, 9))
            out = bytearray(b"x" * 8 * size)
            self.assertIs(await team.allgather(mine, out, dtype=dtype), out)
            for r in range(size):
                self.assertEqual(out[8 * r:8 * r + 8], bytes((r, 1, 2)) + b"x" + bytes((10 + r, 4, 5)) + b"x")
            plain = bytearray(6)  # the other members see what was packed
            if rank == 0:
                await team.bcast(bytearray(mine), dtype=dtype)
            else:
                await team.bcast(plain, dtype=team.datatype(3))
                self.assertEqual(plain, bytes((2, 1, 0, 5, 4, 10)))
            again = team.persistent("bcast", buffer := bytearray(mine), root=1, dtype=dtype)
            for turn in range(3):
                buffer[:] = bytes([turn, rank, 7, rank])[:4] * 2
                await again.start()
                self.assertEqual(buffer, (bytes([turn, 1, 7]) + bytes([rank])) * 2)
            first = team.reduction(lambda left, right, to: to.__setitem__(slice(None), left), 3)
            await team.allreduce(mine, got := bytearray(8), op=first, dtype=dtype)
            self.assertEqual(got, bytes((0, 1, 2, 0, 10, 4, 5, 0)))
            with self.assertRaises(weft.InvalidParamError):
                team.datatype(3, layout=Reversed, strided=(1, 2, 3))
            with self.assertRaises(weft.UnsupportedError):
                await team.allreduce(mine, op=first, dtype=dtype)
            await team.barrier()

        run_members(3, body)

    def test_what_a_layout_of_elements_raises_ends_the_collective(self):
        class Fails:
            def __init__(self, memory, count):
                self.memory = memory
                if where == "layout":
                    raise KeyError(where)

            def pack(self, offset, to):
                if where == "pack":
                    raise KeyError(where)
                to[:] = self.memory[offset:offset + len(to)]

            def unpack(self, offset, data):
                raise KeyError(where)

        async def body(team, worker):
            dtype = team.datatype(4, layout=Fails)
            if team.rank == 0:
                await team.barrier(deadline=20)
                with self.assertRaisesRegex(KeyError, where):
                    await team.allgather(b"mine", bytearray(8), dtype=dtype, deadline=20)
            else:
                try:
                    await team.barrier(deadline=20)
                    await team.allgather(b"mine", bytearray(8), dtype=team.datatype(4), deadline=20)
                except weft.WeftError:
                    pass
            with self.assertRaises(weft.WeftError):
                await team.barrier(deadline=20)

        for where in ("layout", "pack", "unpack"):
            run_members(2, body)

    def test_a_reduction_of_the_programs_own(self):
        async def body(team, worker):
            def longer(left, right, out):  # of pairs (length, first): the longer one, else the left one
                for at in range(0, len(out), 8):
                    a, b = left[at:at + 8], right[at:at + 8]
                    out[at:at + 8] = a if struct.unpack("ii", a)[0] >= struct.unpack("ii", b)[0] else b

            pair = team.datatype(8)
            longest = team.reduction(longer, 8)
            got = await team.allreduce(struct.pack("iiii", team.rank, 7, -team.rank, team.rank), dtype=pair, op=longest)
            self.assertEqual(struct.unpack("iiii", got), (2, 7, 0, 0))
            persistent = team.persistent("scan", struct.pack("ii", 5 - team.rank, team.rank), dtype=pair, op=longest)
            self.assertEqual(struct.unpack("ii", await persistent.start()), (5, 0))
            with self.assertRaises(weft.InvalidParamError):
                await team.allreduce(array.array("i", [1, 2]), op=longest)
            await team.barrier()

        run_members(3, body)

    def test_what_a_reduction_raises_ends_the_collective(self):
        async def body(team, worker):
            def fails(left, right, out):
                raise KeyError("reduced")

            with self.assertRaises((KeyError, weft.WeftError)) as caught:
                await team.allreduce(array.array("q", [1]), op=team.reduction(fails, 8))
                await team.barrier(deadline=20)
            if isinstance(caught.exception, KeyError):
                self.assertEqual(caught.exception.args, ("reduced",))
            with self.assertRaises(weft.WeftError):
                await team.barrier(deadline=20)

        run_members(2, body)

    def test_what_a_reduction_raises_is_of_its_collective_alone(self):
        reduced, others = threading.Event(), threading.Barrier(3)

        async def body(team, worker):
            def fails(left, right, out):
                reduced.set()
                raise KeyError("reduced")

            def adds(left, right, out):
                out[:] = bytes(a + b for a, b in zip(left, right))

            wrong, right = team.reduction(fails, 1), team.reduction(adds, 1)

            async def failing():
                try:
                    await team.tagged(1).reduce(b"1", op=wrong, deadline=20)
                except weft.WeftError:
                    pass

            # The last member does not take part in the first collective before all have ended the second.
            first = None if team.rank == 2 else asyncio.ensure_future(failing())
            await asyncio.to_thread(reduced.wait, 60)
            self.assertEqual(bytes(await team.tagged(2).allreduce(b"2", op=right, deadline=20)), b"\x96")
            await asyncio.to_thread(others.wait, 60)
            if team.rank == 0:
                with self.assertRaisesRegex(KeyError, "reduced"):
                    await first
            else:
                await (first or failing())

        run_members(3, body, algorithms="reduce:=linear")

    def test_collectives_at_once_with_one_reduction_raise_their_own(self):
        both = threading.Event()

        async def body(team, worker):
            calls = []

            def fails(left, right, out):
                calls.append(left)
                if len(calls) == 2:
                    both.set()
                raise KeyError(right[0])

            op = team.reduction(fails, 1)

            def begin(tag):
                return asyncio.ensure_future(team.tagged(tag).reduce(bytes([tag]), op=op, deadline=20))

            # The root has reduced once in each before the last member takes part, in the second one first.
            if team.rank == 2:
                await asyncio.to_thread(both.wait, 60)
                started = [begin(2), begin(1)]
            else:
                started = [begin(1), begin(2)]
            if team.rank == 0:
                for tag, task in zip((1, 2), started):
                    with self.assertRaises(KeyError) as caught:
                        await task
                    self.assertEqual(caught.exception.args, (tag,))
            else:
                await asyncio.gather(*started, return_exceptions=True)

        run_members(3, body, algorithms="reduce:=linear")

    def test_collectives_one_after_the_other_share_what_their_reduction_takes(self):
        async def body(team, worker):
            op = team.reduction(lambda left, right, out: out.__setitem__(slice(None), left), 1)
            for i in range(5000):  # more than a team has reductions
                await team.allreduce(b"1", op=op, deadline=20)

        run_members(1, body)

    def test_a_reduction_and_a_layout_do_not_keep_their_team(self):
        async def body():
            async with weft.Worker() as worker:
                team = await weft.teams.create(worker, "self")
                team.reduction(lambda left, right, out: team, 8)
                team.datatype(8, layout=lambda memory, count: team)
                await team.close()
                return weakref.ref(team)

        ref = asyncio.run(body())
        gc.collect()
        self.assertIsNone(ref())

    @unittest.skipIf(numpy is None, "no numpy here")
    def test_the_place_of_the_largest_value(self):
        async def body(team, worker):
            for value, index, name in (("f4", "i4", "float32_int32"), ("f8", "i4", "float64_int32"), ("i4", "i4", "int32_int32"),
                                       ("i8", "i4", "int64_int32")):
                dtype = numpy.dtype([("value", value), ("index", index)], align=True)
                mine = numpy.array([(team.rank, team.rank), (-team.rank, team.rank)], dtype)
                got = await team.allreduce(mine, op="maxloc", dtype=name)
                self.assertEqual((got["value"].tolist(), got["index"].tolist()), ([2, 0], [2, 0]))

        run_members(3, body)


if __name__ == "__main__":
    unittest.main()
