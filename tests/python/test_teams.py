"""Teams, collectives, and the view: members are threads with a loop each, or processes."""
import array
import asyncio
import ctypes
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import unittest

import weft
from members import run_members
from weft import teams, view
from weft.info import info
from weft.run import command, find_program

try:
    import numpy
except ImportError:
    numpy = None


class Collectives(unittest.TestCase):
    def test_collectives_of_buffers(self):
        async def body(team, worker):
            rank, size = team.rank, team.size
            await team.barrier(deadline=20)
            mine = array.array("q", [rank, 10 * rank])
            self.assertEqual(list(await team.allreduce(mine)), [3, 30])
            self.assertEqual(list(await team.allreduce(mine, op="max")), [2, 20])
            self.assertEqual(list(await team.scan(mine)), [sum(range(rank + 1)), 10 * sum(range(rank + 1))])
            self.assertEqual(list(await team.allgather(mine)), [0, 0, 1, 10, 2, 20])
            got = await team.gather(mine, root=1)
            self.assertEqual(got and list(got), [0, 0, 1, 10, 2, 20] if rank == 1 else None)
            got = await team.reduce(mine, root=2)
            self.assertEqual(got and list(got), [3, 30] if rank == 2 else None)
            part = array.array("i", [0, 0])
            await team.scatter(array.array("i", range(6)) if rank == 0 else None, part)
            self.assertEqual(list(part), [2 * rank, 2 * rank + 1])
            self.assertEqual(list(await team.alltoall(array.array("i", [10 * rank + r for r in range(3)]))),
                             [10 * r + rank for r in range(3)])
            self.assertEqual(list(await team.reduce_scatter(array.array("i", range(6)))), [3 * (2 * rank), 3 * (2 * rank + 1)])
            text = bytearray(b"root!" if rank == 2 else 5)
            self.assertEqual(await team.bcast(text, 2), b"root!")
            both = array.array("d", [rank])
            self.assertIs(await team.allreduce(both, both), both)
            self.assertEqual(both[0], 3.0)
            await team.fanin()
            await team.fanout()

        run_members(3, body)

    def test_parts_of_different_sizes(self):
        async def body(team, worker):
            rank = team.rank
            counts = [1, 2, 3]
            mine = array.array("i", [rank] * counts[rank])
            self.assertEqual(list(await team.allgatherv(mine, counts)), [0, 1, 1, 2, 2, 2])
            got = await team.gatherv(mine, counts, displs=[5, 3, 0], root=1, out=array.array("i", [9] * 6) if rank == 1 else None)
            self.assertEqual(got and list(got), [2, 2, 2, 1, 1, 0] if rank == 1 else None)
            part = array.array("i", [0] * counts[rank])
            await team.scatterv(array.array("i", range(6)) if rank == 0 else None, counts, part)
            self.assertEqual(list(part), list(range(sum(counts[:rank]), sum(counts[:rank + 1]))))
            self.assertEqual(list(await team.reduce_scatterv(array.array("i", range(6)), counts)),
                             [3 * i for i in range(sum(counts[:rank]), sum(counts[:rank + 1]))])
            out = await team.alltoallv(array.array("i", [rank] * 6), counts, [rank + 1] * 3)
            self.assertEqual(list(out), [r for r in range(3) for _ in range(rank + 1)])

        run_members(3, body)

    def test_what_does_not_fit_is_refused_before_it_is_sent(self):
        async def body(team, worker):
            for call in (team.allreduce(array.array("i", [1, 2]), array.array("i", [0])),
                         team.alltoall(array.array("i", [1])), team.allgatherv(array.array("i", [1]), [1]),
                         team.scatter(array.array("i", [1]), array.array("i", [0]), team.rank)):
                with self.assertRaises(weft.InvalidParamError):
                    await call
            four, bytes_of_one = array.array("d", 4 * [1.0]), bytearray(8)
            for call in (team.allreduce(four, array.array("f", 4 * [0.0])), team.allreduce(four, bytes_of_one),
                         team.allgather(four, bytearray(4 * 8)), team.bcast(bytearray(9), dtype="float64"),
                         team.scatter(array.array("f", 8 * [0.0]), four, team.rank),
                         team.scatterv(bytes(32), [4, 4], array.array("d", 4 * [0.0]), root=team.rank),
                         team.allgatherv(four, [4, 4], array.array("q", 8 * [0])),
                         team.alltoallv(four, [2, 2], [2, 2], bytearray(31))):
                with self.assertRaises(weft.InvalidParamError):
                    await call
            held = bytearray(4 * 8)
            self.assertIs(await team.allreduce(four, held), held)
            self.assertEqual(struct.unpack("4d", held), (2.0,) * 4)
            as_doubles = await team.allreduce(struct.pack("2d", 1.0, 2.0), dtype="float64")
            self.assertEqual(struct.unpack("2d", as_doubles), (2.0, 4.0))
            for how, text in (({"op": "plus"}, "op 'plus': not one of sum, "), ({"dtype": "f8"}, "dtype 'f8': not one of int8, ")):
                with self.assertRaisesRegex(weft.InvalidParamError, text):
                    await team.allreduce(array.array("d", [1]), **how)
            with self.assertRaises((weft.UnsupportedError, ValueError)):
                await team.allreduce(array.array("u", "ab"))
            await team.barrier()

        run_members(2, body)

    def test_elements_that_no_type_has_are_refused(self):
        memory = array.array("d", [0] * 8)

        class Array:
            def __init__(self, typestr):
                self.__array_interface__ = {"shape": (2,), "typestr": typestr, "version": 3,
                                            "data": (memory.buffer_info()[0], False)}

        with weft.Worker() as worker:
            team = worker.run(teams.create(worker, "self"))
            for typestr in (">f8", "|V12", "<M8[s]", "<U2"):
                with self.assertRaises(weft.UnsupportedError):
                    worker.run(team.allreduce(Array(typestr)))
            worker.run(team.bcast(Array("|V12"), dtype="float32"))
            worker.run(team.close())

    def test_elements_have_the_sizes_of_their_names(self):
        for name, number in teams.DATATYPES.items():
            parts = [int(text) // 8 for text in re.findall(r"[0-9]+", name)] or [ctypes.sizeof(ctypes.c_longdouble)]
            size = parts[0] if len(parts) == 1 else 2 * max(parts)  # a pair is aligned
            self.assertEqual(teams._SIZES[number], size, name)

    def test_objects_go_to_all_members(self):
        async def body(team, worker):
            self.assertEqual(await team.bcast_obj({"from": team.rank, "n": list(range(1000))} if team.rank == 1 else None, 1),
                             {"from": 1, "n": list(range(1000))})
            self.assertEqual(await team.allgather_obj("x" * team.rank), ["", "x", "xx"])

        run_members(3, body)

    def test_those_that_are_left_agree_and_go_on(self):
        async def body(team, worker):
            self.assertEqual((team.describe()["size"], team.describe()["status"]), (3, 0))
            if team.rank == 1:
                await team.barrier(deadline=20)
                await worker.close()
                return
            with self.assertRaises(weft.WeftError):
                while True:
                    await team.barrier(deadline=20)
            flags, lost = await team.agree(0b110 if team.rank == 0 else 0b011, deadline=20)
            self.assertEqual((flags, lost), (0b010, [1]))
            self.assertLess(team.describe()["status"], 0)
            left = await team.shrink(deadline=20)
            self.assertEqual((left.size, left.rank), (2, team.rank // 2))
            self.assertEqual(list(await left.allgather(array.array("B", [team.rank]))), [0, 2])
            await left.close()

        run_members(3, body)

    def test_a_team_that_is_revoked_ends_for_all(self):
        async def body(team, worker):
            with self.assertRaises(weft.RevokedError):
                await team.barrier(deadline=20)
                if team.rank == 0:
                    team.revoke()
                await team.barrier(deadline=20)

        run_members(2, body)

    def test_members_send_to_each_other(self):
        async def body(team, worker):
            other = team.endpoint(1 - team.rank)
            self.assertIs(team.endpoint(1 - team.rank), other)
            await other.send_tag(b"from %d" % team.rank, 7)
            got = bytearray(6)
            self.assertEqual(await worker.recv(got, 7), (6, 7))
            self.assertEqual(got, b"from %d" % (1 - team.rank))
            with self.assertRaises(weft.UnsupportedError):
                await other.send(b"x")
            with self.assertRaises(weft.UnsupportedError):
                await other.close()
            for beyond in (2, 2**32, -1):  # no other rank, cut to 32 bits
                with self.assertRaises(weft.InvalidParamError):
                    team.endpoint(beyond)
                with self.assertRaises(weft.InvalidParamError):
                    await team.bcast(bytearray(4), root=beyond)
            await other.flush()
            await team.barrier()
            await team.close()
            self.assertTrue(other.closed)
            with self.assertRaises(weft.ClosedError):
                other.describe()

        run_members(2, body)

    def test_an_endpoint_of_a_team_may_outlive_the_team_and_the_worker(self):
        kept = []

        async def body(team, worker):
            kept.append(team.endpoint(1 - team.rank))
            await team.barrier()
            await team.close()

        run_members(2, body)
        self.assertEqual([ep.closed for ep in kept], [True, True])

    def test_a_split_gives_teams_and_none(self):
        async def body(team, worker):
            part = await team.split(None if team.rank == 2 else 5, key=9 - team.rank)
            if team.rank == 2:
                self.assertIsNone(part)
                return
            self.assertEqual((part.size, part.rank), (2, 1 - team.rank))
            self.assertEqual(list(await part.allgather(array.array("B", [team.rank]))), [1, 0])
            await part.close()

        run_members(3, body)

    def test_a_subset_has_the_order_of_its_list(self):
        async def body(team, worker):
            with self.assertRaises(weft.InvalidParamError):
                await team.subset([0, 3])
            with self.assertRaises(weft.InvalidParamError):
                await team.subset([1, 1])
            part = await team.subset([2, 0], deadline=20)
            if team.rank == 1:
                self.assertIsNone(part)
                return
            self.assertEqual((part.size, part.rank), (2, 1 if team.rank == 0 else 0))
            self.assertEqual(list(await part.allgather(array.array("B", [team.rank]))), [2, 0])
            await part.close()

        run_members(3, body)

    def test_a_team_grows_by_workers_that_are_invited(self):
        async def body(team, worker):
            async def newcomer():
                async with weft.Worker(settings={"log.level": "error"}) as other:
                    joined = await teams.join(other, invitation, deadline=30)
                    self.assertEqual((joined.rank, joined.size), (2, 3))
                    self.assertEqual(list(await joined.allgather(array.array("B", [7]))), [0, 1, 7])
                    await joined.close()

            invitation = team.invite()
            tasks = [asyncio.ensure_future(newcomer())] if team.rank == 1 else []
            grown = await team.grow(1, inviter=1, deadline=30)
            self.assertEqual((grown.rank, grown.size), (team.rank, 3))
            self.assertEqual(grown.describe()["epoch"], team.describe()["epoch"] + 1)
            self.assertEqual(list(await grown.allgather(array.array("B", [team.rank]))), [0, 1, 7])
            await asyncio.gather(*tasks)
            await grown.close()
            await team.barrier(deadline=20)

        run_members(2, body)

    def test_a_team_that_nobody_joins_goes_on(self):
        async def body(team, worker):
            with self.assertRaises(weft.TimedOutError):
                await team.grow(1, deadline=0.1)
            await team.barrier(deadline=20)
            with self.assertRaises(weft.AddressError):
                await teams.join(worker, b"no invitation")
            with self.assertRaises(weft.TimedOutError):
                await teams.join(worker, team.invite(), deadline=0.1)
            await team.barrier(deadline=20)

        run_members(2, body)

    def test_a_team_has_choices_and_transports_of_its_own(self):
        async def body(team, worker):
            self.assertEqual(team.algorithm("allreduce", 8), "ring")
            self.assertNotEqual(team.algorithm("allreduce", 8, fixed_order=True), "ring")
            self.assertFalse(team.describe()["shares_memory"])
            self.assertEqual(team.describe()["ranks_per_core"], 3)
            self.assertEqual(team.endpoint(1 - team.rank).describe()["transport"], "tcp")
            with self.assertRaisesRegex(weft.InvalidParamError, "collective 'sum': not one of barrier, "):
                team.algorithm("sum", 8)
            self.assertEqual(list(await team.allreduce(array.array("q", [team.rank + 1]))), [3])

        run_members(2, body, algorithms="allreduce:0-1k=ring", transports="self,tcp", ranks_per_core=3)

    def test_choices_that_differ_are_refused(self):
        async def body(team, worker):
            self.fail("a team")

        with self.assertRaises(weft.InvalidParamError):
            run_members(2, body, algorithms=lambda rank: ("allreduce:=ring", "allreduce:=doubling")[rank])

    def test_members_are_described(self):
        async def body(team, worker):
            other = team.member(1 - team.rank)
            self.assertEqual((other["leader"], other["host_rank"], other["ranks_of_host"]), (0, 1 - team.rank, 2))
            self.assertEqual((other["host"], other["left"], other["n_late"], other["late_ms"]),
                             (team.member(team.rank)["host"], False, 0, 0))
            self.assertEqual(team.member(team.rank)["address"], worker.address())
            with self.assertRaises(weft.InvalidParamError):
                team.member(2)
            await team.barrier(deadline=20)  # no member leaves before

        run_members(2, body)

    def test_a_deadline_of_a_collective_passes(self):
        late = threading.Event()

        async def body(team, worker):
            if team.rank == 0:
                with self.assertRaises(weft.WeftError):
                    await team.barrier(deadline=0.1)
                late.set()
            else:
                await asyncio.get_running_loop().run_in_executor(None, late.wait)
                with self.assertRaises(weft.WeftError):
                    await team.barrier(deadline=20)

        run_members(2, body)

    @unittest.skipIf(numpy is None, "no numpy here")
    def test_numpy_in_numpy_out(self):
        async def body(team, worker):
            for dtype in ("i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "g"):
                mine = numpy.arange(12, dtype=dtype).reshape(3, 4) + team.rank
                total = await team.allreduce(mine)
                self.assertEqual((type(total), total.dtype, total.shape), (numpy.ndarray, mine.dtype, mine.shape))
                self.assertTrue((total == 2 * numpy.arange(12, dtype=dtype).reshape(3, 4) + 1).all(), dtype)
            gathered = await team.allgather(numpy.full(2, team.rank, "f4"))
            self.assertEqual(gathered.tolist(), [0, 0, 1, 1])
            average = await team.allreduce(numpy.array([1.0, 2.0]) * (team.rank + 1), op="avg")
            self.assertEqual(average.tolist(), [1.5, 3.0])
            with self.assertRaises(weft.InvalidParamError):
                await team.allreduce(numpy.zeros((4, 4))[:, ::2])
            empty = await team.allreduce(numpy.zeros(0))
            self.assertEqual(empty.shape, (0,))

        run_members(2, body)


SCRIPT = """
import array, asyncio, json, os, weft
from weft import view

async def main():
    async with weft.Worker() as worker:
        order = []
        async with await view.open(worker, deadline=30) as v:
            v.push_finalizer(lambda: order.append("first"))
            v.push_finalizer(lambda: order.append("second"))
            total = await v.team.allreduce(array.array("q", [v.rank + 1]))
            part = await v.split(v.rank % 2)
            pids = [v.at(rank)["pid"] for rank in range(v.size)]
            assert pids == [(await v.fetch(rank, True, deadline=60))["pid"] for rank in range(v.size)]
            sizes = (part.size, part.rank, part.engine)
            whole, bank = await v.partition("host"), await v.partition("numa_node", deadline=60)
            assert (whole.size, whole.rank) == (v.size, v.rank) and 1 <= bank.size <= v.size
            await v.team.barrier()
            for each in (bank, whole, part):
                await each.release()
            mine = v.mine()
        # one write is one line
        os.write(1, (json.dumps([v.rank, v.size, v.engine, total[0], pids[v.rank] == os.getpid() == mine["pid"], sizes[0],
                                 order, len(mine["cpus"]) == mine["n_cpus"]]) + "\\n").encode())
asyncio.run(main())
"""


class Exchanges(unittest.TestCase):
    def test_elements_of_a_size_that_cannot_be_are_refused(self):
        with weft.Worker(transports="self") as worker:
            team = worker.run(teams.create(worker, "self"))
            for size in (-1, 0):
                with self.assertRaises(weft.InvalidParamError):
                    team.reduction(print, size)
                with self.assertRaises(weft.InvalidParamError):
                    team.datatype(size)
            with self.assertRaises(weft.InvalidParamError):
                team.datatype(8, layout=print, extent=-8)
            with self.assertRaises(weft.InvalidParamError):
                team.datatype(8, strided=(4, -4, 2))
            worker.run(team.close())

    def test_what_an_exchange_raises_after_its_end_changes_nothing(self):
        raised = []

        def collect(mine, finish):
            finish(mine)
            raise OSError("too late")

        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda it: raised.append(type(it.exc_value))
        with weft.Worker(transports="self") as worker:
            team = worker.run(teams.create(worker, (0, 1, collect), deadline=20))
            self.assertEqual((team.size, raised), (1, [OSError]))
            worker.run(team.close())

    def test_an_exchange_ends_on_the_workers_thread(self):
        said = []

        def collect(mine, finish):
            def elsewhere():
                try:
                    finish(mine)
                except weft.WrongThreadError as error:
                    said.append(error)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            finish(mine)

        with weft.Worker(transports="self") as worker:
            team = worker.run(teams.create(worker, (0, 1, collect), deadline=20))
            self.assertEqual((team.size, len(said)), (1, 1))
            worker.run(team.close())


class Views(unittest.TestCase):
    def check_topology(self, mine):
        """What is known of packages, NUMA nodes and caches agrees with the counts."""
        self.assertEqual(len(mine["nodes"]), mine["n_numa_nodes"])
        self.assertLessEqual(sum(node["n_cpus"] for node in mine["nodes"]), mine["n_cpus"])
        self.assertIn(mine["topology"], ("sysfs", "hwloc", "none"))
        self.assertLessEqual({node["package"] for node in mine["nodes"]} - {-1}, set(range(4096)))
        if mine["topology"] == "none":
            return
        self.assertGreaterEqual(mine["n_packages"], 1)
        self.assertEqual(mine["numa_node"], mine["nodes"][0]["number"] if mine["nodes"] else -1)
        for node in mine["nodes"]:
            self.assertLessEqual(node["ram_free"], node["ram_total"])
        self.assertEqual([cache["level"] for cache in mine["caches"]], sorted({cache["level"] for cache in mine["caches"]}))
        for cache in mine["caches"]:
            self.assertTrue(cache["n"] >= 1 and cache["size"] >= 1024)

    def test_a_view_of_one_process(self):
        async def body():
            async with weft.Worker() as worker:
                async with await view.open(worker, "single") as one:
                    self.assertEqual((one.rank, one.size, one.engine), (0, 1, "single"))
                    self.assertEqual(one.at(0)["pid"], os.getpid())
                    self.check_topology(one.mine())
                    null = await one.split(None)
                    self.assertEqual((null.size, null.engine, null.team), (0, "null", None))
                    alone = await one.partition("host")
                    self.assertEqual((alone.size, alone.engine), (1, "single"))
                    await alone.release()
                    with_gpu = await one.partition("gpu")
                    self.assertEqual(with_gpu.size, 1 if one.mine()["gpus"] else 0)
                    for view_of_none, by in ((null, "host"), (one, "rack")):
                        with self.assertRaises(weft.InvalidParamError):
                            await view_of_none.partition(by)
                with self.assertRaises(weft.UnsupportedError):
                    await view.open(worker, "no such engine")

        asyncio.run(body())

    def test_processes_of_weft_run_act_together(self):
        if not find_program():
            self.skipTest("no weft-run here")
        script = os.path.join(os.environ.get("TMPDIR", "/tmp"), "weft-%d-test.py" % os.getpid())
        with open(script, "w") as file:
            file.write(SCRIPT)
        self.addCleanup(os.remove, script)
        done = subprocess.run([sys.executable, "-m", "weft.run", "-n", "4", "--plain", script], capture_output=True, text=True,
                              timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = sorted(json.loads(line) for line in done.stdout.splitlines())
        self.assertEqual(rows, [[rank, 4, "weft-run", 10, True, 2, ["second", "first"], True] for rank in range(4)])

    def test_the_interpreter_stands_before_the_script(self):
        self.assertEqual(command(["-n", "4", "a.py", "-x"], "py"), ["-n", "4", "py", "a.py", "-x"])
        self.assertEqual(command(["-m", "mod"], "py"), ["py", "-m", "mod"])


class Info(unittest.TestCase):
    def test_info_names_transports_and_settings(self):
        found = info()
        self.assertLessEqual({"self", "shm", "tcp"}, {row["name"] for row in found["transports"]})
        said = subprocess.run([sys.executable, "-m", "weft.info", "--json"], capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(said.stdout)["version"], weft.__version__)
        with weft.Worker() as worker:
            self.assertIn("am.sent", worker.counters())
            self.assertIsInstance(worker.trace(), str)

    def test_a_reader_that_leaves_ends_a_program_without_a_word(self):
        for program in (["weft.info"], ["weft.info", "--json"], ["weft.run", "--help"],
                        ["weft.benchmarks.send_recv", "--sizes", "8", "--seconds", "0.002"]):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([sys.executable, "-m", *program], stdout=writer, stderr=subprocess.PIPE, text=True)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, ""), program)


if __name__ == "__main__":
    unittest.main()
