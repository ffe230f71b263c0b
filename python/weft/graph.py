"""Task graphs: functions that run on the threads of this process, or of all members of a team, when their inputs are there.

    with weft.graph.Graph(n_threads=4) as graph:
        parts = [graph.add(load, name="load")]
        total = graph.add(sum_up, *parts)          # called as sum_up(result of load)
        graph.run_wait()
        print(graph.result(total))

Functions run side by side where they release the interpreter's lock (numpy, input and output), or the interpreter has none.
"""
from __future__ import annotations

import atexit
import pickle
import time
import weakref

from . import _core, errors
from ._worker import milliseconds, milliseconds_left

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._worker import Worker
    from .teams import Team

_STILL_RUNS = "functions of the graph still run"
_open_graphs: "weakref.WeakSet[Graph]" = weakref.WeakSet()


@atexit.register
def _abandon() -> None:
    # A function that runs on ends with the process, as that of a daemon thread.
    for graph in list(_open_graphs):
        try:
            graph.close(deadline=0.1)
        except errors.WeftError:
            graph._core.abandon()


def _remotely(fn: Callable[..., Any]) -> Callable[..., bytes]:
    def call(*inputs: bytes, **kwargs: Any) -> bytes:
        return pickle.dumps(fn(*map(pickle.loads, inputs), **kwargs), protocol=5)

    return call


class Graph:
    """Tasks, and threads of the graph's own that run them.

    n_threads: None for one less than the processors that the process may use. pin: each thread is bound to a processor.
    trace: notes when and where each task ran. n_gpus: how many GPUs tasks may use (`on_gpu`), at most n_threads.
    on_progress(done, total): called on any thread of the graph, by one at a time.

    team: a graph over the members of this team. Every member makes it, in the same order as its collectives, adds the same
    tasks and awaits the same runs. Results go to the members that have successors of them, pickled; only members that you
    trust belong into a team. A run ends with one outcome for all. The team outlives the graph.

    A graph belongs to the thread that made it. It does not survive a fork (ForkedError).
    """

    _running: Any = None  # the worker, the request of the run in progress, and a future of its end

    def __init__(self, n_threads: int | None = None, *, team: Team | None = None, pin: bool = False, trace: bool = False,
                 n_gpus: int = 0, on_progress: Callable[[int, int], Any] | None = None) -> None:
        self._team = team
        self._core = _core.Graph(team._core if team is not None else None, n_threads or 0, pin, trace, n_gpus, on_progress)
        _open_graphs.add(self)

    def add(self, fn: Callable[..., Any], *inputs: int, name: str | None = None, retries: int = 0, cpu: int | None = None,
            node: int | None = None, on_gpu: bool = False, rank: int | None = None, host: int | None = None,
            result_size: int = 4096) -> int:
        """Adds a task, and gives its number. fn(result of each input) is called when all inputs, earlier tasks, are done.

        retries: a pure task: after an exception it is called again, at most this often; with a team another member runs it,
        if the one that had it is lost. cpu, node: only on the thread of this processor (with `pin`), or of this NUMA node.
        on_gpu: fn gets `gpu=`, a number below n_gpus that no other running task has.
        With a team: rank, host: the member that runs it, or a member whose host does. result_size: the most bytes that the
        pickled result has (else the run ends as TooBigError).
        Errors: InvalidParamError, also for an input that is not an earlier task; NotFoundError; BusyError while it runs.
        """
        if not callable(fn):
            raise TypeError("a task is a function, not %r" % (fn,))
        return self._core.add(fn if self._team is None else _remotely(fn), inputs, result_size,
                              name or getattr(fn, "__name__", None), retries, -1 if cpu is None else cpu,
                              -1 if node is None else node, on_gpu, -1 if rank is None else rank, -1 if host is None else host)

    async def run(self, worker: Worker | None = None, *, deadline: float | None = None) -> None:
        """Runs all tasks, each once, on the graph's threads. worker: whose loop reports the end; with a team, the team's.

        deadline: seconds; then the tasks that have not begun are skipped, and the run raises TimedOutError when the others
        have ended; with a team, at all members. Raises what the first task that failed raised (the others that have not begun are skipped); CancelledError of weft
        after `cancel`, and where a task of another member failed. Cancelling the await cancels the run.
        """
        if self._team is not None:
            worker = self._team._core.worker
        if worker is None:
            raise errors.InvalidParamError("a graph without a team needs a worker, or run_wait")
        driver, request = worker._drive(), None
        over = driver.future()
        try:
            request = self._core.post_run(worker, milliseconds(deadline))
            if request is None:  # the worker polls
                return
            self._running = worker, request, over
            request.future = future = driver.future()
            await future
        except errors.WeftError as error:
            self._raise(error)
        except GeneratorExit:  # nothing can be waited for any more
            self.cancel()
            raise
        except BaseException:
            self.cancel()
            if request is not None and not request.done:
                request.future = ended = driver.future()
                await driver.settle(ended)
                if hasattr(ended, "exception"):
                    ended.exception()  # seen
            raise
        finally:
            if request is not None:
                if not request.done:  # nobody waits for it any more; aclose may
                    request.future = over
                    if hasattr(over, "add_done_callback"):
                        over.add_done_callback(lambda ended: ended.exception())  # seen
                elif not over.done():
                    over.set_result(None)
                    self._running = None

    def run_wait(self, *, deadline: float | None = None) -> None:
        """The same; the calling thread runs tasks, too, until all have ended. Not with a team. Signals wait for the
        end, or for a function that this thread calls: KeyboardInterrupt and SystemExit in it skip what has not begun, whatever
        its `retries`, and are raised here."""
        try:
            self._core.run_wait(milliseconds(deadline))
        except errors.WeftError as error:
            self._raise(error)

    def _raise(self, error: errors.WeftError) -> None:
        failed = self._core.failed()
        if failed is None or failed[3] is None or failed[2] != error.status:  # of an earlier run
            raise error
        raise failed[3]

    def cancel(self) -> None:
        """Skips the tasks that have not begun. Any thread, and tasks."""
        self._core.cancel()

    def result(self, task: int) -> Any:
        """What a task gave in the last run. Errors: NotFoundError if it has not run here, has failed or was skipped; with a
        team results are at the member that ran it and at those that have successors of it."""
        found = self._core.result(task)
        return found if self._team is None else pickle.loads(found)

    @property
    def failed(self) -> tuple[int, str | None, int] | None:
        """(task, name, status) of the task that ended the last run."""
        failed = self._core.failed()
        return None if failed is None else failed[:3]

    def write_trace(self, path: str) -> None:
        """Writes the last run as JSON that Perfetto and Chrome read. Errors: UnsupportedError without `trace`; IoError."""
        self._core.write_trace(path)

    def critical_path(self) -> tuple[list[int], float]:
        """(tasks, seconds): the chain of tasks of the last run whose times add up to the most. Needs `trace`."""
        tasks, ns = self._core.critical_path()
        return tasks, ns / 1e9

    def close(self, *, deadline: float | None = None) -> None:
        """Cancels, waits until no task runs, and ends the threads.

        deadline: seconds; then TimedOutError, if functions of a run still run. They go on, the graph stays, and a further
        call waits again. The worker is driven meanwhile, so not within its callbacks (BusyError).
        """
        end = None if deadline is None else time.monotonic() + deadline
        while end is not None and self._running is not None and not self._running[1].done:
            self.cancel()
            left = milliseconds_left(end)
            if left <= 0:
                raise errors.TimedOutError(_STILL_RUNS)
            self._running[0].wait(left)
        self._core.destroy()

    async def aclose(self, *, deadline: float | None = None) -> None:
        """As close, and the loop runs meanwhile. The run that another task awaits ends as CancelledError of weft."""
        self.cancel()
        if self._running is not None and not self._running[1].done:
            worker, _, over = self._running
            if not await worker._drive().within(over, deadline):
                raise errors.TimedOutError(_STILL_RUNS)
        self._core.destroy()

    async def __aenter__(self) -> Graph:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.aclose()

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()
