#!/usr/bin/env python3
"""The order of rooms, held by includes and by calls.

A room may include, and call, only itself and the rooms before it. A transport never uses another one. include/ uses only
itself. The same holds for the inner rooms of endpoints/, transports/, transports/shm/ and transports/rdma/.
tests/allowed_arrows.txt lists the arrows that still point the wrong way; a line of it that is not needed is an error.

Usage: check_includes.py [ROOT] [--print]   --print lists all wrong arrows, the allowed ones too.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from texts import paths, read  # noqa: E402

ROOMS = ["fsm", "base", "reactor", "transports", "endpoints", "collectives", "resource", "runtime"]
# The one file that names the transports, so that no other has to.
REGISTRY = "transports/registry.c"
OUTSIDE = ["bench", "examples", "integrations", "python", "tests", "tools"]
# Inner rooms from the bottom up; "" stands for the files that lie in the folder itself. A tuple: neither uses the other.
INNER = {
    "transports": ["", ("reliable", "cuda")],
    "endpoints": ["wire", "protocol", "core", "memory", "transfer", "messages", "rma", "failover", "lanes", "connect",
                  "threads", "inspect", "worker"],
    "transports/shm": ["wire", "memory", "queues", "lane", "rma", "attach", ""],
    "transports/rdma": ["verbs", ("rc", "ud"), ""],
}
SOURCE = re.compile(r"\.(c|h|def|fsm|inc)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
# A definition begins in the first column, is not static, and its name is followed by a parameter list or a value.
FUNCTION = re.compile(r"^(?!static\b|typedef\b|extern\b|return\b)[A-Za-z_][\w \t\*]*?\b(weft_\w+|[a-z]\w+)\(([^;{}]*)\)\s*\{", re.M)
OBJECT = re.compile(r"^(?!static\b|typedef\b|extern\b)[A-Za-z_][\w \t\*]*?\b(weft__\w+)(?:\[[^\]]*\])*\s*=", re.M)
INLINE_BODY = re.compile(r"^static inline[^;{]*\{.*?^\}|^#define (?:[^\n]*\\\n)*[^\n]*", re.S | re.M)
NAME = re.compile(r"\b[a-z]\w+\b")


def sources(root):
    return [path for path in paths(root, ["include"] + ROOMS) if SOURCE.search(path)]


def transport_of(path):
    """The transport that a path lies in, or None: a folder of transports/ that is no inner room of it."""
    parts = path.split("/")
    inside = parts[0] == "transports" and len(parts) > 2 and parts[1] not in INNER["transports"][1]
    return parts[1] if inside else None


def rank(path, folder):
    """The place of a path among the inner rooms of `folder`, and the inner room; None if it does not lie in one."""
    rest = os.path.relpath(path, folder).split("/")
    room = rest[0] if len(rest) > 1 else ""
    for place, rooms in enumerate(INNER[folder]):
        if room == rooms or (isinstance(rooms, tuple) and room in rooms):
            return place, room
    return None


def inner_complaint(path, used, folder):
    if not (path.startswith(folder + "/") and used.startswith(folder + "/")):
        return None
    here, there = rank(path, folder), rank(used, folder)
    if here is None or there is None:
        return None
    if there[0] > here[0]:
        return "%s/%s is below %s" % (folder, there[1], here[1] or "its own files")
    if there[0] == here[0] and there[1] != here[1]:
        return "%s and %s are beside each other" % (here[1], there[1])
    return None


def complaint(path, used):
    """Why the file `path` may not use the file `used`, or None."""
    room, other = path.split("/")[0], used.split("/")[0]
    if other == "include":
        return None
    if room == "include":
        return "a public header uses an internal one"
    if other in OUTSIDE:
        return "the library uses %s/" % other
    if ROOMS.index(other) > ROOMS.index(room):
        return "%s is below %s" % (other, room)
    if transport_of(used) and transport_of(used) != transport_of(path) and path != REGISTRY:
        return "no room and no other transport uses transport %s" % transport_of(used)
    for folder in INNER:
        why = inner_complaint(path, used, folder)
        if why:
            return why
    return None


def target(path, kind, name, root):
    """The path from the root that an include names, or None for one of the system's."""
    near = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if kind == '"' and os.path.exists(os.path.join(root, near)):
        return near
    if name.startswith("weft/"):
        return "include/" + name
    return name if name.split("/")[0] in ROOMS + OUTSIDE else None


def include_arrows(texts, root):
    for path, text in texts.items():
        for kind, name in INCLUDE.findall(text):
            used = target(path, kind, name, root)
            if used and used != path:
                yield path, used, "includes"


def call_arrows(texts):
    """Uses of a name that another file defines. Names that several files define are left out."""
    plain = {path: COMMENT_OR_TEXT.sub(" ", text) for path, text in texts.items() if path[-2:] in (".c", ".h")}
    home = {}
    for path, text in plain.items():
        if path.endswith(".c"):
            for match in list(FUNCTION.finditer(text)) + list(OBJECT.finditer(text)):
                home.setdefault(match.group(1), set()).add(path)
    for path, text in plain.items():
        if path.startswith("include/"):
            continue
        code = text if path.endswith(".c") else "\n".join(INLINE_BODY.findall(text))
        for name in sorted(set(NAME.findall(code))):
            homes = home.get(name, ())
            if len(homes) == 1 and path not in homes:
                yield path, next(iter(homes)), name


def wrong_arrows(root):
    texts = {path: read(root, path) for path in sources(root)}
    wrong = {}
    for arrows in (include_arrows(texts, root), call_arrows(texts)):
        for path, used, how in arrows:
            why = complaint(path, used)
            if why:
                wrong.setdefault((path, used), (why, []))[1].append(how)
    return wrong, len(texts)


def allowed(root):
    """Lines "FILE -> FILE  # reason"; the file may be absent."""
    path = os.path.join(root, "tests/allowed_arrows.txt")
    if not os.path.exists(path):
        return set()
    rows = (line.split("#")[0].split() for line in read(root, path).splitlines())
    return {(row[0], row[2]) for row in rows if len(row) == 3 and row[1] == "->"}


def main(arguments):
    show = "--print" in arguments
    roots = [word for word in arguments if not word.startswith("--")]
    root = roots[0] if roots else "."
    wrong, count = wrong_arrows(root)
    excused = allowed(root)
    for (path, used), (why, names) in sorted(wrong.items()):
        if show or (path, used) not in excused:
            print("%s -> %s: %s (%s)" % (path, used, why, ", ".join(names)))
    unused = sorted(excused - set(wrong))
    for path, used in unused:
        print("tests/allowed_arrows.txt: %s -> %s is there no more" % (path, used))
    bad = unused or set(wrong) - excused
    print("%d files, %d arrows the wrong way, %d of them allowed" % (count, len(wrong), len(excused & set(wrong))))
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
