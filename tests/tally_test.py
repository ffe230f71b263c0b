#!/usr/bin/env python3
"""What tests/tally.py counts: it decides what a run of tools/test says."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TALLY = os.path.join("tests", "tally.py")
SKIPS = "# a comment\nno device here\nno more than * cores here\n"


class Events:
    """The file of events of one run of Bazel, and the logs that it names."""

    def __init__(self, folder):
        self.folder, self.lines = folder, []

    def add(self, **event):
        self.lines.append(json.dumps(event))

    def test(self, label, log, status="PASSED", **key):
        path = os.path.join(self.folder, "log %d" % len(self.lines))
        if log is not None:
            with open(path, "w") as file:
                file.write(log)
        outputs = [{"name": "test.xml", "uri": "file:///nowhere"}, {"name": "test.log", "uri": "file://" + path.replace(" ", "%20")}]
        self.add(id={"testResult": dict(label=label, **key)}, testResult={"status": status, "testActionOutput": outputs})

    def target(self, label, success):
        self.add(id={"targetCompleted": {"label": label}}, completed={"success": success} if success else {})

    def action(self, label):
        self.add(id={"actionCompleted": {"label": label}}, action={})

    def end(self):
        self.add(id={"buildMetrics": {}}, lastMessage=True)


class TallyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.events = folder.name, Events(folder.name)

    def run_on(self, text, *options):
        paths = []
        for name, content in (("skips", SKIPS), ("input", text)):
            paths.append(os.path.join(self.folder, name))
            with open(paths[-1], "w") as file:
                file.write(content)
        return subprocess.run([sys.executable, TALLY, *options, *paths], capture_output=True, text=True)

    def counts(self, *expected, cut=None):
        """Counts what self.events holds, its last `cut` characters away, and returns what was printed before."""
        if cut is None:
            self.events.end()
        return self.judge(self.run_on("\n".join(self.events.lines)[: -cut if cut else None]), expected)

    def judge(self, ran, expected):
        self.assertEqual(ran.stderr, "")
        *said, last = ran.stdout.splitlines()
        self.assertEqual(last, "%d %d %d" % expected, ran.stdout)
        self.assertEqual(ran.returncode, 1 if expected[1] else 0)
        return said

    def test_cases_that_pass_are_counted_one_by_one(self):
        self.events.test("//tests:a", "ok one\nsome words\nok two\n")
        self.events.test("//tests:b", "ok three\n")
        self.assertEqual(self.counts(3, 0, 0), [])

    def test_a_failed_case_counts_beside_those_that_pass(self):
        self.events.test("//tests:a", "ok one\nnot ok two\nok three\n", "FAILED")
        self.assertEqual(self.counts(2, 1, 0), ["not ok //tests:a: two"])

    def test_a_failed_case_of_a_test_that_ends_well_counts(self):
        self.events.test("//tests:a", "ok one\nnot ok two\n")
        self.assertEqual(self.counts(1, 1, 0), ["not ok //tests:a: two"])

    def test_a_listed_reason_skips_a_case(self):
        self.events.test("//tests:a", "  skipped: no device here\nskip one\n  skipped: no more than 2 cores here\nskip two\nok three\n")
        self.assertEqual(self.counts(1, 0, 2), [])

    def test_a_reason_that_is_not_listed_fails(self):
        self.events.test("//tests:a", "  skipped: no device here today\nskip one\n")
        self.assertEqual(self.counts(0, 1, 0), ["not ok //tests:a: one was skipped: no device here today"])

    def test_a_reason_serves_one_case(self):
        self.events.test("//tests:a", "  skipped: no device here\nskip one\nskip two\n")
        self.assertEqual(self.counts(0, 1, 1), ["not ok //tests:a: two was skipped: no reason given"])

    def test_a_comment_of_the_list_is_no_reason(self):
        self.events.test("//tests:a", "  skipped: # a comment\nskip one\n")
        self.counts(0, 1, 0)

    def test_a_crash_counts_once_with_the_cases_before(self):
        self.events.test("//tests:a", "ok one\nok two\nSegmentation fault\n", "FAILED")
        self.assertEqual(self.counts(2, 1, 0), ["    Segmentation fault", "not ok //tests:a: ended badly after 2 cases"])

    def test_a_test_without_an_end_counts(self):
        self.events.test("//tests:a", "ok one\n-- Test timed out at 12:00:00 --\n", "TIMEOUT")
        self.assertEqual(self.counts(1, 1, 0), ["    -- Test timed out at 12:00:00 --", "not ok //tests:a: ended badly after 1 cases"])

    def test_a_test_that_prints_nothing_counts(self):
        self.events.test("//tests:a", "")
        self.events.test("//tests:b", "1 test\nokay\nnot okay\n  ok indented\n")
        self.assertEqual([line for line in self.counts(0, 2, 0) if line.startswith("not")],
                         ["not ok //tests:a: ran no case", "not ok //tests:b: ran no case"])

    def test_a_log_that_is_not_there_counts(self):
        self.events.test("//tests:a", None)
        self.events.add(id={"testResult": {"label": "//tests:b"}}, testResult={"status": "NO_STATUS"})
        self.assertEqual(self.counts(0, 2, 0), ["not ok //tests:a: ran no case", "not ok //tests:b: ended badly after 0 cases"])

    def test_the_last_lines_before_a_failure_are_shown(self):
        lines = "".join("line %d\n" % number for number in range(20))
        self.events.test("//tests:a", "of one\nok one\nweft: warn: not shown\n" + lines + "not ok two\n", "FAILED")
        self.assertEqual(self.counts(1, 1, 0), ["    line %d" % number for number in range(8, 20)] + ["not ok //tests:a: two"])

    def test_lines_of_a_case_that_passed_are_not_shown(self):
        self.events.test("//tests:a", "of one\nok one\nnot ok two\n", "FAILED")
        self.assertEqual(self.counts(1, 1, 0), ["not ok //tests:a: two"])

    def test_events_that_end_in_a_line_fail(self):
        self.events.test("//tests:a", "ok one\n")
        self.events.test("//tests:b", "ok two\n")
        said = self.counts(1, 1, 0, cut=20)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], "^not ok input: ends in the middle of line 2$")

    def test_events_without_their_last_fail(self):
        self.events.test("//tests:a", "ok one\n")
        self.assertRegex(self.counts(1, 1, 0, cut=0)[0], "^not ok input: the run did not come to its end$")

    def test_no_events_at_all_fail(self):
        self.assertRegex(self.counts(0, 1, 0, cut=0)[0], "^not ok input: the run did not come to its end$")

    def test_a_test_that_does_not_build_counts(self):
        self.events.action("//tests:a")
        self.events.target("//tests:a", False)
        self.events.target("//tests:b", True)
        self.events.test("//tests:b", "ok one\n")
        self.assertEqual(self.counts(1, 1, 0), ["not ok //tests:a: does not build"])

    def test_a_library_that_does_not_build_counts_with_the_tests_above(self):
        self.events.action("//base:base")
        for label in ("//base:base", "//tools:tool", "//tests:a"):
            self.events.target(label, False)
        self.assertEqual(self.counts(0, 2, 0), ["not ok //base:base: does not build", "not ok //tests:a: does not build"])

    def test_a_test_that_failed_is_not_said_to_be_unbuilt(self):
        self.events.test("//tests:a", "not ok one\n", "FAILED")
        self.events.target("//tests:a", False)
        self.assertEqual(self.counts(0, 1, 0), ["not ok //tests:a: one"])

    def test_each_shard_counts(self):
        self.events.test("//tests:a", "ok one\n", run=1, shard=1, attempt=1)
        self.events.test("//tests:a", "not ok two\n", "FAILED", run=1, shard=2, attempt=1)
        self.events.test("//tests:a", "ok three\nok four\n", run=1, shard=3, attempt=1)
        self.counts(3, 1, 0)

    def test_the_last_attempt_counts_and_each_run(self):
        self.events.test("//tests:a", "not ok one\n", "FAILED", run=1, attempt=1)
        self.events.test("//tests:a", "ok one\n", run=1, attempt=2)
        self.events.test("//tests:a", "ok one\n", run=2, attempt=1)
        self.counts(2, 0, 0)

    def test_a_plain_log_counts_as_its_cases(self):
        log = "ok a one\nwords\nnot ok a two\n  skipped: no device here\nskip b three\n  skipped: why not\nskip b four\n"
        said = self.judge(self.run_on(log, "--log"), (1, 2, 1))
        self.assertEqual(said, ["    words", "not ok plain: a two", "not ok plain: b four was skipped: why not"])


class Verdicts(unittest.TestResult):
    """Says of each test what tests/tally.py reads."""

    def addSuccess(self, test):
        print("ok", name(test))

    def addFailure(self, test, error):
        print("  " + self._exc_info_to_string(error, test).replace("\n", "\n  "))
        print("not ok", name(test))
        super().addFailure(test, error)

    addError = addFailure


def name(test):
    return test.id().split(".test_")[-1]


def main():
    result = Verdicts()
    unittest.defaultTestLoader.loadTestsFromTestCase(TallyTest).run(result)
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
