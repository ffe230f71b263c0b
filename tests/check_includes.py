#!/usr/bin/env python3
"""A room includes only itself and the rooms above it; a transport never includes another; include/ only itself."""
import os
import re
import sys

ROOMS = ["fsm", "reactor", "transports", "endpoints", "collectives", "runtime"]
OUTSIDE = ["bench", "examples", "python", "tests", "tools"]
SOURCE = re.compile(r"\.(c|h|def|fsm|inc)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def sources(root):
    for top in ["include"] + ROOMS:
        for folder, _, names in os.walk(os.path.join(root, top), followlinks=True):
            for name in sorted(names):
                if SOURCE.search(name):
                    yield os.path.relpath(os.path.join(folder, name), root)


def place(path):
    """The room of a path, and its transport if it is in one."""
    parts = path.split("/")
    transport = parts[1] if parts[0] == "transports" and len(parts) > 2 else None
    return parts[0], transport


def target(path, kind, name, root):
    """The path from the root that an include names, or None for one of the system's."""
    near = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if kind == '"' and os.path.exists(os.path.join(root, near)):
        return near
    if name.startswith("weft/"):
        return "include/" + name
    return name if name.split("/")[0] in ROOMS + OUTSIDE else None


def complaint(path, included):
    room, transport = place(path)
    other, other_transport = place(included)
    if other == "include":
        return None
    if room == "include":
        return "a public header includes an internal one"
    if other in OUTSIDE:
        return "the library includes %s/" % other
    if ROOMS.index(other) > ROOMS.index(room):
        return "%s is below %s" % (other, room)
    if other_transport and other_transport != transport:
        return "no room and no transport includes transport %s" % other_transport
    return None


def check(root):
    wrong, seen = [], 0
    for path in sources(root):
        with open(os.path.join(root, path), errors="replace") as file:
            text = file.read()
        seen += 1
        for kind, name in INCLUDE.findall(text):
            included = target(path, kind, name, root)
            why = included and complaint(path, included)
            if why:
                wrong.append("%s includes %s: %s" % (path, included, why))
    return wrong, seen


if __name__ == "__main__":
    problems, count = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    for problem in problems:
        print(problem)
    print("%d files" % count)
    sys.exit(1 if problems or not count else 0)
