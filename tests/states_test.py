#!/usr/bin/env python3
"""Product code reads the state of a machine only by the predicates of its table (FOO_SETS, fsm/define.h)."""
import os
import re
import sys

ROOMS = ["base", "reactor", "transports", "endpoints", "collectives", "resource", "runtime", "tools"]
READ = re.compile(r"\bfsm(?:\.|->)state\b")
# The actions and invariants of a machine stand beside its table.
EXEMPT = re.compile(r"(_machine|^machines)\.c$")


def reads(path, text):
    if EXEMPT.search(os.path.basename(path)):
        return []
    return ["%s:%d: reads fsm.state: give the .fsm a set" % (path, number)
            for number, line in enumerate(text.split("\n"), 1) if READ.search(line)]


def check(root):
    found = []
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(root, room), followlinks=True):
            for name in names:
                if name.endswith((".c", ".h")):
                    path = os.path.join(folder, name)
                    with open(path, errors="replace") as file:
                        found += reads(os.path.relpath(path, root), file.read())
    return sorted(found)


def sees_reads_and_spares_predicates():
    product, action = "endpoints/a.c", "endpoints/lanes/switch_machine.c"
    return (reads(product, "if (ep->core.fsm.state == EP_READY) return;") and
            reads(product, "return (mask >> m->fsm.state & 1);") and
            not reads(product, "if (ep_is_ready(&ep->core.fsm)) return;") and
            not reads(action, "assert(c->fsm.state == SWITCH_OVER);"))


if __name__ == "__main__":
    found = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join("  " + line for line in found))
    print("%s states_are_read_by_predicates" % ("not ok" if found else "ok"))
    itself = sees_reads_and_spares_predicates()
    print("%s the_check_sees_reads_and_spares_predicates" % ("ok" if itself else "not ok"))
    sys.exit(1 if found or not itself else 0)
