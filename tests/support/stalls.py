#!/usr/bin/env python3
"""stalls.py COMMAND…: runs it while its processes stop for a moment at random, as they do on a busy machine.

`tools/test stalls` runs each test so. An order of two processes that a test takes for granted, and a limit that a stall of a
tenth of a second breaks, are found in a few runs. STALLS_SEED sets the seed, which is printed. The test has it in its environment.
"""
import os
import random
import signal
import subprocess
import sys
import time

STALL_S = (0.002, 0.02, 0.1)
RUN_S = (0.0005, 0.005, 0.02)


def starts_a_terminal(pid):
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read() == "script\n"
    except OSError:
        return False


def descendants(pid):
    """But script(1) and its child: the one stops when it sees the other stop, and misses its end when it goes on."""
    found, skipped = [], starts_a_terminal(pid)
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread)) as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass  # it has ended
    below = [process for child in found for process in descendants(child)]
    return below if skipped else [child for child in found if not starts_a_terminal(child)] + below


def is_stopped(pid):
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


def stall(pid, seconds):
    try:
        if is_stopped(pid):
            return  # by the test
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass  # it has ended, or has another user


def main():
    seed = os.environ.get("STALLS_SEED") or str(random.randrange(1 << 32))
    chance = random.Random(seed)
    print("stalls: STALLS_SEED=%s" % seed, flush=True)
    test = subprocess.Popen(sys.argv[1:], env=os.environ | {"STALLS_SEED": seed})
    while test.poll() is None:
        stall(chance.choice([test.pid] + descendants(test.pid)), chance.choice(STALL_S))
        time.sleep(chance.choice(RUN_S))
    return test.returncode if test.returncode >= 0 else 128 - test.returncode


if __name__ == "__main__":
    sys.exit(main())
