#!/usr/bin/env python3
"""Writes the code blocks of a README to files: extract.py README FOLDER.

A block is fenced, or indented by four columns after an empty line. Blocks are told apart by what they contain:
  program-N.c   C with a main
  fragment-N.c  C without one, put into the program that makes a team, before it closes that team
  WORKSPACE, BUILD, .bazelrc   the parts of a block that begin with such a name in a comment
  compile       the shell command that compiles server.c
"""
import os
import re
import sys
import textwrap


def blocks(text):
    """The code blocks of a Markdown text, in order, without their indentation."""
    found, current, fenced, after_empty = [], [], False, True
    for line in text.splitlines() + ["end"]:
        if re.match(r"\s*```", line):
            if fenced:
                found.append("\n".join(current))
                current = []
            fenced = not fenced
            continue
        if fenced or (line.startswith("    ") and (current or after_empty)) or (current and not line.strip()):
            current.append(line)
        elif current:
            found.append("\n".join(current))
            current = []
        after_empty = not line.strip()
    return [textwrap.dedent(block).strip("\n") + "\n" for block in found]


def named_parts(block):
    """{"WORKSPACE": text, …} of a block whose parts begin with such a comment."""
    parts = re.split(r"^# (WORKSPACE|BUILD|\.bazelrc)\b.*\n", block, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def into_team(fragment, program):
    """The program with the fragment before it closes its team."""
    close = re.search(r"^.*weft_team_close_wait.*$", program, flags=re.M)
    indented = textwrap.indent(fragment, "    ")
    return program[: close.start()] + "    {\n" + indented + "    }\n" + program[close.start() :]


def is_c(block):
    return re.search(r"\bweft_\w+\(.*;", block) or re.search(r"\bweft_\w+_t\b.*;", block)


def main():
    text, folder = open(sys.argv[1]).read(), sys.argv[2]
    files, programs, fragments = {}, [], []
    for block in blocks(text):
        if "int main(" in block:
            programs.append(block)
        elif named_parts(block):
            files.update(named_parts(block))
        elif re.search(r"^(gcc|cc|clang) .*server\.c", block, flags=re.M):
            files["compile"] = block
        elif is_c(block):
            fragments.append(block)
    team = next((p for p in programs if "weft_team_close_wait" in p), None)
    for i, program in enumerate(programs, 1):
        files["program-%d.c" % i] = program
    for i, fragment in enumerate(fragments, 1):
        files["fragment-%d.c" % i] = into_team(fragment, team) if team else "#error no program makes a team\n"
    for name, content in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(content)


if __name__ == "__main__":
    main()
