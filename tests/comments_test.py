#!/usr/bin/env python3
"""Each C file of the product begins with a comment that says what it is, and a comment stands at what it is about.

Two comments one below the other betray a declaration that was put between a comment and its function, or taken away there.
Left out are banners (/* ---- x ---- */), the name of the file that the next declarations come from (/* poller.c */), and switches
of clang-format. A comment at the end of a line of code is none of these.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from texts import texts, verdict  # noqa: E402

PRODUCT = ["base", "collectives", "endpoints", "fsm", "reactor", "resource", "runtime", "transports"]
ROOMS = PRODUCT + ["bench", "examples", "include", "integrations", "python", "tests", "tools"]
# A comment that begins a line, its indentation, and what begins the next line.
COMMENT = re.compile(r"^([ \t]*)/\*((?:(?!\*/).)*)\*/[ \t]*\n(?=[ \t]*/\*((?:(?!\*/).)*)\*/)", re.S | re.M)
NO_COMMENT_ON_CODE = re.compile(r"\s*(?:----|clang-format\b|[a-z]\w*\.c\b)")
# The tables of fsm/, whose rows of comments are aligned by hand, are not covered.
SOURCE = (".c", ".h", ".cpp", ".hpp", ".def")


def begins_with_comment(text):
    match = re.match(r"/\*((?:(?!\*/).)*)\*/", text, re.S)
    return bool(match and not NO_COMMENT_ON_CODE.match(match[1]))


def doubled(text):
    """The lines with a comment right below another one."""
    return [text.count("\n", 0, match.end()) + 1 for match in COMMENT.finditer(text)
            if not NO_COMMENT_ON_CODE.match(match[2]) and not NO_COMMENT_ON_CODE.match(match[3])]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    bare = [path for path, text in texts(root, PRODUCT, ".c") if not begins_with_comment(text)]
    twice = ["%s:%d: a comment right below another" % (path, line) for path, text in texts(root, ROOMS, SOURCE) for line in doubled(text)]
    for line in ["%s: no comment says what it is" % path for path in bare] + twice:
        print("  " + line)
    good = [
        verdict(not bare, "each_c_file_of_the_product_begins_with_a_comment"),
        verdict(not twice, "no_comment_stands_right_below_another"),
        verdict(not begins_with_comment('#include "a.h"\n/* a */\n') and not begins_with_comment("/* ---- a ---- */\nint a;\n") and
                begins_with_comment("/* What it is. */\n"), "a_file_without_a_first_comment_is_seen"),
        verdict(doubled("/* of one */\n/* of the other */\nint b;\n") == [2] and
                doubled("int a;\n    /* two\n     * lines */\n    /* of b */\n    int b;\n") == [4], "a_comment_below_another_is_seen"),
        verdict(not doubled("int a; /* of a */\n/* of b */\nint b;\n") and not doubled("/* ---- banner ---- */\n/* of b */\nint b;\n") and
                not doubled("/* a.c: its calls */\n/* of b */\nint b;\n") and not doubled("/* of a */\n\n/* of b */\nint b;\n"),
                "banners_names_of_files_and_comments_on_code_are_none"),
    ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
