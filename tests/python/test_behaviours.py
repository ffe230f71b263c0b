"""What UCX-Py's and ucxx's own tests ask of a program, by their names: pairs of processes, ends, resets, many endpoints."""
import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import unittest

import weft.compat.ucp as ucp
import weft.compat.ucxx as ucxx
from weft.compat import _shared
from pair import Case

BOTH = (ucp, ucxx)


def end():
    """Closes this thread's worker with all that is open, which `reset` refuses."""
    worker = _shared.current()
    if worker is not None:
        worker.destroy()


def is_closed(thing):
    """`closed` is a method of UCX-Py's classes, and a property of ucxx's."""
    return thing.closed() if callable(thing.closed) else thing.closed


async def connect(module, port):
    """Of many at the same time each gets its turn; the limit of `ucp` is in its variable (python_test.sh)."""
    patience = {"connect_timeout": 60} if module is ucxx else {}
    return await module.create_endpoint("127.0.0.1", port, **patience)


class Behaviour(Case):
    def tearDown(self):
        end()

    async def connected(self, module):
        """A client's and a server's endpoint, and the listener."""
        accepted = asyncio.Queue()
        listener = module.create_listener(accepted.put)
        client = await connect(module, listener.port)
        return client, await accepted.get(), listener


class Ends(Behaviour):
    async def test_close_callback(self):
        for module in BOTH:
            for closes_itself in (False, True):
                client, server, _ = await self.connected(module)
                called = asyncio.Event()
                client.set_close_callback(called.set)
                await (client if closes_itself else server).close()
                await called.wait()
                end()

    async def test_cancel(self):
        """A receive that no message comes for ends when its peer leaves."""
        for module, error in ((ucp, ucp.exceptions.UCXCanceled), (ucxx, ucxx.exceptions.UCXCanceledError)):
            for receive in (lambda ep: ep.recv(bytearray(1)), lambda ep: ep.am_recv()):
                client, server, _ = await self.connected(module)
                waits = asyncio.ensure_future(receive(client))
                await asyncio.sleep(0)
                await server.close()
                with self.assertRaises(error):
                    await waits
            end()

    async def test_shutdown_of_either_side(self):
        for module, error in ((ucp, ucp.exceptions.UCXCanceled), (ucxx, ucxx.exceptions.UCXCanceledError)):
            for side in (0, 1):
                ends = (await self.connected(module))[:2]
                receives = [asyncio.ensure_future(ep.recv(bytearray(1 << 20))) for ep in ends]
                await asyncio.sleep(0)
                await ends[side].close()
                for receive in receives:
                    with self.assertRaises(error):
                        await receive
                for ep in ends:
                    await ep.close()
                    self.assertTrue(is_closed(ep))
            end()

    async def test_listener_close(self):
        for module in BOTH:
            client, server, listener = await self.connected(module)
            self.assertFalse(is_closed(listener))
            port = listener.port
            listener.close()
            self.assertTrue(is_closed(listener))
            with self.assertRaises(module.exceptions.UCXError):
                await connect(module, port)
            await client.send(b"stays")
            self.assertEqual(await server.recv(bytearray(5)), 5)
            end()

    async def test_listener_del(self):
        """One that nothing refers to is closed, with a warning while a callback of it runs; its endpoints stay."""
        async def server_node(ep):
            await served.put(ep)
            await go_on.wait()

        for module in BOTH:
            go_on, served = asyncio.Event(), asyncio.Queue()
            listener = module.create_listener(server_node)
            port = listener.port
            client = await connect(module, port)
            server = await served.get()
            with self.assertLogs("ucx", logging.WARNING) as said:
                del listener
                gc.collect()
            self.assertRegex(said.output[0], "Listener object is being destroyed")
            with self.assertRaises(module.exceptions.UCXError):
                await connect(module, port)
            await server.send(b"stays")
            self.assertEqual(await client.recv(bytearray(5)), 5)
            go_on.set()
            end()

    async def test_reset(self):
        """Refuses while something is open, and says what; closes the worker else. A program then begins again."""
        for module in BOTH:
            client, server, listener = await self.connected(module)
            left = "Trying to reset UCX but not all Endpoints and/or Listeners are closed\\(\\)"
            for each in ("Endpoint object", "Listener object"):
                with self.assertRaisesRegex(module.exceptions.UCXError, "(?s)%s.*%s" % (left, each)):
                    module.reset()
                await client.send(b"goes on")
                self.assertEqual(await server.recv(bytearray(7)), 7)
            client.abort()
            server.abort()
            with self.assertRaisesRegex(module.exceptions.UCXError, "(?s)%s.*Listener object" % left):
                module.reset()
            listener.close()
            module.reset()
            self.assertIsNone(module.core._ctx)
            again, other, kept = await self.connected(module)
            await again.send(b"again")
            self.assertEqual(await other.recv(bytearray(5)), 5)
            del again, other, kept  # what is not in use is closed
            module.reset()
            self.assertIsNone(module.core._ctx)
            module.reset()

    async def test_what_needs_no_worker_makes_none(self):
        for module in BOTH:
            self.assertEqual(len(module.get_ucx_version()), 3)
            self.assertIn("worker.spin", module.get_config())
        await ucp.flush()
        ucp.fence()
        for module in BOTH:
            self.assertIsNone(module.core._ctx)

    async def test_an_error_names_its_operation(self):
        for module in BOTH:
            client, server, _ = await self.connected(module)
            waits = [asyncio.ensure_future(each) for each in (client.recv(bytearray(3), tag=7), client.am_recv())]
            await asyncio.sleep(0)
            await server.close()
            for wait, text in zip(waits, (r"^<\[Recv #000\] ep: 0x[0-9a-f]+, tag: 7, nbytes: 3>: ", "^am_recv: ")):
                with self.assertRaisesRegex(module.exceptions.UCXError, text):
                    await wait
            end()

    async def test_without_error_handling_the_loss_is_seen_at_the_close(self):
        for module in BOTH:
            listener = module.create_listener(lambda ep: ep.abort(), endpoint_error_handling=False)
            client = await module.create_endpoint(module.get_address(), listener.port, endpoint_error_handling=False)
            with self.assertRaises(module.exceptions.UCXError):
                await client.recv(bytearray(1))
            self.assertTrue(client._ep.is_alive())
            with self.assertLogs("ucx", logging.ERROR) as logged:
                await client.close()
            self.assertRegex(logged.output[0], r"UCXError\('<\[Send shutdown\] ep: .*Connection reset by remote peer: ")
            self.assertFalse(client._ep.is_alive())
            end()

    async def test_ep_still_in_scope_is_collected(self):
        client, server, _ = await self.connected(ucxx)
        server.me = server
        del server
        gc.collect()
        with self.assertRaises(ucxx.exceptions.UCXError):
            await client.recv(bytearray(1))


class Many(Behaviour):
    async def test_many_servers_many_clients(self):
        for module in BOTH:
            async def serve(ep):
                got = bytearray(4)
                await ep.recv(got)
                await ep.send(got)
                await ep.close()

            async def ask(port, number):
                ep = await connect(module, port)
                got = bytearray(4)
                await ep.send(number.to_bytes(4, "little"))
                await ep.recv(got)
                self.assertEqual(int.from_bytes(got, "little"), number)
                await ep.close()

            listeners = [module.create_listener(serve) for _ in range(10)]
            await asyncio.gather(*(ask(listener.port, 10 * place + i) for i in range(10) for place, listener in enumerate(listeners)))
            end()


# A process of its own: MODULE, then what it does.
PEER = """
import asyncio, os, pickle, sys
import weft.compat.{module} as module

def say(value):
    print(value.hex() if isinstance(value, bytes) else value, flush=True)

def hear():
    return sys.stdin.readline().strip()

async def main():
    {body}

asyncio.run(main())
"""


class Processes(Behaviour):
    def peer(self, module, body):
        """Starts a process; its lines are read, and written to, by `hear` and `tell`."""
        source = PEER.format(module=module.__name__.rsplit(".", 1)[1], body=body.strip().replace("\n", "\n    "))
        child = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, child)
        return child

    def end(self, child):
        child.kill()
        child.stdin.close()
        child.stdout.close()
        child.wait()

    async def hear(self, child):
        return (await asyncio.get_running_loop().run_in_executor(None, child.stdout.readline)).strip()

    async def ended(self, child):
        return await asyncio.get_running_loop().run_in_executor(None, child.wait)

    async def test_send_recv_two_workers(self):
        """Two processes exchange a message of each kind."""
        body = """
done = asyncio.Event()
async def serve(ep):
    got = bytearray(100000)
    await ep.recv(got)
    await ep.send(got)
    await ep.am_send(bytes(await ep.am_recv()))
    await ep.send_obj(await ep.recv_obj())
    await ep.close()
    done.set()
listener = module.create_listener(serve)
say(listener.port)
await done.wait()
"""
        for module in BOTH:
            child = self.peer(module, body)
            ep = await module.create_endpoint("127.0.0.1", int(await self.hear(child)))
            data, got = os.urandom(100000), bytearray(100000)
            await ep.send(data)
            await ep.recv(got)
            self.assertEqual(got, data)
            await ep.am_send(data)
            self.assertEqual(bytes(await ep.am_recv()), data)
            await ep.send_obj(data)
            self.assertEqual(bytes(await ep.recv_obj()), data)
            await ep.close()
            self.assertEqual(await self.ended(child), 0)
            end()

    async def test_from_worker_address(self):
        """Three processes get this worker's address, a pickle of it, and send by it without a listener."""
        body = """
address = pickle.loads(bytes.fromhex(hear()))
ep = await module.create_endpoint_from_worker_address(module.get_ucx_address_from_buffer(address))
await ep.send(os.getpid().to_bytes(8, "little"), tag=7, force_tag=True)
await ep.close()
"""
        import pickle

        for module in BOTH:
            children = [self.peer(module, body) for _ in range(3)]
            for child in children:
                child.stdin.write(pickle.dumps(module.get_worker_address()).hex() + "\n")
                child.stdin.flush()
            senders = set()
            for _ in children:
                got = bytearray(8)
                await module.recv(got, tag=7)
                senders.add(int.from_bytes(got, "little"))
            self.assertEqual(senders, {child.pid for child in children})
            end()

    async def test_shutdown_unexpected_closed_peer(self):
        """A process that is killed, or that leaves without closing, ends its endpoints here, and this process goes on."""
        body = """
ep = await module.create_endpoint("127.0.0.1", int(hear()))
await ep.send(b"here")
await asyncio.get_running_loop().run_in_executor(None, hear)
os._exit(3)
"""
        for module in BOTH:
            for ends in (lambda child: child.send_signal(signal.SIGKILL), lambda child: child.stdin.close()):
                accepted = asyncio.Queue()
                listener = module.create_listener(accepted.put)
                child = self.peer(module, body)
                child.stdin.write("%d\n" % listener.port)
                child.stdin.flush()
                ep = await accepted.get()
                await ep.recv(bytearray(4))
                closed = asyncio.Event()
                ep.set_close_callback(closed.set)
                ends(child)
                await closed.wait()
                self.assertTrue(is_closed(ep))
                with self.assertRaises(module.exceptions.UCXError):
                    await ep.send(b"nobody")
                with self.assertRaises(module.exceptions.UCXError):
                    await ep.recv(bytearray(1))
            client, server, _ = await self.connected(module)
            await client.send(b"goes on")
            self.assertEqual(await server.recv(bytearray(7)), 7)
            end()

    async def test_from_worker_address_error(self):
        """The address of a worker that is gone, or goes, is an error of the interface and no hang."""
        body = """
say(bytes(module.get_worker_address()))
await asyncio.get_running_loop().run_in_executor(None, hear)
module.reset()
"""
        for module in BOTH:
            child = self.peer(module, body)
            address = bytes.fromhex(await self.hear(child))
            early = await module.create_endpoint_from_worker_address(address)
            await early.send(b"x", tag=1, force_tag=True)
            waits = asyncio.ensure_future(early.recv(bytearray(1)))
            child.stdin.close()
            self.assertEqual(await self.ended(child), 0)
            with self.assertRaises(module.exceptions.UCXError):
                await waits
            with self.assertRaises(module.exceptions.UCXError):
                late = await module.create_endpoint_from_worker_address(address)
                await late.recv(bytearray(1))
            end()


if __name__ == "__main__":
    unittest.main()
