"""weft:// for Dask's `distributed`: comms by Dask's own interface, and a cluster of processes."""
import asyncio
import functools
import importlib.metadata
import os
import signal
import unittest
import unittest.mock

import weft

try:
    import distributed
    from distributed.comm import connect, listen
    from distributed.comm.core import CommClosedError
    from distributed.comm.registry import backends
except ImportError:
    distributed = None
else:
    from weft.dask import WeftBackend

    backends["weft"] = WeftBackend()


async def pair(address="weft://127.0.0.1"):
    accepted = asyncio.Queue()
    async with listen(address, accepted.put) as listener:
        comm = await connect(listener.contact_address)
    return comm, await accepted.get()


class Broken:
    """Raises EOFError where it is unpickled."""

    def __reduce__(self):
        return raise_eof, ()


def raise_eof():
    raise EOFError("the end")


@unittest.skipIf(distributed is None, "no distributed here")
class Comms(unittest.IsolatedAsyncioTestCase):
    async def test_messages_arrive_with_their_arrays(self):
        a, b = await pair()
        data = bytes(range(256)) * 20000
        await a.write({"op": "put", "data": distributed.protocol.to_serialize(data), "n": [1, 2]})
        got = await b.read()
        self.assertEqual((got["op"], got["n"], bytes(got["data"])), ("put", (1, 2), data))
        await a.close()
        with self.assertRaises(CommClosedError):
            await b.read()
        self.assertTrue(a.closed() and b.closed())
        await b.close()

    async def test_a_listener_of_another_kind_is_an_os_error(self):
        worker = weft.Worker(settings={"tcp.insecure": "yes"})
        for frames in ([], [b"\xff"], [b"127.0.0.1:1", b"more"]):
            async def greet(ep):
                await ep.send_frames(frames)
                await asyncio.Event().wait()

            listener = worker.listen(greet)
            with self.assertRaisesRegex(OSError, "not one of weft://"):
                await WeftBackend().get_connector().connect("127.0.0.1:%d" % listener.port)
            listener.close()
        await worker.close()

    async def test_a_connection_that_fails_is_closed_while_its_error_is_kept(self):
        comms, worker = await pair(), weft.Worker(settings={"tcp.insecure": "yes"})  # comms: their worker stays
        for cancels in (False, True):
            lost = asyncio.get_running_loop().create_future()

            async def greet(ep):
                ep.on_close = lambda ep, error: lost.set_result((ep, error))
                if cancels:
                    connects.cancel()
                else:
                    await ep.send_frames([b"one", b"another"])
                await lost

            listener = worker.listen(greet)
            connects = asyncio.ensure_future(WeftBackend().get_connector().connect("127.0.0.1:%d" % listener.port))
            [kept] = await asyncio.gather(connects, return_exceptions=True)
            self.assertIsInstance(kept, asyncio.CancelledError if cancels else CommClosedError)
            self.assertIsInstance((await asyncio.wait_for(lost, 20))[1], weft.WeftError)
            listener.close()
        for comm in comms:
            comm.abort()
        await worker.close()

    async def test_addresses_are_real_and_each_others(self):
        a, b = await pair()
        self.assertEqual((a.peer_address, a.local_address), (b.local_address, b.peer_address))
        self.assertTrue(a.local_address.startswith("weft://127.0.0.1:") and a.same_host)
        self.assertIn(a.local_address, repr(b))
        a.abort()
        b.abort()
        self.assertIn("closed", repr(a))

    async def test_a_read_in_progress_ends_when_either_side_closes(self):
        for side in (0, 1):
            comms = await pair()
            reads = [asyncio.ensure_future(comm.read()) for comm in comms]
            await asyncio.sleep(0)
            await comms[side].close()
            for read in reads:
                with self.assertRaises(CommClosedError):
                    await read
            for comm in comms:
                with self.assertRaises(CommClosedError):
                    await comm.write({})
                comm.abort()

    async def test_an_abort_ends_a_close_that_has_begun(self):
        with unittest.mock.patch.dict(os.environ, WEFT_CLOSE_TIMEOUT="100s"):
            a, b = await pair()
        write = asyncio.ensure_future(a._ep.send_tag(bytes(8 << 20), 5))  # no one receives it
        await asyncio.sleep(0)
        close = asyncio.ensure_future(a.close())
        await asyncio.sleep(0.05)
        self.assertFalse(close.done())
        a.abort()
        await asyncio.wait_for(close, 60)
        await asyncio.wait([write], timeout=60)
        self.assertIsInstance(write.exception(), weft.ClosedError)
        b.abort()

    async def test_nobody_listens(self):
        begun = asyncio.get_running_loop().time()
        with self.assertRaises(OSError) as raised:
            await connect("weft://127.0.0.1:1", timeout=0.2)
        self.assertGreaterEqual(asyncio.get_running_loop().time() - begun, 0.15)  # it dials again until then
        self.assertIn("weft://127.0.0.1:1", str(raised.exception))

    async def test_each_side_says_whether_it_deserializes(self):
        value = {"op": "update", "x": distributed.protocol.to_serialize([1, 2, 3])}
        for deserialize in (True, False):
            accepted = asyncio.Queue()
            async with listen("weft://127.0.0.1", accepted.put, deserialize=deserialize) as listener:
                a = await connect(listener.contact_address, deserialize=not deserialize)
                b = await accepted.get()
                for writer, reader, whole in ((a, b, deserialize), (b, a, not deserialize)):
                    await writer.write(value)
                    got = await reader.read()
                    self.assertEqual(isinstance(got["x"], distributed.protocol.Serialized), not whole)
                    if not whole:  # what was not opened is sent on as it came
                        await reader.write(got)
                        got = await writer.read()
                    self.assertEqual((got["op"], got["x"]), ("update", [1, 2, 3]))
                a.abort()
                b.abort()

    async def test_an_end_of_file_within_a_message_closes_both_sides(self):
        a, b = await pair()
        await a.write({"x": distributed.protocol.to_serialize(Broken())})
        with self.assertRaises(CommClosedError):
            await b.read()
        with self.assertRaises(CommClosedError):
            await a.read()
        self.assertTrue(a.closed() and b.closed())

    async def test_a_listen_that_fails_does_not_use_the_worker(self):
        listener = await listen("weft://127.0.0.1", print)
        worker = listener._shared.worker
        for _ in range(3):
            with self.assertRaises(weft.WeftError):
                await listen("weft://192.0.2.1", print)  # of no interface
        listener.stop()
        async with asyncio.timeout(60):
            while not worker.closed:
                await asyncio.sleep(0.05)

    async def test_a_hundred_listeners_have_an_address_each(self):
        listeners = [await listen("weft://127.0.0.1", print) for _ in range(100)]
        self.assertEqual(len({listener.contact_address for listener in listeners}), 100)
        for listener in listeners:
            listener.stop()

    async def test_what_needs_encryption_is_refused(self):
        with self.assertRaises(RuntimeError):
            await listen("weft://127.0.0.1", print, require_encryption=True)

    async def test_a_cancelled_read_aborts(self):
        a, b = await pair()
        read = asyncio.ensure_future(a.read())
        await asyncio.sleep(0)
        read.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await read
        self.assertTrue(a.closed())
        with self.assertRaises(CommClosedError):
            await b.read()
        b.abort()


# Processes of a cluster know the scheme by the entry point, which is there once the package is installed.
installed = importlib.metadata.entry_points(group="distributed.comm.backends", name="weft")


@unittest.skipIf(distributed is None or not installed, "no distributed here")
class Clusters(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        # A process that has been killed has a second to end by then, which a busy machine may not give it.
        patience = functools.partialmethod(distributed.Nanny.close, timeout=60)
        patch = unittest.mock.patch.object(distributed.Nanny, "close", patience)
        patch.start()
        self.addCleanup(patch.stop)

    async def test_processes_compute_and_a_killed_one_is_replaced(self):
        async with distributed.LocalCluster(n_workers=2, threads_per_worker=1, protocol="weft", asynchronous=True,
                                            dashboard_address=None, host="127.0.0.1") as cluster:
            async with distributed.Client(cluster, asynchronous=True) as client:
                self.assertTrue(cluster.scheduler_address.startswith("weft://127.0.0.1:"))
                futures = client.map(lambda i: bytes([i % 251]) * 100000, range(40))
                total = client.submit(lambda parts: sum(map(sum, parts)), futures)
                self.assertEqual(await total, sum(i % 251 * 100000 for i in range(40)))
                pids = await client.run(os.getpid)
                self.assertEqual(len(set(pids.values())), 2)
                os.kill(next(iter(pids.values())), signal.SIGKILL)
                again = client.map(lambda i: -i, range(100), pure=False)
                self.assertEqual(sum(await client.gather(again)), -sum(range(100)))


if __name__ == "__main__":
    unittest.main()
