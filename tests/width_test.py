#!/usr/bin/env python3
"""Documents and comments end before column 101, and tables of machines before column 141.

Left out are table rows, indented or fenced code of a document, headings, and lines that a single word (a link, a path) makes
long. In C files only comments are looked at: clang-format has the code.
"""
import os
import re
import sys

WIDTH = 100
# Documents and comments of these folders and files.
COVERED = ["base", "bench", "collectives", "docs", "endpoints", "examples", "fsm", "include", "integrations", "python", "reactor",
           "resource", "runtime", "tests", "tools", "transports", "README.md", "CONTRIBUTING.md", "SECURITY.md"]
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|(/\*.*?\*/|//[^\n]*)', re.S)
LONGEST_WORD = 60
TABLE_WIDTH = 140
# C files whose diagrams, lists of macros or names of tests are wider. Remove a file when its lines fit.
WIDE = {"fsm/define.h", "fsm/explore/explorer.h", "fsm/macros.h",
        "reactor/loop.c", "tests/fsm/conn_model_test.c", "tests/reactor/arming_model_test.c",
        "tests/transfer/placement_cancel_test.c", "tests/transports/mailbox_model_test.c",
        "tests/transports/room_model_test.c", "transports/rdma/ud/ud_wire.h",
        "transports/rdma/verbs/verbs.def", "transports/rdma/verbs/verbs.h", "transports/sim/sim.h", "transports/tcp/wire.h"}


def is_one_word(line):
    """Whether the line cannot be broken: a long word, behind at most its bullet or comment sign."""
    words = line.split()
    return any(len(word) > LONGEST_WORD for word in words) and len(words) <= 3


def long_lines(lines):
    return [(number, line) for number, line in lines if len(line) > WIDTH and not is_one_word(line)]


def document_lines(text):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ", "#", "![")):
            yield number, line


def comment_lines(text):
    """Each source line that a comment lies on, up to the comment's end."""
    for match in COMMENT.finditer(text):
        if match.group(1):
            first = text.count("\n", 0, match.start()) + 1
            indent = match.start() - (text.rfind("\n", 0, match.start()) + 1)
            for offset, line in enumerate(match.group(1).splitlines()):
                yield first + offset, " " * indent + line if offset == 0 else line


def offences(path, text):
    lines = document_lines(text) if path.endswith(".md") else comment_lines(text)
    return ["%s:%d: %d columns" % (path, number, len(line)) for number, line in long_lines(lines)]


def covered_files(root):
    for name in COVERED:
        path = os.path.join(root, name)
        if os.path.isfile(path):
            yield name
        for folder, folders, files in os.walk(path, followlinks=True):
            folders[:] = [name for name in folders if not name.startswith("bazel-")]
            for file in sorted(files):
                if os.path.relpath(os.path.join(folder, file), root) not in WIDE and file.endswith((".md", ".c", ".h", ".def", ".cpp", ".hpp")):
                    yield os.path.relpath(os.path.join(folder, file), root)


def check(root):
    found = []
    for path in covered_files(root):
        with open(os.path.join(root, path), errors="replace") as file:
            found += offences(path, file.read())
    return found


ROOMS = ["base", "bench", "collectives", "endpoints", "examples", "fsm", "include", "integrations", "python", "reactor", "resource",
         "runtime", "tests", "tools", "transports"]


def wide_files(root, endings, width, allowed=frozenset()):
    """The files of the rooms with these endings that have a line of more than `width` columns."""
    found = []
    for room in ROOMS:
        for folder, _, files in os.walk(os.path.join(root, room), followlinks=True):
            for name in sorted(files):
                path = os.path.join(folder, name)
                if name.endswith(endings) and os.path.relpath(path, root) not in allowed:
                    with open(path, encoding="utf-8", errors="replace") as file:
                        widest = max(map(len, file.read().splitlines()), default=0)
                    if widest > width:
                        found.append("%s: %d columns" % (path, widest))
    return found


PRODUCT = ["base", "collectives", "endpoints", "fsm", "reactor", "resource", "runtime", "transports"]
README_LINES = 20
OVERVIEW_LINES = 250


def rooms_to_mend(root):
    """Folders of the product with sources and no README, READMEs of rooms and an overview that are too long."""
    found = []
    for top in PRODUCT:
        for folder, _, files in os.walk(os.path.join(root, top), followlinks=True):
            if "README.md" in files:
                found += too_long(os.path.join(folder, "README.md"), README_LINES)
            elif any(name.endswith(".c") for name in files):
                found.append("%s: no README.md" % folder)
    return found + too_long(os.path.join(root, "docs", "design.md"), OVERVIEW_LINES)


def too_long(path, most):
    with open(path, encoding="utf-8") as file:
        lines = sum(1 for _ in file)
    return ["%s: %d lines, at most %d" % (path, lines, most)] if lines > most else []


def verdict(good, name):
    print("ok" if good else "not ok", name)
    return good


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    found, tables, code = check(root), wide_files(root, ".fsm", TABLE_WIDTH), wide_files(root, (".c", ".h", ".cpp", ".hpp"), WIDTH, WIDE)
    rooms = rooms_to_mend(root)
    for line in found + tables + code + rooms:
        print(line)
    words = "word " * 25
    good = [
        verdict(not found, "documents_and_comments_end_before_column_101"),
        verdict(not tables, "tables_of_machines_end_before_column_141"),
        verdict(not code, "lines_of_c_end_before_column_101"),
        verdict(not rooms, "rooms_have_a_readme_of_20_lines_and_design_md_has_250"),
        verdict(offences("a.md", words), "a_long_line_of_a_document_is_seen"),
        verdict(offences("a.h", "int x; /* %s */" % words), "a_long_comment_is_seen"),
        verdict(offences("a.h", "/*\n * %s\n */" % words), "a_long_line_within_a_comment_is_seen"),
        verdict(not offences("a.h", 'char *s = "/* %s */";' % words), "a_long_text_is_no_comment"),
        verdict(not offences("a.md", "| %s|\n    %s\n```\n%s\n```\n" % (words, words, words)), "tables_and_code_may_be_long"),
    ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
