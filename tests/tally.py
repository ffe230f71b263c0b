#!/usr/bin/env python3
"""Counts single test cases: tally.py SKIPS EVENTS, where EVENTS is what `bazel test --build_event_json_file` wrote, or
tally.py --log SKIPS LOG, where LOG is the output of tests.

Prints what failed, each with the last lines that its test wrote before, then one line "PASSED FAILED SKIPPED". A case is
a line "ok NAME", "not ok NAME" or "skip NAME" in a test's log. One failed each are: a test that ends badly without saying
"not ok", one that says nothing at all, one that cannot be built, a skip whose reason ("  skipped: REASON", before it) is
not in SKIPS, and events that break off.
"""
import collections
import fnmatch
import json
import os
import re
import sys
import urllib.parse

CASE = re.compile(r"^(ok|not ok|skip) (\S.*)$")
REASON = re.compile(r"^\s+skipped: (.*)$")
LINES_BEFORE = 12


def read_reasons(path):
    with open(path) as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


class Tally:
    def __init__(self, reasons):
        self.reasons = reasons
        self.passed, self.skipped, self.failures = 0, 0, []

    def fail(self, label, why, said=()):
        self.failures.append(("%s: %s" % (label, why), list(said)))

    def log(self, label, text, ended_well):
        """Counts one run of one test program."""
        cases, reason, bad = 0, "", 0
        said = collections.deque(maxlen=LINES_BEFORE)
        for line in text.splitlines():
            skipped = REASON.match(line)
            if skipped:
                reason = skipped.group(1).strip()
            case = CASE.match(line)
            if not case:
                if not line.startswith("weft: warn"):
                    said.append(line)
                continue
            cases += 1
            outcome, name = case.groups()
            if outcome == "ok":
                self.passed += 1
            elif outcome == "not ok":
                bad += 1
                self.fail(label, name, said)
            elif any(fnmatch.fnmatchcase(reason, allowed) for allowed in self.reasons):
                self.skipped += 1
            else:
                bad += 1
                self.fail(label, "%s was skipped: %s" % (name, reason or "no reason given"))
            reason = ""
            said.clear()
        if not ended_well and not bad:
            self.fail(label, "ended badly after %d cases" % cases, said)
        elif not cases and not bad:
            self.fail(label, "ran no case")


def events(tally, path):
    """Those of one run; what breaks off, as when Bazel was killed, is a failure of its own."""
    found, name = [], os.path.basename(path)
    with open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                found.append(json.loads(line))
            except ValueError:
                tally.fail(name, "ends in the middle of line %d" % number)
                return found
    if not found or not found[-1].get("lastMessage"):
        tally.fail(name, "the run did not come to its end")
    return found


def log_text(outputs):
    for output in outputs:
        if output["name"] == "test.log" and "uri" in output:
            path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            if os.path.exists(path):
                with open(path, errors="replace") as file:
                    return file.read()
    return ""


def count_events(tally, path):
    """A retried test counts by its last run, and each shard. What does not build counts as failed: tests, and what holds them up."""
    runs, broken, culprits = {}, set(), set()
    for event in events(tally, path):
        key = event["id"]
        if "testResult" in event:
            result = event["testResult"]
            case = key["testResult"]
            run = (case["label"], case.get("run", 1), case.get("shard", 1))
            runs[run] = (result["status"], result.get("testActionOutput", []))
        elif "targetCompleted" in key and not event.get("completed", {}).get("success"):
            broken.add(key["targetCompleted"]["label"])
        elif "actionCompleted" in key and not event.get("action", {}).get("success"):
            culprits.add(key["actionCompleted"]["label"])
    for (label, *_), (status, outputs) in sorted(runs.items()):
        tally.log(label, log_text(outputs), status == "PASSED")
    for label in sorted(broken - {label for label, *_ in runs}):
        if label in culprits or label.startswith("//tests") or not culprits:
            tally.fail(label, "does not build")


def main():
    is_log = sys.argv[1] == "--log"
    skips, *paths = sys.argv[2 if is_log else 1 :]
    tally = Tally(read_reasons(skips))
    for path in paths:
        if is_log:
            with open(path, errors="replace") as file:
                tally.log("plain", file.read(), True)
        else:
            count_events(tally, path)
    for failure, said in tally.failures:
        for line in said:
            print("   ", line[:200])
        print("not ok", failure)
    print(tally.passed, len(tally.failures), tally.skipped)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
