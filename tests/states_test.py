#!/usr/bin/env python3
"""Product code reads the state of a machine only by the predicates of its table (FOO_SETS, fsm/define.h)."""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from texts import texts, verdict  # noqa: E402

ROOMS = ["base", "reactor", "transports", "endpoints", "collectives", "resource", "runtime", "tools"]
READ = re.compile(r"\bfsm(?:\.|->)state\b")
# The actions and invariants of a machine stand beside its table.
EXEMPT = re.compile(r"(_machine|^machines)\.c$")


def reads(path, text):
    if EXEMPT.search(os.path.basename(path)):
        return []
    return ["%s:%d: reads fsm.state: give the .fsm a set" % (path, number)
            for number, line in enumerate(text.split("\n"), 1) if READ.search(line)]


def sees_reads_and_spares_predicates():
    product, action = "endpoints/a.c", "endpoints/lanes/switch_machine.c"
    return (reads(product, "if (ep->core.fsm.state == EP_READY) return;") and
            reads(product, "return (mask >> m->fsm.state & 1);") and
            not reads(product, "if (ep_is_ready(&ep->core.fsm)) return;") and
            not reads(action, "assert(c->fsm.state == SWITCH_OVER);"))


if __name__ == "__main__":
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    found = [line for path, text in texts(root, ROOMS, (".c", ".h")) for line in reads(path, text)]
    for line in found:
        print("  " + line)
    good = [
        verdict(not found, "states_are_read_by_predicates"),
        verdict(sees_reads_and_spares_predicates(), "the_check_sees_reads_and_spares_predicates"),
    ]
    sys.exit(0 if all(good) else 1)
