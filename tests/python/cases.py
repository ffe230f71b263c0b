"""Runs test_*.py of this folder by unittest, and prints "ok NAME", "not ok NAME" or "skip NAME" for each case.

cases.py [PART…]: those whose names contain one of the parts. A case that hangs is ended with the stacks of all threads.
"""
import ast
import collections
import faulthandler
import os
import sys
import unittest

SECONDS = 600  # of a machine ten times slower, too: a check of types takes 8 s, and more beside other tests


class Lines(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        faulthandler.dump_traceback_later(SECONDS, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def line(self, word, test):
        print(word, test.id(), flush=True)

    def addSuccess(self, test):
        self.line("ok", test)

    def failed(self, test, error):
        print("  " + self._exc_info_to_string(error, test).replace("\n", "\n  "))
        self.failures.append((test, ""))
        self.line("not ok", test)

    def addFailure(self, test, error):
        self.failed(test, error)

    def addError(self, test, error):
        self.failed(test, error)

    def addSubTest(self, test, part, error):
        super().addSubTest(test, part, None)
        if error is not None:
            self.failed(part, error)

    def addSkip(self, test, reason):
        print("  skipped:", reason)
        self.line("skip", test)


def cases(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def named_twice(folder):
    """Classes of which a later one of the same name takes the place, so that their cases would not run."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name)) as file:
                classes = collections.Counter(each.name for each in ast.parse(file.read()).body if isinstance(each, ast.ClassDef))
            yield from ("%s: %s" % (name, each) for each, n in classes.items() if n > 1)


# Processes that a test starts may import this file again.
if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    parts = sys.argv[1:]
    if twice := list(named_twice(here)):
        sys.exit("classes of one name: " + ", ".join(twice))
    found = [case for case in cases(unittest.defaultTestLoader.discover(here))
             if not parts or any(part in case.id() for part in parts)]
    if "TEST_SHARD_STATUS_FILE" in os.environ:  # as in tests/harness.h
        open(os.environ["TEST_SHARD_STATUS_FILE"], "w").close()
        found = found[int(os.environ["TEST_SHARD_INDEX"])::int(os.environ["TEST_TOTAL_SHARDS"])]
    result = Lines()
    unittest.TestSuite(found).run(result)
    sys.exit(1 if result.failures or not found else 0)
