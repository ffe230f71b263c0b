"""Programs written for UCX-Py and ucxx, as they are but for the import."""
import array
import asyncio
import gc
import importlib
import inspect
import logging
import os
import pickle
import socket
import unittest
import unittest.mock
import weakref

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

    def assert_is_named_by_its_class(self, error, cls):
        """A log and another process get it by the name that programs know."""
        self.assertIsInstance(error, cls)
        self.assertEqual(type(error).__qualname__, cls.__qualname__)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(copy), copy.args), (cls, error.args))


# What the asynchronous interfaces of UCX-Py (2025-06-13) and ucxx (2026-08-20) have: "is" of a property or a value, "async" of a
# coroutine, "call" of others, and the names of their parameters. am_send_iov, am_recv_with_header and the parameters of am_send are
# of a change of ucxx that was proposed by then.
OF_UCP = """
    init call options env_takes_precedence blocking_progress_mode connect_timeout
    reset call
    progress call
    fence call
    flush async
    recv async buffer tag
    get_address call ifname
    get_config call
    get_ucx_version call
    get_ucp_worker call
    get_ucp_worker_info call
    get_ucp_context_info call
    get_active_transports call
    get_worker_address call
    get_ucx_address_from_buffer call buffer
    get_ucxpy_logger call
    logger is
    register_am_allocator call allocator allocator_type
    create_listener call callback_func port endpoint_error_handling
    create_endpoint async ip_address port endpoint_error_handling
    create_endpoint_from_worker_address async address endpoint_error_handling
    continuous_ucx_progress call event_loop
    Endpoint.uid is
    Endpoint.closed call
    Endpoint.abort call
    Endpoint.close async
    Endpoint.send async buffer tag force_tag
    Endpoint.recv async buffer tag force_tag
    Endpoint.am_send async buffer
    Endpoint.am_recv async
    Endpoint.cuda_support call
    Endpoint.get_ucp_worker call
    Endpoint.get_ucp_endpoint call
    Endpoint.ucx_info call
    Endpoint.close_after_n_recv call n count_from_ep_creation
    Endpoint.send_obj async obj tag
    Endpoint.recv_obj async tag allocator
    Endpoint.flush async
    Endpoint.set_close_callback call callback_func
    Listener.closed call
    Listener.ip is
    Listener.port is
    Listener.close call
    ApplicationContext.create_listener call callback_func port endpoint_error_handling
    ApplicationContext.create_endpoint async ip_address port endpoint_error_handling
    ApplicationContext.create_endpoint_from_worker_address async address endpoint_error_handling
    ApplicationContext.continuous_ucx_progress call event_loop
    ApplicationContext.get_ucp_worker call
    ApplicationContext.get_config call
    ApplicationContext.ucp_context_info call
    ApplicationContext.ucp_worker_info call
    ApplicationContext.fence call
    ApplicationContext.flush async
    ApplicationContext.get_worker_address call
    ApplicationContext.register_am_allocator call allocator allocator_type
    ApplicationContext.recv async buffer tag
    exceptions.UCXBaseException is
    exceptions.UCXError is
    exceptions.UCXConfigError is
    exceptions.UCXWarning is
    exceptions.UCXCloseError is
    exceptions.UCXCanceled is
    exceptions.UCXConnectionReset is
    exceptions.UCXMsgTruncated is
    exceptions.UCXNotConnected is
    exceptions.UCXUnreachable is
    utils.get_ucxpy_logger call
"""
OF_UCXX = """
    init call options env_takes_precedence progress_mode enable_delayed_submission enable_python_future connect_timeout
    reset call
    stop_notifier_thread call
    progress call
    recv async buffer tag
    get_address call ifname use_ipv6
    get_config call
    get_ucx_version call
    get_ucp_worker call
    get_ucxx_worker call
    get_ucp_worker_info call
    get_ucp_context_info call
    get_active_transports call
    get_worker_address call
    get_ucx_address_from_buffer call buffer
    get_ucxpy_logger call
    logger is
    create_listener call callback_func port endpoint_error_handling connect_timeout
    create_endpoint async ip_address port endpoint_error_handling connect_timeout
    create_endpoint_from_worker_address async address endpoint_error_handling
    continuous_ucx_progress call event_loop
    Endpoint.alive is
    Endpoint.closed is
    Endpoint.uid is
    Endpoint.ucp_endpoint is
    Endpoint.ucp_worker is
    Endpoint.ucxx_endpoint is
    Endpoint.ucxx_worker is
    Endpoint.abort call period max_attempts
    Endpoint.close async period max_attempts
    Endpoint.am_send async buffer memory_type_policy user_header
    Endpoint.am_send_iov async buffers memory_type_policy user_header
    Endpoint.am_recv async
    Endpoint.am_recv_with_header async
    Endpoint.send async buffer tag force_tag
    Endpoint.send_multi async buffers tag force_tag
    Endpoint.send_obj async obj tag
    Endpoint.tag_probe call tag force_tag remove
    Endpoint.recv async buffer tag force_tag
    Endpoint.recv_with_handle async buffer probe_result
    Endpoint.recv_multi async tag force_tag
    Endpoint.recv_obj async tag allocator
    Endpoint.close_after_n_recv call n count_from_ep_creation
    Endpoint.set_close_callback call callback_func cb_args cb_kwargs
    Listener.closed is
    Listener.ip is
    Listener.port is
    Listener.active_clients is
    Listener.close call
    ApplicationContext.progress_mode is
    ApplicationContext.enable_delayed_submission is
    ApplicationContext.enable_python_future is
    ApplicationContext.config is
    ApplicationContext.ucp_context_info is
    ApplicationContext.ucp_worker is
    ApplicationContext.ucxx_worker is
    ApplicationContext.ucp_worker_info is
    ApplicationContext.worker_address is
    ApplicationContext.clear_progress_tasks call
    ApplicationContext.start_notifier_thread call
    ApplicationContext.stop_notifier_thread call
    ApplicationContext.create_listener call callback_func port endpoint_error_handling connect_timeout
    ApplicationContext.create_endpoint async ip_address port endpoint_error_handling connect_timeout
    ApplicationContext.create_endpoint_from_worker_address async address endpoint_error_handling
    ApplicationContext.continuous_ucx_progress call event_loop
    ApplicationContext.tag_probe call tag remove
    ApplicationContext.recv async buffer tag
    ApplicationContext.recv_with_handle async buffer probe_result
    types.Tag is
    types.TagMask is
    types.TagMaskFull is
    utils.get_address call ifname use_ipv6
    utils.get_ucxpy_logger call
"""
CONFIG_ERRORS = ((ucp, ucp.exceptions.UCXConfigError), (ucxx, ucxx.exceptions.UCXInvalidParamError))


class Options(Compat):
    def refused(self, options, words):
        for module, error in CONFIG_ERRORS:
            with self.subTest(module=module.__name__, options=options):
                with self.assertRaisesRegex(error, words):
                    module.init(options)
                self.assertIsNone(module.core._ctx)

    def test_a_name_that_neither_has_is_refused(self):
        self.refused({"UNKNOWN_OPTION": "3M"}, "no such option: UNKNOWN_OPTION")
        self.refused({"RNDV_TRESH": "8192"}, "maybe RNDV_THRESH")
        self.refused({"rndv_thresh": "8192"}, "maybe RNDV_THRESH")
        self.refused({"UCX_TLS": "tcp"}, "its name here is TLS")
        self.refused({"log.levle": "none"}, "no such option")
        self.refused({"TCP": "1"}, "no such option")

    def test_a_value_that_ucx_does_not_take_is_refused(self):
        for name, value in (("SEG_SIZE", "invalid-size"), ("RNDV_THRESH", "foo"), ("RNDV_THRESH", "8k,"), ("MAX_RNDV_RAILS", "x"),
                            ("KEEPALIVE_INTERVAL", "soon"), ("PROTO_ENABLE", "perhaps"), ("LOG_LEVEL", "bogus"),
                            ("SEG_SIZE", ""), ("SEG_SIZE", "3Mx")):
            self.refused({name: value}, "%s=%s: not a " % (name, value))
        self.refused({"MAX_RNDV_RAILS": 1}, "options are strings")
        self.refused({"log.level": "bogus"}, "log.level")

    def test_options_of_ucx_are_taken_and_found_as_they_were_given(self):
        options = {"TLS": "tcp,cuda_copy", "RNDV_THRESH": "intra:8K,inter:8192", "SEG_SIZE": "3M", "MEMTYPE_CACHE": "n",
                   "SOCKADDR_TLS_PRIORITY": "tcp", "KEEPALIVE_INTERVAL": "20s", "NUM_EPS": "auto", "MULTI_LANE_MAX_RATIO": "4.0",
                   "CUDA_COPY_MAX_REG_RATIO": "1.0", "TCP_SNDBUF": "4M", "RC_MLX5_TX_POLL_ALWAYS": "y", "NET_DEVICES": ""}
        given = dict(options)
        for module, _ in CONFIG_ERRORS:
            module.init(options)
            config = module.get_config()
            self.assertEqual({name: config[name] for name in given}, given)
            self.assertEqual(options, given)
            end()

    def test_two_options_are_settings_here(self):
        for level, mine in (("FATAL", "error"), ("Warn", "warn"), ("diag", "warn"), ("info", "info"), ("poll", "trace")):
            ucp.init({"LOG_LEVEL": level, "LISTENER_BACKLOG": "7"})
            self.assertEqual([ucp.get_config()[name] for name in ("log.level", "listen.backlog")], [mine, "7"])
            end()
        ucp.init({"LOG_LEVEL": "info", "log.level": "none", "LISTENER_BACKLOG": "auto"})
        self.assertEqual([ucp.get_config()[name] for name in ("log.level", "listen.backlog")], ["none", "1024"])

    def test_a_variable_is_taken_in_place_of_an_option_if_the_program_says_so(self):
        with unittest.mock.patch.dict(os.environ, {"UCX_SEG_SIZE": "2M", "UCX_NOBODY_KNOWS": "1", "WEFT_LISTEN_BACKLOG": "9"}):
            self.assertEqual(ucp.get_config()["SEG_SIZE"], "2M")
            self.assertNotIn("NOBODY_KNOWS", ucp.get_config())
            ucp.init({"SEG_SIZE": "3M", "listen.backlog": "8"})
            self.assertEqual([ucp.get_config()[name] for name in ("SEG_SIZE", "listen.backlog")], ["3M", "8"])
            end()
            ucp.init({"SEG_SIZE": "3M", "listen.backlog": "8"}, env_takes_precedence=True)
            self.assertEqual([ucp.get_config()[name] for name in ("SEG_SIZE", "listen.backlog")], ["2M", "9"])
            end()
            os.environ["UCX_SEG_SIZE"] = "large"
            with self.assertRaises(ucp.exceptions.UCXConfigError):
                ucp.init({"SEG_SIZE": "3M"}, env_takes_precedence=True)
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("UCX_TLS", None)
            self.assertEqual(ucp.get_config()["TLS"], "all")

    def test_the_configuration_is_logged_as_information(self):
        with self.assertLogs("ucx", logging.INFO) as logged:
            ucp.init({"SEG_SIZE": "3M"})
        self.assertRegex(logged.output[0], "SEG_SIZE=3M.*log.level=")
        end()
        with self.assertNoLogs("ucx", logging.ERROR):
            ucp.init({"SEG_SIZE": "3M"})

    async def test_a_connect_waits_as_long_as_init_or_the_variable_says(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            ucp.init(connect_timeout=0.05)
            with self.assertRaisesRegex(ucp.exceptions.UCXNotConnected, "timeout"):
                await ucp.create_endpoint(*silent.getsockname())
            end()
            with unittest.mock.patch.dict(os.environ, {"UCXPY_CONNECT_TIMEOUT": "0.05"}):
                with self.assertRaisesRegex(ucp.exceptions.UCXNotConnected, "timeout"):
                    await ucp.create_endpoint(*silent.getsockname())

    def test_calls_and_parameters_have_the_names_of_theirs(self):
        for module, lines in ((ucp, OF_UCP), (ucxx, OF_UCXX)):
            for line in lines.strip().splitlines():
                name, kind, *names = line.split()
                owner, _, member = name.rpartition(".")
                found = inspect.getattr_static(getattr(module, owner), member) if owner else getattr(module, member)
                with self.subTest(module=module.__name__, name=name):
                    if kind == "is":
                        self.assertFalse(callable(found) and not isinstance(found, type))
                        continue
                    self.assertEqual(inspect.iscoroutinefunction(found), kind == "async")
                    self.assertEqual([each for each in inspect.signature(found).parameters if each != "self"], names)


async def connected(module):
    """A client's and a server's endpoint of a module, and the listener."""
    accepted = asyncio.Queue()

    async def server(ep):
        await accepted.put(ep)

    listener = module.create_listener(server)
    ep = await module.create_endpoint("127.0.0.1", listener.port)
    return ep, await accepted.get(), listener


class Both(Compat):
    async def test_arrays_of_dates_are_received_and_those_of_objects_refused(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy here")
        for module in (ucp, ucxx):
            client, server, listener = await connected(module)
            dates, room = numpy.array(["2020-01-01", "1999-12-31"], "M8[D]"), numpy.zeros(2, "M8[D]")
            await client.send(dates)
            self.assertEqual(await server.recv(room), 16)
            self.assertTrue((room == dates).all())
            objects = numpy.array([1, "a"], object)
            for call in (client.send, client.recv, client.am_send):
                with self.assertRaisesRegex(TypeError, "send_obj"):
                    await call(objects)
            end()

    async def test_what_cannot_be_called_is_no_callback(self):
        for module in (ucp, ucxx):
            client, server, listener = await connected(module)
            with self.assertRaisesRegex(TypeError, "a callback is a function"):
                client.set_close_callback(5)
            with self.assertRaisesRegex(TypeError, "a callback is a function"):
                module.create_listener(5)
            end()


class Ucp(Compat):
    def test_errors_have_the_base_of_theirs(self):
        for name, cls in vars(ucp.exceptions).items():
            if name[:3] == "UCX" and name != "UCXWarning":
                self.assertTrue(issubclass(cls, ucp.exceptions.UCXBaseException))

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
        with self.assertRaises(ucp.UCXConnectionReset) as reset:
            await waits
        self.assertIsInstance(reset.exception, ucp.UCXCanceled)
        self.assert_is_named_by_its_class(reset.exception, ucp.UCXConnectionReset)
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

    async def test_each_kind_of_receive_counts_once(self):
        client, server, _ = await connected(ucxx)
        server.close_after_n_recv(5)
        for how in ({}, {"tag": 7}):
            sending = asyncio.ensure_future(client.send_multi([b"x", b"y"], **how))
            self.assertEqual(len(await server.recv_multi(**how)), 2)
            await sending
        await client.send(b"probed", tag=4)
        await client._ep.flush()
        await server.recv_with_handle(bytearray(6), server.tag_probe(4, remove=True))
        await client.am_send(b"z")
        await server.am_recv()
        self.assertTrue(server.alive)
        await client.send(b"x")
        await server.recv(bytearray(1))
        self.assertTrue(server.closed)

    async def test_older_names_warn(self):
        ep, _, _ = await connected(ucxx)
        for older, name in (("get_ucp_endpoint", "ucp_endpoint"), ("get_ucxx_endpoint", "ucxx_endpoint"),
                            ("get_ucp_worker", "ucp_worker"), ("get_ucxx_worker", "ucxx_worker"), ("is_alive", "alive")):
            with self.assertWarnsRegex(FutureWarning, r"Endpoint\.%s\(\).*Endpoint\.%s" % (older, name)):
                self.assertEqual(getattr(ep, older)(), getattr(ep, name))

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

    async def test_an_address_is_of_the_interface_that_the_program_or_a_variable_names(self):
        with unittest.mock.patch.dict(os.environ, UCXPY_IFNAME="lo"):
            self.assertEqual(ucp.get_address(), "127.0.0.1")  # listeners are on loopback alone
            ucp.init({"tcp.insecure": "yes"})
            self.assertRegex(ucp.get_address(), r"^127\.")
            self.assertRegex(ucxx.get_address(), r"^127\.")
            os.environ["UCXPY_IFNAME"] = "no-such"
            self.assertRaises(OSError, ucp.get_address)
            self.assertRegex(ucp.get_address("lo"), r"^127\.")
            os.environ["UCXPY_IFNAME"] = ""
            self.assertRegex(ucp.get_address(), r"^\d+\.\d+\.\d+\.\d+$")
            end()

    async def test_an_ipv6_address_is_one_at_which_a_listener_is_reached(self):
        if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
            self.skipTest("no IPv6 here")
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("UCXPY_IFNAME", None)
            for options in ({}, {"tcp.insecure": "yes"}):
                ucxx.init(options)
                listener = ucxx.create_listener(lambda ep: None)
                address = ucxx.get_address(use_ipv6=True)
                socket.inet_pton(socket.AF_INET6, address)
                await (await ucxx.create_endpoint(address, listener.port)).close()
                end()
            self.assertRaises(OSError, ucxx.get_address, "no-such", use_ipv6=True)
            self.assertEqual(ucxx.get_address("lo", use_ipv6=True), "::1")
            os.environ["UCXPY_IFNAME"] = "lo"
            ucxx.init({"tcp.insecure": "yes"})
            self.assertEqual(ucxx.get_address(use_ipv6=True), "::1")
            for rows, address in (("fe80::1 20", "fe80::1%lo"), ("fe80::1 20, fd00::2 00, fd00::3 00", "fd00::2"), ("", None)):
                table = "".join("%s %02x 40 %s 80 lo\n" % (socket.inet_pton(socket.AF_INET6, row.split()[0]).hex(),
                                                          socket.if_nametoindex("lo"), row.split()[1])
                                for row in rows.split(", ") if row)
                with unittest.mock.patch("builtins.open", unittest.mock.mock_open(read_data=table)):
                    if address is None:
                        self.assertRaisesRegex(OSError, "lo has no IPv6 address", ucxx.get_address, use_ipv6=True)
                    else:
                        self.assertEqual(ucxx.get_address(use_ipv6=True), address)

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
        with self.assertRaisesRegex(NotImplementedError, "core interface"):
            ucxx.libucxx
        for module in (ucp, ucxx):
            with self.assertRaisesRegex(NotImplementedError, "not there but for .*get_ucxpy_logger"):
                module.utils.hmean
            self.assertFalse(hasattr(module.utils, "hmean"))
            self.assertIs(importlib.import_module(module.__name__ + ".utils").get_ucxpy_logger(), module.logger)
        with self.assertRaises(AttributeError):
            ucp.nothing
        for module, words in (("ucp._libs", "core interface"), ("ucp._libs.ucx_api", "core interface"),
                              ("ucxx._lib.libucxx", "core interface"), ("ucxx.testing", None)):
            with self.assertRaisesRegex(NotImplementedError, words or "own tests"):
                importlib.import_module("weft.compat." + module).join_processes
        with self.assertRaisesRegex(NotImplementedError, "core interface"):
            from weft.compat.ucxx._lib import libucxx  # noqa: F401
        with self.assertRaisesRegex(NotImplementedError, "PythonAmSendMemoryTypePolicy is a name of weft.compat.ucxx$"):
            from weft.compat.ucxx._lib.libucxx import PythonAmSendMemoryTypePolicy  # noqa: F401
        from weft.compat.ucxx.utils import get_address
        self.assertIs(get_address, ucxx.get_address)
        for module in (ucp, ucxx):
            self.assertFalse(hasattr(module, "_libs") or hasattr(module, "_lib") or hasattr(module, "get_default_options"))

        def nameless():
            pass

        nameless.__module__ = None  # pickle looks for it in every module that is imported
        with self.assertRaises((pickle.PicklingError, AttributeError)):
            pickle.dumps(nameless)


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

    async def test_what_a_callback_raises_is_logged_and_keeps_nothing(self):
        for module in (ucp, ucxx):
            served = []

            def fails(ep):
                served.append(weakref.ref(ep))
                raise RuntimeError("the callback failed")

            async def fails_later(ep):
                fails(ep)

            for callback in (fails, fails_later):
                with self.assertLogs("ucx", logging.ERROR) as logged:
                    listener = module.create_listener(callback)
                    client = await module.create_endpoint("127.0.0.1", listener.port)
                    with self.assertRaises(module.UCXError):  # the server's endpoint has no reference
                        await client.recv(bytearray(1))
                self.assertRegex(logged.output[0], "(?s)Uncaught listener callback error.*RuntimeError: the callback failed")
                self.assertIsNone(logged.records[0].exc_info)
                self.assertEqual((listener._active[0], served.pop()()), (0, None))
            end()

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
        with self.assertRaises(ucxx.exceptions.UCXConnectionResetError) as reset:
            await server.recv(bytearray(1))
        self.assert_is_named_by_its_class(reset.exception, ucxx.exceptions.UCXConnectionResetError)
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

    async def test_active_messages_have_headers_and_several_buffers(self):
        client, server, _ = await connected(ucxx)
        policy = ucxx.PythonAmSendMemoryTypePolicy
        for size in (0, 10, 3 << 20):
            data = os.urandom(size)
            for how in ({}, {"user_header": b""}, {"user_header": b"header \0\1\xff"}, {"memory_type_policy": policy.FallbackToHost},
                        {"memory_type_policy": policy.ErrorOnUnsupported, "user_header": b"\1"}):
                for sends in (client.am_send(data, **how), client.am_send_iov([data[:4], b"", bytearray(data[4:])], **how),
                              client.am_send_iov((data,), **how)):
                    sends = asyncio.ensure_future(sends)
                    got, header = await server.am_recv_with_header()
                    await sends
                    self.assertEqual((bytes(got), header), (data, how.get("user_header", b"")))
        await client.am_send(b"data", user_header=b"not looked at")
        self.assertEqual(bytes(await server.am_recv()), b"data")
        for buffers in ([], b"data", None):
            with self.assertRaises(ValueError):
                await client.am_send_iov(buffers)
        for how in ({"user_header": "header"}, {"memory_type_policy": 1}):
            for send, buffers in ((client.am_send, b""), (client.am_send_iov, [b""])):
                with self.assertRaises(TypeError):
                    await send(buffers, **how)
        with self.assertRaises(ucxx.exceptions.UCXExceedsLimitError):
            await client.am_send(b"", user_header=bytes(256))
        server.close_after_n_recv(1)
        await client.am_send(b"last", user_header=b"h")
        await server.am_recv_with_header()
        self.assertTrue(server.closed)

    async def test_the_context_has_the_calls_of_theirs(self):
        for module in (ucp, ucxx):
            context, accepted = module.core._get_ctx(), asyncio.Queue()
            listener = context.create_listener(accepted.put)
            client = await context.create_endpoint("127.0.0.1", listener.port)
            server = await accepted.get()
            await client.send(b"forced", tag=7, force_tag=True)
            got = bytearray(6)
            await context.recv(got, 7)
            self.assertEqual(got, b"forced")
            by_address = await context.create_endpoint_from_worker_address(module.get_worker_address())
            await by_address.send(b"addres", tag=8, force_tag=True)
            await context.recv(got, 8)
            context.continuous_ucx_progress()
            if module is ucp:
                context.register_am_allocator(bytearray, "host")
                await context.flush()
                context.fence()
                self.assertEqual((context.get_ucp_worker(), context.get_config(), context.ucp_worker_info(), context.ucp_context_info()),
                                 (ucp.get_ucp_worker(), ucp.get_config(), ucp.get_ucp_worker_info(), ucp.get_ucp_context_info()))
            else:
                context.start_notifier_thread()
                context.stop_notifier_thread()
                context.clear_progress_tasks()
                self.assertEqual((context.ucp_worker, context.config, context.ucp_worker_info, context.ucp_context_info),
                                 (ucxx.get_ucp_worker(), ucxx.get_config(), ucxx.get_ucp_worker_info(), ucxx.get_ucp_context_info()))
                self.assertEqual((context.ucxx_worker, context.worker_address), (context.ucp_worker, ucxx.get_worker_address()))
                self.assertFalse(context.enable_delayed_submission or context.enable_python_future)
            for each in (client, server, by_address):
                await each.close()
            end()

    def test_tags_are_as_theirs(self):
        for cls, name in ((ucxx.types.Tag, "UCXXTag"), (ucxx.types.TagMask, "UCXXTagMask")):
            self.assertEqual((repr(cls(42)), cls(42), cls(42).value, hash(cls(42))), (name + "(42)", 42, 42, hash(42)))
            self.assertNotEqual(cls(42), "42")
            for value in (-1, 1 << 64):
                with self.assertRaises(OverflowError):
                    cls(value)
        self.assertEqual(ucxx.types.TagMaskFull, 2 ** 64 - 1)

    async def test_options_of_progress_are_accepted(self):
        with self.assertRaisesRegex(ValueError, "Unknown progress mode"):
            ucxx.init(progress_mode="threads")
        ucxx.init(progress_mode="thread", enable_delayed_submission=True, enable_python_future=True, connect_timeout=20)
        client, server, _ = await connected(ucxx)
        await client.send_obj(b"object")
        self.assertEqual(await server.recv_obj(), b"object")
        client.abort()
        ucxx.stop_notifier_thread()


if __name__ == "__main__":
    unittest.main()
