"""python -m weft.info [--json]: this build, its transports and settings, and where each setting comes from."""
from __future__ import annotations

import json
import sys

from . import Context, Worker, __version__
from ._program import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def info() -> dict[str, Any]:
    """A dict: version, python, transports, settings, calibration; all as the classes of this package give them."""
    context = Context({"log.level": "none"})
    with Worker(context) as worker:
        return {"version": __version__, "python": sys.version.split()[0], "transports": worker.transports(),
                "calibration": worker.calibration(), "settings": context.settings()}


def main() -> None:
    if sys.argv[1:] not in ([], ["--json"]):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    found = info()
    if sys.argv[1:]:
        print(json.dumps(found, indent=1))
        return
    print("weft %s, Python %s" % (found["version"], found["python"]))
    for transport in found["transports"]:
        print("transport %-8s %8.0f ns  %6.2f GB/s  %s" % (transport["name"], transport["latency_ns"],
                                                          transport["bandwidth"] / 1e9, " ".join(transport["capabilities"])))
    for setting in found["settings"]:
        print("%-28s %-12s %-12s %s" % (setting["name"], setting["value"], setting["origin"], setting["help"]))


if __name__ == "__main__":
    run(main)
