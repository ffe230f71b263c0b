#!/usr/bin/env python3
"""Comments and documents name files, settings and counters that exist, and documents the names of the API."""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from texts import paths, read, verdict  # noqa: E402

ROOMS = ["base", "bench", "collectives", "docs", "endpoints", "examples", "fsm", "include", "integrations", "reactor",
         "resource", "runtime", "tests", "tools", "transports"]
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|(/\*.*?\*/|//[^\n]*)', re.S)
FILE = re.compile(r"(?<![\w/.<$*-])((?:[a-z_0-9]+/)*[a-z][a-z_0-9]*\.(?:c|h|fsm|def))\b(?!\w)")
SETTING = re.compile(r'(?:SETTING|COUNTER)\(\w+, "([^"]+)"')
# `name.name` in a document, or "name.name" in a comment
NAMED = re.compile(r"[`\"]([a-z]+\.[a-z_]+)(?:=[^`\"]*)?[`\"]")
# `weft_name` or `WEFT_NAME`; one that ends in _ begins several
API = re.compile(r"\b(?:weft_[a-z0-9_]*[a-z0-9]|WEFT_[A-Z0-9_]*[A-Z0-9])\b")
# the example of a machine, and headers of the system
ELSEWHERE = re.compile(r"(foo(_\w+)?\.(c|h|fsm)|(cuda|cuda_runtime|ev|mpi|talloc)\.h)$")


def prose(path, text):
    """The text that a person reads: all of a document, the comments of a source file."""
    if path.endswith(".md"):
        return [text]
    if path.endswith((".c", ".h", ".fsm", ".def")):
        return [match.group(1) for match in COMMENT.finditer(text) if match.group(1)]
    return []


def is_there(name, files):
    return name in files or any(file.endswith("/" + name) for file in files)


def is_beyond(name, path):
    """Whether a name may be of a file that this copy of the tree lacks (Bazel's copy has no tests, programs or examples)."""
    return name.startswith(("tests/", "tools/", "bench/", "examples/", "integrations/")) or ("/" not in name and path.endswith(".md"))


def stale(text, files, settings, path="", whole=True):
    sections = {name.split(".")[0] for name in settings if "." in name}
    for match in FILE.finditer(text):
        name = match.group(1)
        if not ELSEWHERE.search(name) and not is_there(name, files) and (whole or not is_beyond(name, path)):
            yield "file " + name
    for match in NAMED.finditer(text):
        section, name = match.group(1).split(".")
        if section in sections and name not in ("c", "h", "hpp", "fsm", "md", "def") and match.group(1) not in settings:
            yield "setting " + match.group(1)


def unknown_api(text, known):
    return sorted("name " + name for name in set(API.findall(text)) - known)


def check(root):
    files = set(paths(root, [name for name in os.listdir(root) if name.endswith(".md")] + ROOMS))
    lists = ("base/settings.def", "base/counters.def")
    names = {name for path in lists for name in SETTING.findall(read(root, path))}
    whole, found = "bench/cores.h" in files, []
    for path in sorted(files):
        for text in prose(path, read(root, path) if path.endswith((".md", ".c", ".h", ".fsm", ".def")) else ""):
            found += ["%s: no %s" % (path, what) for what in stale(text, files, names, path, whole)]
    if whole:
        known = set()
        for path in paths(root, ROOMS + ["BUILD.bazel", "bazel", "python"]):
            known.update(API.findall(read(root, path)) if not path.endswith((".md", ".svg", "stale_names_test.py")) else ())
        for path in sorted(path for path in files if path.endswith(".md")):
            found += ["%s: no %s" % (path, what) for what in unknown_api(read(root, path), known)]
    return found


def main():
    found = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    for line in found:
        print(line)
    files, names = {"base/list.h"}, {"link.rails"}
    good = [
        verdict(not found, "comments_and_documents_name_files_settings_and_counters_that_exist"),
        verdict(list(stale("see base/lists.h", files, names)), "a_missing_file_is_seen"),
        verdict(list(stale("`link.rods=2`", files, names)), "a_missing_setting_is_seen"),
        verdict(unknown_api("`weft_sent`, `weft_send`", {"weft_send"}) == ["name weft_sent"], "a_missing_name_of_the_api_is_seen"),
        verdict(not list(stale("list.h, base/list.h, `link.rails=2`", files, names)), "what_exists_passes"),
    ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
