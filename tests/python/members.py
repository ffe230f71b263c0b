"""Members of a team, as threads with a loop each."""
import asyncio
import threading

import weft
from weft import teams


class Exchange:
    """The bytes of all threads, for each of them."""

    def __init__(self, size):
        self.size, self.rounds, self.lock = size, {}, threading.Lock()

    def member(self, rank):
        counter = iter(range(1000))

        def collect(mine, finish):
            number, loop = next(counter), asyncio.get_running_loop()
            with self.lock:
                parts = self.rounds.setdefault(number, {})
                parts[rank] = (mine, loop, finish)
                if len(parts) < self.size:
                    return
                everything = b"".join(parts[r][0] for r in range(self.size))
            for _, other, end in parts.values():
                other.call_soon_threadsafe(end, everything)

        return rank, self.size, collect


def run_members(size, body, **params):
    """Runs body(team, worker) on threads. A member that fails is the test's failure. params: of the team; a function gets
    the rank."""
    exchange, failures = Exchange(size), []

    async def member(rank):
        async with weft.Worker(settings={"log.level": "error"}) as worker:
            own = {name: value(rank) if callable(value) else value for name, value in params.items()}
            team = await teams.create(worker, exchange.member(rank), deadline=30, **own)
            await body(team, worker)
            await team.close()

    def run(rank):
        try:
            asyncio.run(member(rank))
        except BaseException as error:
            failures.append((rank, error))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0][1]
