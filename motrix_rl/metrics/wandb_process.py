# pyright: reportMissingImports=false
# (wandb is an extra)
"""The process that talks to wandb; started by `WandbWriter`, which says why it is one.

The first message is what to begin with, every other one a record. The main thread is wandb's. A second thread
reads the socket, and ends the whole session when the run has closed its end and wandb takes too long, even
where the run was killed and nobody else is left to do it.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from typing import Any

_INBOX = 64
_MESSAGE_BYTES = 1 << 20


def main(descriptor: int) -> None:
    """Sends what comes through the socket until its other end is closed."""
    inbox: queue.Queue[dict[str, Any] | None] = queue.Queue(_INBOX)
    connection = socket.socket(fileno=descriptor)
    first = connection.recv(_MESSAGE_BYTES)
    if not first:
        return
    settings = json.loads(first)
    threading.Thread(
        target=_read, args=(connection, inbox, float(settings["finish_s"])), name="reader", daemon=True
    ).start()
    wandb = importlib.import_module("wandb")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "motrix_rl"),
        name=settings["name"],
        dir=settings["dir"],
        config=settings["config"],
        mode=settings["mode"],
    )
    run.define_metric("*", step_metric="env_steps")
    while (record := inbox.get()) is not None:
        run.log(record)
    run.finish()


def _read(connection: socket.socket, inbox: queue.Queue[dict[str, Any] | None], finish_s: float) -> None:
    """Moves records into the inbox while there is room; what there is not stays in the socket."""
    closed = select.poll()
    closed.register(connection, select.POLLRDHUP)
    deadline: float | None = None
    ended = False
    while True:
        if deadline is None and closed.poll(0):
            deadline = time.monotonic() + finish_s
        if deadline is not None and time.monotonic() >= deadline:
            print(f"wandb did not finish within {finish_s:g} s", file=sys.stderr, flush=True)
            os.killpg(0, signal.SIGKILL)
        if ended or inbox.full():
            time.sleep(0.05)
            continue
        if not select.select([connection], [], [], 0.2)[0]:
            continue
        message = connection.recv(_MESSAGE_BYTES)
        ended = not message
        inbox.put(json.loads(message) if message else None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
