"""Programs written for UCX-Py and ucxx, as they are but for the import."""
import array
import asyncio
import gc
import pickle
import unittest

import weft.compat.ucp as ucp
import weft.compat.ucxx as ucxx
from weft.compat import _shared
from pair import Case


def end():
    """Closes this thread's worker with all that is open, which `reset` refuses."""
    worker = _shared.current()
    if worker is not None:
        worker.destroy()


class Compat(Case):
    def tearDown(self):
        end()


async def connected(module):
    """A client's and a server's endpoint of a module, and the listener."""
    accepted = asyncio.Queue()

    async def server(ep):
        await accepted.put(ep)

    listener = module.create_listener(server)
    ep = await module.create_endpoint("127.0.0.1", listener.port)
    return ep, await accepted.get(), listener


class Ucp(Compat):
    async def test_a_message_that_does_not_fill_its_buffer_is_an_error_as_theirs(self):
        client, server, listener = await connected(ucp)
        await server.send(b"Hey")
        with self.assertRaisesRegex(ucp.exceptions.UCXMsgTruncated, r"length mismatch: 3 \(got\) != 100 \(expected\)"):
            await client.recv(bytearray(100))
        await server.send(b"Hey", tag=1 << 40, force_tag=True)
        with self.assertRaisesRegex(ucp.exceptions.UCXMsgTruncated, r"length mismatch: 3 \(got\) != 4 \(expected\)"):
            await ucp.recv(bytearray(4), tag=1 << 40)
        await server.send(b"all")
        self.assertEqual(await client.recv(bytearray(3)), 3)

    async def test_the_echo_of_the_documentation(self):
        ended = asyncio.get_running_loop().create_future()

        async def server(ep):
            arr = bytearray(10000)
            await ep.recv(arr)
            await ep.send(arr)
            await ep.close()
            lf.close()
            ended.set_result(None)

        lf = ucp.create_listener(server)
        ep = await ucp.create_endpoint("127.0.0.1", port=lf.port)
        msg = bytearray(b"m") * 10000
        await ep.send(msg)
        resp = bytearray(10000)
        await ep.recv(resp)
        self.assertEqual(msg, resp)
        await ep.close()
        await ended
        self.assertTrue(lf.closed() and ep.closed())

    async def test_tags_objects_and_active_messages(self):
        client, server, listener = await connected(ucp)
        await client.send(b"two", tag="b")
        await client.send(b"one", tag="a")
        got = bytearray(3)
        await server.recv(got, tag="a")
        self.assertEqual(got, b"one")
        await server.recv(got, tag="b")
        await client.send_obj(array.array("d", [1.5, 2.5]))
        self.assertEqual(await server.recv_obj(), array.array("d", [1.5, 2.5]).tobytes())
        await client.am_send(b"active")
        self.assertEqual(await server.am_recv(), bytearray(b"active"))
        ucp.register_am_allocator(lambda size: array.array("b", bytes(size)), "host")
        await client.am_send(b"array")
        self.assertEqual(await server.am_recv(), array.array("b", b"array"))
        with self.assertRaises(ucp.UCXError):
            ucp.register_am_allocator(bytearray, "rocm")
        await client.flush()
        await ucp.flush()
        ucp.fence()
        self.assertTrue(client.cuda_support())
        self.assertIn("transport", client.ucx_info())

    async def test_worker_addresses_and_forced_tags(self):
        address = ucp.get_ucx_address_from_buffer(pickle.loads(pickle.dumps(ucp.get_worker_address())))
        ep = await ucp.create_endpoint_from_worker_address(address)
        await ep.send(b"forced", tag=77, force_tag=True)
        got = bytearray(6)
        self.assertEqual(await ucp.recv(got, tag=77), 6)
        self.assertEqual(got, b"forced")

    async def test_errors_are_theirs(self):
        with self.assertRaises(ucp.UCXNotConnected):
            await ucp.create_endpoint("127.0.0.1", 1)
        client, server, _ = await connected(ucp)
        await client.send(b"long message")
        with self.assertRaises(ucp.UCXMsgTruncated):
            await server.recv(bytearray(1))
        closed = []
        server.set_close_callback(lambda: closed.append(1))
        waits = asyncio.ensure_future(server.recv(bytearray(1)))
        await asyncio.sleep(0)
        await client.close()
        with self.assertRaises(ucp.UCXConnectionReset):
            await waits
        self.assertEqual(closed, [1])
        with self.assertRaises(ucp.UCXCloseError):
            await client.send(b"x")

    async def test_an_endpoint_closes_after_so_many_receives(self):
        client, server, _ = await connected(ucp)
        server.close_after_n_recv(2)
        with self.assertRaisesRegex(ucp.UCXError, "already been set"):
            server.close_after_n_recv(1)
        with self.assertRaisesRegex(ucp.UCXError, "less than current"):
            server.close_after_n_recv(-1, count_from_ep_creation=True)
        for _ in range(2):
            await client.send(b"x")
            await server.recv(bytearray(1))
        self.assertTrue(server.closed())

    async def test_an_endpoint_that_is_dropped_calls_its_callback(self):
        for module in (ucp, ucxx):
            client, server, _ = await connected(module)
            closed = []
            client.set_close_callback(lambda: closed.append(1))
            del client
            gc.collect()
            self.assertEqual(len(closed), 1)
            with self.assertRaises(module.UCXError):
                await server.recv(bytearray(1))
            end()

    async def test_init_reset_and_information(self):
        ucp.init({"TLS": "tcp", "log.level": "none"}, blocking_progress_mode=True)
        with self.assertRaises(RuntimeError):
            ucp.init()
        self.assertEqual(ucp.get_config()["log.level"], "none")
        self.assertIn("tcp", ucp.get_active_transports())
        self.assertIn("tcp", ucp.get_ucp_worker_info())
        self.assertIn("log.level=none", ucp.get_ucp_context_info())
        self.assertEqual(len(ucp.get_ucx_version()), 3)
        self.assertGreaterEqual(ucp.progress(), 0)
        self.assertRegex(ucp.get_address("lo"), r"^127\.")
        listener = ucp.create_listener(lambda ep: None)
        ep = await ucp.create_endpoint(ucp.get_address(), listener.port)
        await ep.close()
        end()
        ucp.init()

    async def test_handles_are_integers_and_the_core_knows_what_is_alive(self):
        for module, endpoint_of, worker_of in (
                (ucp, ucp.Endpoint.get_ucp_endpoint, ucp.Endpoint.get_ucp_worker),
                (ucxx, ucxx.Endpoint.ucp_endpoint.fget, ucxx.Endpoint.ucp_worker.fget)):
            self.assertIsNone(module.core._ctx)
            client, server, _ = await connected(module)
            self.assertIsNotNone(module.core._ctx)
            self.assertIsNotNone(module.core._get_ctx())
            self.assertIs(module.core.Endpoint, module.Endpoint)
            worker = module.get_ucp_worker()
            self.assertIsInstance(worker, int)
            self.assertEqual([worker_of(ep) for ep in (client, server)], [worker, worker])
            self.assertEqual(len({endpoint_of(client), endpoint_of(server), 0}), 3)
            self.assertTrue(client._ep.is_alive() and server._ep.is_alive())
            self.assertFalse(client._ep.raise_on_error())
            await server.close()
            while client._ep.is_alive():
                await asyncio.sleep(0)
            with self.assertRaises(getattr(module.exceptions, "UCXConnectionReset", None)
                                   or module.exceptions.UCXConnectionResetError):
                client._ep.raise_on_error()
            await client.close()
            self.assertEqual(endpoint_of(client), 0)
            with self.assertRaises(AttributeError):
                module.core.nothing
            end()

    def test_what_is_not_there_says_so(self):
        with self.assertRaisesRegex(NotImplementedError, "core interface"):
            ucp._libs
        with self.assertRaises(NotImplementedError):
            ucxx._lib
        with self.assertRaises(AttributeError):
            ucp.nothing


class Ucxx(Compat):
    async def test_a_listener_counts_the_clients_that_are_served(self):
        go_on = asyncio.Event()
        begun = asyncio.Queue()

        async def server(ep):
            await begun.put(ep)
            await go_on.wait()

        listener = ucxx.create_listener(server)
        clients = [await ucxx.create_endpoint("127.0.0.1", listener.port) for _ in range(2)]
        served = [await begun.get() for _ in range(2)]
        self.assertEqual(listener.active_clients, 2)
        go_on.set()
        while listener.active_clients:
            await asyncio.sleep(0)
        for ep in clients + served:
            await ep.close()
        listener.close()

    async def test_many_buffers_probe_and_handles(self):
        client, server, listener = await connected(ucxx)
        await client.send_multi([b"a", b"", b"c" * 1000])
        self.assertEqual([bytes(part) for part in await server.recv_multi()], [b"a", b"", b"c" * 1000])
        self.assertFalse(server.tag_probe(4).matched)
        await client.send(b"probed", tag=4)
        await client._ep.flush()
        self.assertEqual(server.tag_probe(4).length, 6)
        self.assertEqual(server.tag_probe(4).sender_tag & 0xFFFFFFFF, 4)
        probed = server.tag_probe(4, remove=True)
        self.assertEqual(probed.sender_tag & 0xFFFFFFFF, 4)
        got = bytearray(6)
        self.assertEqual(await server.recv_with_handle(got, probed), 6)
        self.assertEqual(got, b"probed")
        for how in ({"tag": 7}, {"tag": "seven"}, {"tag": 7, "force_tag": True}):
            parts = [b"x", b"", b"y" * 5000]
            sending = asyncio.ensure_future(client.send_multi(parts, **how))
            self.assertEqual([bytes(part) for part in await server.recv_multi(**how)], parts)
            await sending
        await client.send(b"\xff" * 8, tag=8)
        with self.assertRaises(ucxx.exceptions.UCXError):  # no such number of buffers
            await server.recv_multi(tag=8)
        self.assertTrue(client.alive and not client.closed and not listener.closed)
        ended = []
        server.set_close_callback(lambda *args, **kwargs: ended.append((args, kwargs)), (1,), {"k": 2})
        await client.close()
        with self.assertRaises(ucxx.exceptions.UCXConnectionResetError):
            await server.recv(bytearray(1))
        self.assertEqual(ended, [((1,), {"k": 2})])

    async def test_received_memory_is_an_array_of_bytes(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy here")
        client, server, _ = await connected(ucxx)
        sent = [numpy.arange(n) for n in (0, 1, 5000)]
        await client.send_multi(sent)
        for got, was in zip(await server.recv_multi(), sent):
            self.assertIsInstance(got, numpy.ndarray)
            numpy.testing.assert_array_equal(got.view(was.dtype), was)
        for was in sent:
            await client.am_send(was)
            got = await server.am_recv()
            numpy.testing.assert_array_equal(got.view(was.dtype), was)
            if was.size:
                got[0] = 7  # it is the receiver's

    async def test_probes_by_the_tags_of_an_endpoint(self):
        client, server, _ = await connected(ucxx)
        context, tag = server._ctx, ucxx.types.Tag(server._tags["msg_recv"])
        self.assertFalse(context.tag_probe(tag).matched or server._ep.am_probe())
        for remove in (False, True):
            await client.send(b"0123456789")
            while not (found := context.tag_probe(tag, remove=remove)).matched:
                ucxx.progress()
            self.assertEqual((found.sender_tag, found.length, found.handle is None), (tag, 10, not remove))
            got = bytearray(10)
            await (context.recv_with_handle(got, found) if remove else context.recv(got, tag))
            self.assertEqual(got, b"0123456789")
        await client.am_send(b"active")
        while not server._ep.am_probe():
            ucxx.progress()
        self.assertEqual(bytes(await server.am_recv()), b"active")
        self.assertIs(ucxx.core.Endpoint, ucxx.Endpoint)
        self.assertFalse(ucxx.core._get_ctx().progress_mode.startswith("thread"))

    async def test_options_of_progress_are_accepted(self):
        ucxx.init(progress_mode="thread", enable_delayed_submission=True, enable_python_future=True, connect_timeout=2)
        client, server, _ = await connected(ucxx)
        await client.send_obj(b"object")
        self.assertEqual(await server.recv_obj(), b"object")
        client.abort()
        ucxx.stop_notifier_thread()


if __name__ == "__main__":
    unittest.main()
