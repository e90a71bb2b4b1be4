"""Records for Weights & Biases, sent from a process of their own, so that nothing there can hold up a run.

    supervisor --socket, one record a message, never waited for--> process (wandb_process.py) --> wandb

wandb may block for minutes in `init`, in `log` or in `finish`, and it has exit handlers. All of that happens
in a process that nobody waits for longer than some seconds. The socket is the bounded queue: a record that
finds it full is dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from motrix_rl.metrics.writer import scalars
from motrix_rl.runs.plain import to_plain

logger = logging.getLogger(__name__)

Mode = Literal["online", "offline"]
#: Bytes that wait in the socket at most: some hundred records (the kernel may grant less).
QUEUE_BYTES = 1 << 20
#: Seconds in which wandb may finish when the run has ended.
FINISH_S = 5.0
#: Seconds beyond that for the process to end itself.
_MARGIN_S = 1.0
_SCRIPT = Path(__file__).with_name("wandb_process.py")


class WandbWriter:
    """Sends records to wandb. One writer: the process that owns the run.

    Args:
        directory: where wandb keeps its files (the run directory).
        log_path: what wandb says goes there.
        mode: online, or offline (files only; `wandb sync` sends them later).
        name: name of the run.
        config: the run's configuration, plain data.
        on_error: called with one line when something was lost, once for each kind of loss.
        finish_s: seconds that wandb has to finish in `close`.

    Attributes:
        dropped: records that were not sent.
    """

    def __init__(
        self,
        directory: Path,
        log_path: Path,
        *,
        mode: Mode,
        name: str,
        config: Mapping[str, Any],
        on_error: Callable[[str], None] = logger.warning,
        finish_s: float = FINISH_S,
    ) -> None:
        self.dropped = 0
        self._on_error = on_error
        self._finish_s = finish_s
        self._log_path = log_path
        self._sending = True
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
        self._socket = ours
        with theirs, open(log_path, "ab") as log:
            self._process = subprocess.Popen(
                # -P: the script's own folder, with its module `wandb`, must not come first.
                [sys.executable, "-P", str(_SCRIPT), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the run's business
            )
        settings = {"mode": mode, "name": name, "dir": str(directory), "finish_s": finish_s}
        self._send({**settings, "config": to_plain(config, str)})

    def write(self, record: Mapping[str, Any]) -> None:
        """Sends the numbers of one record, nested names joined by `/`; never waits."""
        numbers = scalars(to_plain(dict(record)))
        if numbers:
            self._send(numbers)

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self._sending:
            self.dropped += 1
            return
        try:
            self._socket.send(json.dumps(message).encode())
        except BlockingIOError:
            self.dropped += 1
            if self.dropped == 1:
                self._on_error(f"wandb does not keep up; records are dropped (see {self._log_path})")
        except OSError:
            self.dropped += 1
            self._sending = False
            self._on_error(f"wandb's process has ended; its records are lost (see {self._log_path})")

    def close(self) -> None:
        """Lets wandb finish, for `finish_s` at most; then its processes are ended."""
        self._socket.close()
        try:
            code = self._process.wait(self._finish_s + _MARGIN_S)
        except subprocess.TimeoutExpired:
            code = None
        # wandb has a process of its own beside ours; both are in the session that ours began.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if code is None or code == -signal.SIGKILL:
            self._on_error(
                f"wandb did not finish within {self._finish_s:g} s and was ended; `wandb sync` sends what is left"
            )
        elif code != 0 and self._sending:
            self._on_error(f"wandb failed; its records are lost (see {self._log_path})")
        if self.dropped:
            self._on_error(f"{self.dropped} records did not reach wandb; metrics.jsonl has them all")


def default_name(directory: Path) -> str:
    """Name of a run in wandb."""
    return directory.name or time.strftime("%Y%m%d-%H%M%S")
