"""`Run`: one training in processes of its own, as a person starts it, and what it may leave behind.

Used by the tests of whole runs and by those of faults. Every wait has a deadline; whatever happens in a test,
`Run` ends the whole session it started.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
_SHM_MAPPING = re.compile(r" (\d+) +/dev/shm/.*$", re.MULTILINE)
TOY = "tests.e2e.tasks_e2e:Toy/python.fastsac"

#: Small and quick: two updates of a small batch after each of 8 worlds' steps, no evaluation.
SMALL = {
    "task": TOY,
    "num_envs": 8,
    "algo.agent.batch_size": 32,
    "algo.agent.actor_hidden_dim": 16,
    "algo.agent.critic_hidden_dim": 16,
    "algo.agent.num_atoms": 11,
    "algo.agent.num_updates": 2,
    "algo.agent.learning_starts": 80,
    "algo.agent.buffer_size": 8000,
    "algo.trainer.num_learning_iterations": 60,
    "algo.trainer.async_options.max_collector_restarts": 0,
    "checkpoint.interval": 0,
    "eval.interval": 0,
    "eval.episodes": 2,
    "logging.interval": 20,
    "logging.tensorboard": False,
    "logging.console": "plain",
}
TRAINER = "algo.trainer.async_options."


def options(**changed: Any) -> dict[str, Any]:
    """`SMALL` with changes; a double underscore stands for a dot, `async__` for the asynchronous options."""
    merged = dict(SMALL)
    for key, value in changed.items():
        name = TRAINER + key.removeprefix("async__") if key.startswith("async__") else key.replace("__", ".")
        merged[name] = value
    return merged


def word(key: str, value: Any) -> str:
    """One `key=value` word of the command line."""
    if value is None:
        return f"{key}=null"
    return f"{key}={str(value).lower() if isinstance(value, bool) else value}"


class Run:
    """A training started by `train.py` in a session of its own.

    Args:
        directory: the run directory.
        settings: options of the command line.
        prefix: words before the interpreter, such as `["sh", "-c", "ulimit -n 256; exec \"$@\"", "sh"]`.
        temporary: directory of the run's temporary files, to see what is left in it.
    """

    def __init__(
        self, directory: Path, settings: dict[str, Any], prefix: Sequence[str] = (), *, resumed: bool = False
    ) -> None:
        self.directory = directory
        self.temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix="tmp-"))
        self.shm_before = set(os.listdir("/dev/shm"))
        where = [] if resumed else [word("run_dir", directory)]
        words = [word(key, value) for key, value in settings.items()]
        environment = dict(os.environ, OMP_NUM_THREADS="1", TMPDIR=str(self.temporary), COLUMNS="200")
        self.started = time.monotonic()
        self.output_path = self.temporary.with_suffix(".out")
        self.output_path.touch()
        command = [*prefix, sys.executable, str(ROOT / "train.py"), *words, *where]
        self.process = self._start(command, environment)
        self.session = self.process.pid

    def _start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with open(self.output_path, "wb") as sink:
            return subprocess.Popen(
                command,
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.members():
            kill(pid)
        self.process.wait(10)

    # What it says and leaves --------------------------------------------------------------------------------

    @property
    def output(self) -> str:
        """Everything on the terminal so far."""
        return self.output_path.read_text(errors="replace")

    def log(self, worker: str) -> str:
        """A worker's log so far."""
        path = self.directory / "logs" / f"{worker}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def error(self, worker: str) -> str:
        """What is in a worker's error file."""
        path = self.directory / "async_errors" / f"{worker}_error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def record(self) -> dict[str, Any]:
        """`run.json`."""
        return json.loads((self.directory / "run.json").read_text())

    def metrics(self) -> list[dict[str, Any]]:
        """Records of `metrics.jsonl`."""
        path = self.directory / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    # Its processes ------------------------------------------------------------------------------------------

    def members(self) -> list[int]:
        """Living processes of its session (a zombie has ended)."""
        return living_in(self.session)

    def pid(self, worker: str, life: int = 0, timeout_s: float = 60.0) -> int:
        """Process id of a worker, from its log, once it is there."""
        pattern = re.compile(rf"process (\d+), incarnation {life},")
        self.until(lambda: pattern.search(self.log(worker)) is not None, timeout_s, f"{worker} is there")
        matches = pattern.findall(self.log(worker))
        return int(matches[-1])

    def send(self, worker: str, signum: int) -> int:
        """Signals a worker, or the parent; returns the process id."""
        pid = self.process.pid if worker == "parent" else self.pid(worker)
        os.kill(pid, signum)
        return pid

    # Waiting ------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> float:
        """Waits for something to become true while the run lives; returns the seconds it took."""
        start = time.monotonic()
        while not condition():
            ended = self.process.poll() is not None
            if (ended and not condition()) or time.monotonic() - start > timeout_s:
                why = f"the run ended with {self.process.poll()}" if ended else f"{timeout_s} s have passed"
                raise AssertionError(f"waiting until {what}: {why}\n{self.output[-3000:]}")
            time.sleep(0.02)
        return time.monotonic() - start

    def until_generation(self, generation: int, timeout_s: float = 60.0) -> None:
        """Waits until a metrics record of at least this generation is there."""

        def reached() -> bool:
            records = self.metrics()
            return any(r["kind"] == "train" and r["generation"] >= generation for r in records)

        self.until(reached, timeout_s, f"generation {generation} is reached")

    def finish(self, timeout_s: float = 90.0) -> int:
        """Waits for its end; returns the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s\n{self.output[-3000:]}") from None

    def assert_nothing_left(self, within_s: float = 10.0) -> float:
        """No process of its session, no file in `/dev/shm` or its temporary directory; returns the seconds."""
        start = time.monotonic()
        while True:
            left = self._left()
            if not left:
                return time.monotonic() - start
            assert time.monotonic() - start < within_s, (
                f"left after {within_s} s: {left}\n{self.output[-3000:]}"
            )
            time.sleep(0.05)

    def _left(self) -> list[str]:
        processes = [f"process {pid} {_command(pid)}" for pid in self.members()]
        shared = [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - self.shm_before]
        if shared and not processes:
            # Other programs' names come and go; what is left behind is used by nobody who lives.
            shared = [path for path in shared if not in_use(path)]
        files = [str(path) for path in self.temporary.iterdir()]
        return processes + shared + files


def in_use(path: str) -> bool:
    """Whether a living process has the file of `/dev/shm` open or mapped, as far as this user may see."""
    file = _inode(Path(path))
    if file is None:
        return False
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if file in shm_inodes(int(process.name)) or file in map(_inode, (process / "fd").iterdir()):
                return True
        except OSError:  # it has ended, or is somebody else's
            continue
    return False


def shm_inodes(pid: int) -> set[int]:
    """Inodes of what a process has mapped of `/dev/shm`; a semaphore's path there is that of its making."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:  # it has ended, or is somebody else's
        return set()
    return {int(inode) for inode in _SHM_MAPPING.findall(maps)}


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:  # gone meanwhile
        return None


def living_in(session: int) -> list[int]:
    """Living processes of a session (a zombie has ended)."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _session(int(name)) == session]


def _session(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[3])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:120]
    except OSError:
        return ""


def kill(pid: int) -> None:
    """SIGKILL to a process that may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def strict_updates(generation: int, settings: dict[str, Any]) -> int:
    """Updates that strict mode owes at a generation of a run that was never resumed."""
    envs, starts = settings["num_envs"], settings["algo.agent.learning_starts"]
    base = max(-(-starts // envs), settings.get("algo.agent.n_step", 1))
    return settings["algo.agent.num_updates"] * max(0, generation - base)
