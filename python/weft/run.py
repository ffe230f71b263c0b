"""python -m weft.run [OPTIONS] SCRIPT [ARGUMENTS…]: starts processes of a script, as weft-run does.

All options are weft-run's (`weft-run --help`); `-n 4` starts four, and with `--keep-going` the others go on when one is killed. SCRIPT ends with .py, and is run by this interpreter; or
`-m MODULE`. The program weft-run is the one that was installed with this package, else one in PATH, else that of the build
around this package.
"""
from __future__ import annotations

import os
import shutil
import sys

from ._program import run


def find_program() -> str | None:
    here = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(here, "weft-run")
    built = os.path.join(here, "..", "..", "tools", "weft-run")
    places = installed, shutil.which("weft-run"), built
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def command(arguments: list[str], python: str = sys.executable) -> list[str]:
    """weft-run's arguments, with this interpreter before the script."""
    for at, argument in enumerate(arguments):
        if argument.endswith(".py") or argument == "-m":
            return [*arguments[:at], python, *arguments[at:]]
    return arguments


def main() -> None:
    program = find_program()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if len(sys.argv) > 1 else 2)
    if program is None:
        sys.exit("weft.run: no weft-run here: build it (tools/build programs), and let PATH name its folder")
    os.execv(program, [program, *command(sys.argv[1:])])


if __name__ == "__main__":
    run(main)
