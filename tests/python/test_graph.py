"""Task graphs: on the threads of this process, and over the members of a team."""
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest

import weft
from members import run_members
from weft.graph import Graph


class Local(unittest.TestCase):
    def test_results_are_objects_and_reach_their_successors(self):
        with Graph(2) as graph:
            parts = [graph.add(lambda i=i: list(range(i))) for i in range(20)]
            total = graph.add(lambda *lists: sum(map(len, lists)), *parts)
            text = graph.add("{} {}".format, total, total, name="text")
            for _ in range(3):
                graph.run_wait()
                self.assertEqual((graph.result(total), graph.result(text)), (190, "190 190"))
            self.assertIs(graph.result(parts[3]), graph.result(parts[3]))
            self.assertIsNone(graph.failed)

    def test_a_run_is_awaited_on_a_loop(self):
        async def body():
            async with weft.Worker() as worker:
                seen = []
                with Graph(2, on_progress=lambda done, total: seen.append((done, total))) as graph:
                    numbers = [graph.add(threading.get_ident) for _ in range(50)]
                    await graph.run(worker)
                    self.assertNotIn(threading.get_ident(), {graph.result(number) for number in numbers})
                    self.assertEqual(seen[-1], (50, 50))
                    with self.assertRaises(weft.InvalidParamError):
                        await graph.run()

        asyncio.run(body())

    def test_what_a_task_raises_is_what_the_run_raises(self):
        ran = []
        with Graph(1) as graph:
            bad = graph.add(lambda: {}["missing"], name="bad")
            after = graph.add(ran.append, bad)
            with self.assertRaisesRegex(KeyError, "missing"):
                graph.run_wait()
            self.assertEqual(graph.failed[:2], (bad, "bad"))
            self.assertEqual(ran, [])
            with self.assertRaises(weft.NotFoundError):
                graph.result(after)

    def test_a_run_that_is_refused_does_not_raise_what_an_earlier_one_did(self):
        with Graph(1) as graph:
            graph.add(lambda: {}["missing"])
            with self.assertRaises(KeyError):
                graph.run_wait()
            child = os.fork()
            if child == 0:
                try:
                    graph.run_wait()
                except weft.ForkedError:
                    os._exit(0)
                finally:
                    os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_pure_task_is_called_again(self):
        calls = []

        def third_time():
            calls.append(1)
            if len(calls) < 3:
                raise OSError("not yet")
            return "there"

        with Graph(1) as graph:
            task = graph.add(third_time, retries=5)
            graph.run_wait()
            self.assertEqual((graph.result(task), len(calls)), ("there", 3))

    def test_what_cannot_be_is_refused(self):
        with Graph(1) as graph:
            with self.assertRaises(weft.InvalidParamError):
                graph.add(print, 7)
            with self.assertRaises(weft.NotFoundError):
                graph.add(print, on_gpu=True)
            with self.assertRaises(weft.NotFoundError):
                graph.add(print, cpu=100000)
            with self.assertRaises(weft.UnsupportedError):
                graph.write_trace("/tmp/none")
        with self.assertRaises(weft.ClosedError):
            graph.add(print)
        for numbers in ({"n_threads": (1 << 32) + 1}, {"n_threads": -1}, {"n_threads": 1, "n_gpus": 1 << 32}):
            with self.assertRaises(weft.InvalidParamError):
                Graph(**numbers)
        with Graph(1) as graph:
            graph.add(int)
            graph.run_wait()
            with self.assertRaises(weft.WeftError):
                graph.result(-1 << 32)
        with Graph(2, n_gpus=2) as graph:
            tasks = [graph.add(lambda gpu: gpu, on_gpu=True) for _ in range(8)]
            graph.run_wait()
            self.assertLessEqual({graph.result(task) for task in tasks}, {0, 1})

    def test_a_run_that_is_cancelled_skips_what_has_not_begun(self):
        async def body():
            async with weft.Worker() as worker:
                began, go_on, ran = threading.Event(), threading.Event(), []
                with Graph(1) as graph:
                    first = graph.add(lambda: (began.set(), go_on.wait(20)))
                    graph.add(ran.append, first)
                    task = asyncio.ensure_future(graph.run(worker))
                    await asyncio.get_running_loop().run_in_executor(None, began.wait)
                    with self.assertRaises(weft.BusyError):
                        await graph.run(worker)
                    task.cancel()
                    await asyncio.sleep(0)
                    go_on.set()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                    self.assertEqual(ran, [])
                    graph.run_wait()
                    self.assertEqual(len(ran), 1)

        asyncio.run(body())

    def test_a_run_whose_coroutine_is_closed_is_cancelled(self):
        async def body():
            async with weft.Worker() as worker:
                began, goes_on = threading.Event(), threading.Event()
                graph = Graph(1)
                first = graph.add(lambda: (began.set(), goes_on.wait(60)) and None)
                second = graph.add(print, first)
                run = graph.run(worker)
                run.send(None)
                await asyncio.to_thread(began.wait, 60)
                run.close()
                goes_on.set()
                await graph.aclose(deadline=60)
                with self.assertRaises(weft.ClosedError):
                    graph.result(second)

        asyncio.run(body())

    def test_a_trace_names_tasks_and_the_longest_chain(self):
        with Graph(1, trace=True) as graph, tempfile.TemporaryDirectory() as folder:
            a = graph.add(lambda: sum(range(20000)), name="a")
            b = graph.add(lambda n: n, a, name="b")
            graph.run_wait()
            path = os.path.join(folder, "trace.json")
            graph.write_trace(path)
            with open(path) as file:
                events = json.load(file)
            events = events["traceEvents"] if isinstance(events, dict) else events
            self.assertLessEqual({"a", "b"}, {event.get("name") for event in events})
            tasks, seconds = graph.critical_path()
            self.assertEqual(tasks, [a, b])
            self.assertGreater(seconds, 0)

    def test_an_interpreter_ends_while_tasks_wait(self):
        said = subprocess.run([sys.executable, "-c", """
import threading, weft, weft.graph
graph = weft.graph.Graph(2)
for _ in range(100): graph.add(sum, graph.add(lambda: [1]))
worker = weft.Worker()
request = graph._core.post_run(worker)
print("end")
"""], capture_output=True, text=True, timeout=200)
        self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "end\n", ""))


    def test_an_interpreter_ends_while_a_function_runs(self):
        said = subprocess.run([sys.executable, "-c", """
import threading, time, weft, weft.graph
graph, begun = weft.graph.Graph(1), threading.Event()
graph.add(lambda: (begun.set(), time.sleep(600)))
worker = weft.Worker()
run = graph.run(worker)
run.send(None)
begun.wait()
print("end")
"""], capture_output=True, text=True, timeout=200)
        self.assertEqual((said.returncode, said.stdout), (0, "end\n"))


class Ranks(unittest.TestCase):
    def test_tasks_of_members_give_their_results_to_others(self):
        async def body(team, worker):
            with Graph(1, team=team) as graph:
                parts = [graph.add(lambda i=i: {"from": i}, rank=i) for i in range(team.size)]
                total = graph.add(lambda *dicts: [d["from"] for d in dicts], *parts, rank=1)
                for _ in range(2):
                    await graph.run()
                    self.assertEqual(graph.result(parts[team.rank]), {"from": team.rank})
                    if team.rank == 1:
                        self.assertEqual(graph.result(total), [0, 1, 2])
                    else:
                        with self.assertRaises(weft.NotFoundError):
                            graph.result(total)
                with self.assertRaises(weft.UnsupportedError):
                    graph.run_wait()

        run_members(3, body)

    def test_a_task_that_fails_ends_the_run_of_all(self):
        async def body(team, worker):
            with Graph(1, team=team) as graph:
                graph.add(lambda: {}["missing"], rank=1)
                with self.assertRaises(KeyError if team.rank == 1 else weft.WeftError):
                    await graph.run()
            with Graph(1, team=team) as graph:
                graph.add(lambda: b"x" * 1000, rank=0, result_size=100)
                with self.assertRaises(weft.TooBigError if team.rank == 0 else weft.WeftError):
                    await graph.run()

        run_members(2, body)

    def test_numbers_that_cannot_be_are_refused(self):
        async def body(team, worker):
            with Graph(1, team=team) as graph:
                for wrong in ({"result_size": -1}, {"retries": -1}, {"rank": 1 << 32}, {"host": 1 << 32}):
                    with self.assertRaises(weft.InvalidParamError):
                        graph.add(print, **wrong)

        run_members(1, body)

    def test_a_close_while_functions_run_serves_the_worker_and_is_refused_within_callbacks(self):
        said = subprocess.run([sys.executable, "-c", """
import threading, weft
from weft import teams
from weft.graph import Graph
worker = weft.Worker(settings={"log.level": "error"})
team = worker.run(teams.create(worker, "self"))
listener, begun, go_on = worker.listen(), threading.Event(), threading.Event()
ep = worker.connect_now(listener.uri)
graph = Graph(1, team=team)
def within(ep, message):
    try:
        graph.close()
    except weft.BusyError:
        print("busy")
def meanwhile(ep, message):
    print("handled")
    go_on.set()
worker.am_handler(3, within)
worker.am_handler(4, meanwhile)
graph.add(lambda: (begun.set(), go_on.wait(20), None)[2])
request = graph._core.post_run(worker)
while not begun.is_set():
    worker.progress()
worker.run(ep.am(3, b"x"))
worker.run(ep.flush(remote=True))
sent = ep.am_send(b"x", 4, b"")
graph.close()
while not request.done:
    worker.progress()
print(go_on.is_set())
"""], capture_output=True, text=True, timeout=200)
        self.assertEqual((said.returncode, said.stdout), (0, "busy\nhandled\nTrue\n"), said.stderr)


if __name__ == "__main__":
    unittest.main()
