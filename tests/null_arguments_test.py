#!/usr/bin/env python3
"""Every public function is called with nothing: 0 and NULL for all that it takes. None crashes or waits."""
import ctypes
import os
import re
import signal
import subprocess
import sys

LIBRARY = os.path.realpath("libweft.so")
SECONDS = 20
MOST_PARAMETERS = 10
NEVER_LOOKS = {"weft_worker_progress"}  # a check would cost every turn (weft/base.h)


def public_functions():
    shown = subprocess.run(["nm", "--dynamic", "--defined-only", LIBRARY], check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted(set(re.findall(r" T (weft_\w+)", shown)) - NEVER_LOOKS)


def ends_well(library, name):
    """In a child, which a crash may end."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the library logs
        # A signal's own action: an alarm ends what waits.
        signal.alarm(SECONDS)
        getattr(library, name)(*[ctypes.c_void_p(0)] * MOST_PARAMETERS)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        print("  %s ended by signal %d" % (name, os.WTERMSIG(status)))
    return not os.WIFSIGNALED(status)


library = ctypes.CDLL(LIBRARY)
functions = public_functions()
bad = [name for name in functions if not ends_well(library, name)]
print("  %d functions" % len(functions))
print("ok" if len(functions) > 200 else "not ok", "all_public_functions_are_called")
print("not ok" if bad else "ok", "nothing_in_place_of_arguments_crashes_nowhere")
sys.exit(bool(bad) or len(functions) <= 200)
