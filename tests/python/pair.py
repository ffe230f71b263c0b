"""What tests share: a case as a coroutine with two connected endpoints, and time limits."""
import asyncio
import contextlib
import socket
import unittest

import weft


class Case(unittest.IsolatedAsyncioTestCase):
    """Each test runs on a loop of its own. What the loop's exception handler gets fails the test."""

    async def asyncSetUp(self):
        self.complaints = []
        asyncio.get_running_loop().slow_callback_duration = 10  # of debug mode; other tests run beside
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: self.complaints.append(context))

    async def asyncTearDown(self):
        self.assertEqual(self.complaints, [])


class Index:
    """A number that is no int, as those of numpy."""

    def __init__(self, value):
        self._value = value

    def __index__(self):
        return self._value


@contextlib.asynccontextmanager
async def pair(transports=None, settings=None, scheme="tcp"):
    """Two workers and their endpoints: (client, server)."""
    settings = {"log.level": "error", **(settings or {})}
    async with weft.Worker(settings=settings, transports=transports) as one:
        async with weft.Worker(settings=settings, transports=transports) as two:
            with contextlib.closing(one.listen(uri="shm://pair" if scheme == "shm" else None)) as listener:
                client = await two.connect(listener.uri)
                server = await listener.accept()
            yield client, server
            await client.close()
            await server.close()


@contextlib.contextmanager
def reserved_port():
    """A TCP port of 127.0.0.1 that no other process is given meanwhile. A socket with SO_REUSEADDR may listen there."""
    with socket.socket() as keeps:
        keeps.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeps.bind(("127.0.0.1", 0))
        yield keeps.getsockname()[1]
