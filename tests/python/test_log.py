"""Lines of the library's log go to the logging module: from any thread, at the end of the process, and not in a fork's child."""
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import weft
import weft.log


class Kept(logging.Handler):
    """Keeps what it gets, and lets nothing pass while it is held."""

    def __init__(self):
        super().__init__()
        self.records, self.free = [], threading.Event()
        self.free.set()

    def emit(self, record):
        self.free.wait(200)
        self.records.append(record)

    def texts(self):
        return [record.getMessage() for record in self.records]


def say_a_line():
    """The context warns of a name that it does not know."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("conect.timeout = 2s\n")
        file.flush()
        weft.Context(file=file.name)


LINE = "unknown setting conect.timeout; did you mean connect.timeout?"


class Log(unittest.TestCase):
    def setUp(self):
        self.kept = Kept()
        self.logger = logging.Logger("of.a.test")
        self.logger.manager = logging.Manager(logging.root)  # children are its own
        self.logger.manager.loggerDict["of.a.test"] = self.logger
        self.logger.addHandler(self.kept)
        self.addCleanup(weft.log.detach)

    def test_a_line_has_its_level_and_the_name_of_its_part(self):
        weft.log.attach(self.logger)
        say_a_line()
        weft.log.detach()
        [record] = self.kept.records
        self.assertEqual(record.levelno, logging.WARNING)
        self.assertTrue(record.name.startswith("of.a.test."), record.name)
        self.assertIn(LINE, record.getMessage())
        self.assertEqual(record.threadName, "weft.log")

    def test_lines_arrive_while_no_thread_drives_anything(self):
        weft.log.attach(self.logger)
        say_a_line()
        until = time.monotonic() + 60
        while not self.kept.records and time.monotonic() < until:
            time.sleep(0.001)
        self.assertIn(LINE, self.kept.texts()[0])

    def test_no_line_waits_for_a_handler_and_those_without_room_are_counted(self):
        each, threads = 1000, 4
        weft.log.attach(self.logger)
        self.kept.free.clear()
        sayers = [threading.Thread(target=lambda: [say_a_line() for _ in range(each)]) for _ in range(threads)]
        for sayer in sayers:
            sayer.start()
        for sayer in sayers:
            sayer.join()
        self.assertEqual(self.kept.records, [])
        self.kept.free.set()
        weft.log.detach()
        texts = self.kept.texts()
        lines = [text for text in texts if LINE in text]
        dropped = sum(int(text.split()[0]) for text in texts if "lines were dropped" in text)
        self.assertGreater(dropped, 0)
        self.assertGreater(len(lines), 50)
        self.assertEqual(len(lines) + dropped, each * threads)

    def test_a_filter_that_raises_loses_its_line_alone(self):
        def raises(record):
            if not self.kept.records and not seen:
                seen.append(record)
                raise KeyError("filter")
            return True

        seen = []
        self.kept.addFilter(raises)
        weft.log.attach(self.logger)
        stderr, sys.stderr = sys.stderr, tempfile.TemporaryFile("w+")
        try:
            say_a_line()
            say_a_line()
            weft.log.detach()
        finally:
            sys.stderr.close()
            sys.stderr = stderr
        self.assertEqual(len(seen), 1)
        self.assertEqual(len(self.kept.records), 1)

    def run_program(self, text):
        said = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=200,
                              cwd=os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual(said.returncode, 0, said.stderr)
        return said

    def test_what_was_written_before_the_end_of_the_process_is_handed_over(self):
        said = self.run_program("""
            import logging, sys, test_log, weft.log
            logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
            weft.log.attach()
            for i in range(50):
                test_log.say_a_line()
        """)
        self.assertEqual(said.stdout.count("WARNING weft."), 50)
        self.assertEqual(said.stderr, "")

    def test_threads_that_write_until_the_process_ends_do_no_harm(self):
        self.run_program("""
            import logging, sys, test_log, threading, time, weft.log
            logging.basicConfig(stream=sys.stdout)
            weft.log.attach()
            def write():
                while True:
                    test_log.say_a_line()
            for i in range(4):
                threading.Thread(target=write, daemon=True).start()
            time.sleep(0.2)
        """)

    def test_a_child_writes_to_standard_error_until_it_attaches_a_logger(self):
        said = self.run_program("""
            import logging, os, sys, test_log, weft.log
            logging.basicConfig(stream=sys.stdout, format="%(process)d %(message)s")
            weft.log.attach()
            child = os.fork()
            if child == 0:
                test_log.say_a_line()
                weft.log.attach()
                test_log.say_a_line()
                weft.log.detach()
                sys.stdout.flush()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0
            test_log.say_a_line()
            weft.log.detach()
            print("parent", os.getpid(), "child", child)
        """)
        *lines, last = said.stdout.splitlines()
        _, parent, _, child = last.split()
        self.assertEqual([line.split()[0] for line in lines], [child, parent])
        self.assertEqual(said.stderr.count(LINE), 1)

    def test_an_attach_without_descriptors_leaves_none(self):
        said = subprocess.run([sys.executable, "-c", """
import resource, weft, weft.log
weft.log.attach()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    weft.log.attach()
except OSError:
    print("refused")
weft.log.detach()
"""], capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "refused\n", ""))

    def test_another_logger_takes_over(self):
        other = Kept()
        weft.log.attach(self.logger)
        say_a_line()
        second = logging.Logger("second")
        second.manager = logging.Manager(logging.root)
        second.manager.loggerDict["second"] = second
        second.addHandler(other)
        weft.log.attach(second)
        say_a_line()
        weft.log.detach()
        self.assertEqual((len(self.kept.records), len(other.records)), (1, 1))


if __name__ == "__main__":
    unittest.main()
