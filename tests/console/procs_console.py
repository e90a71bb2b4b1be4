"""Programs for the tests of the console, run on a terminal of their own."""

from __future__ import annotations

import os
import sys
import time

from motrix_rl.console import make_console
from tests.console.samples import BOOT, RUN


def main(what: str) -> None:
    """Shows something and ends in the way asked for."""
    console = make_console("auto", interval_s=0.0)
    console.boot(BOOT)
    console.status(RUN)
    # A library of the parent that prints while fd 1 and 2 are redirected.
    null = os.open(os.devnull, os.O_WRONLY)
    saved = os.dup(1)
    os.dup2(null, 1)
    os.system("echo torn by a child")
    console.status(RUN)
    os.dup2(saved, 1)
    if what == "raise":
        raise RuntimeError("the supervisor has a fault")
    if what == "interrupt":
        print("READY", file=sys.stderr, flush=True)
        time.sleep(60)
    console.note("saved checkpoint somewhere")
    console.close(RUN)


if __name__ == "__main__":
    main(sys.argv[1])
