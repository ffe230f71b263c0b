"""How the programs of this package end (weft.info, weft.run, weft.benchmarks.send_recv)."""
from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


def run(main: Callable[[], None]) -> None:
    """Calls `main`. A program whose output nobody reads any more ends as a filter does: by SIGPIPE, without a word."""
    try:
        try:
            main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
