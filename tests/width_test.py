#!/usr/bin/env python3
"""Documents and comments end before column 101, and tables of machines before column 141.

Left out are table rows, indented or fenced code of a document, headings, and lines that a single word (a link, a path) makes
long. In C files only comments are looked at: clang-format has the code.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from texts import paths, texts, verdict  # noqa: E402

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


def check(root):
    covered = texts(root, COVERED, (".md", ".c", ".h", ".def", ".cpp", ".hpp"))
    return [line for path, text in covered if path not in WIDE for line in offences(path, text)]


ROOMS = ["base", "bench", "collectives", "endpoints", "examples", "fsm", "include", "integrations", "python", "reactor", "resource",
         "runtime", "tests", "tools", "transports"]


def wide_files(root, endings, width, allowed=frozenset()):
    """The files of the rooms with these endings that have a line of more than `width` columns."""
    widest = {path: max(map(len, text.splitlines()), default=0) for path, text in texts(root, ROOMS, endings) if path not in allowed}
    return ["%s: %d columns" % (path, columns) for path, columns in widest.items() if columns > width]


PRODUCT = ["base", "collectives", "endpoints", "fsm", "reactor", "resource", "runtime", "transports"]
README_LINES = 20
OVERVIEW_LINES = 250


def rooms_to_mend(root):
    """Folders of the product with sources and no README, READMEs of rooms and an overview that are too long."""
    files = set(paths(root, PRODUCT))
    folders = sorted({os.path.dirname(path) for path in files if path.endswith(".c")})
    found = ["%s: no README.md" % folder for folder in folders if folder + "/README.md" not in files]
    for path, text in texts(root, PRODUCT, "/README.md"):
        found += too_long(path, text, README_LINES)
    for path, text in texts(root, ["docs/design.md"], ".md"):
        found += too_long(path, text, OVERVIEW_LINES)
    return found


def too_long(path, text, most):
    lines = text.count("\n")
    return ["%s: %d lines, at most %d" % (path, lines, most)] if lines > most else []


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
