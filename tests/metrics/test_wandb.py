"""wandb can block, raise or die in any call; a run neither waits for it nor ends by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from motrix_rl.config import load_config
from motrix_rl.errors import UsageError
from motrix_rl.metrics.records import check_records, open_records
from motrix_rl.metrics.wandb import WandbWriter
from motrix_rl.runs import RunDirectory

#: A wandb that writes down every call; what `FAKE` names happens in it.
FAKE = """
import json, os, sys, time

def _note(call, **facts):
    with open(os.environ["FAKE_CALLS"], "a") as file:
        file.write(json.dumps({"call": call, **facts}) + "\\n")
    if os.environ["FAKE"] == f"block in {call}":
        time.sleep(3600)
    if os.environ["FAKE"] == f"raise in {call}":
        raise RuntimeError("no such project")
    if os.environ["FAKE"] == f"die in {call}":
        os._exit(3)

class Run:
    def define_metric(self, name, step_metric):
        pass
    def log(self, record):
        _note("log", record=record)
    def finish(self):
        _note("finish")

def init(**facts):
    _note("init", **facts)
    return Run()
"""


class Fake:
    """A writer that talks to the fake, and what came of it."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str) -> None:
        (directory / "wandb.py").write_text(FAKE)
        self.calls_path = directory / "calls.jsonl"
        monkeypatch.setenv("PYTHONPATH", str(directory))
        monkeypatch.setenv("FAKE_CALLS", str(self.calls_path))
        monkeypatch.setenv("FAKE", behaviour)
        self.complaints: list[str] = []
        self.log = directory / "wandb.log"
        self.writer = WandbWriter(
            directory,
            self.log,
            mode="offline",
            name="mine",
            config={"seed": 3},
            on_error=self.complaints.append,
            finish_s=1.0,
        )

    def calls(self) -> list[dict]:
        if not self.calls_path.exists():
            return []
        return [json.loads(line) for line in self.calls_path.read_text().splitlines()]

    def wait_for(self, call: str, timeout_s: float = 60.0) -> None:
        end = time.monotonic() + timeout_s
        while call not in [made["call"] for made in self.calls()]:
            assert time.monotonic() < end, f"no call of {call}: {self.log.read_text()}"
            time.sleep(0.05)

    def close(self) -> float:
        begin = time.monotonic()
        self.writer.close()
        return time.monotonic() - begin


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Fake]:
    return lambda behaviour: Fake(tmp_path, monkeypatch, behaviour)


def test_records_arrive_in_order_with_what_the_run_is(fake: Callable[[str], Fake]) -> None:
    wandb = fake("")
    wandb.wait_for("init")
    for step in range(5):
        wandb.writer.write({"env_steps": step, "losses": {"critic": 0.5}, "name": "x", "nan": float("nan")})
    wandb.wait_for("log")
    wandb.close()
    init, *logs, finish = wandb.calls()
    assert (init["mode"], init["name"], init["config"]) == ("offline", "mine", {"seed": 3})
    assert [call["record"] for call in logs] == [
        {"env_steps": float(step), "losses/critic": 0.5} for step in range(5)
    ]
    assert finish["call"] == "finish"
    assert (wandb.complaints, wandb.writer.dropped) == ([], 0)


@pytest.mark.parametrize("call", ["init", "log", "finish"])
def test_a_wandb_that_blocks_costs_a_second_at_the_end(call: str, fake: Callable[[str], Fake]) -> None:
    wandb = fake(f"block in {call}")
    wandb.wait_for("init")
    begin = time.monotonic()
    for step in range(5000):
        wandb.writer.write({"env_steps": step, **{f"figure{i}": 0.5 for i in range(50)}})
    assert time.monotonic() - begin < 10.0  # it is some tenths of a second on an idle core
    assert (wandb.writer.dropped > 0) == (call != "finish") or call == "finish"
    if call == "finish":
        wandb.wait_for("log")
    pid = wandb.writer._process.pid
    assert wandb.close() < 1.0 + 1.0 + 3.0
    assert not Path(f"/proc/{pid}").exists()
    assert any("did not finish within 1 s" in line for line in wandb.complaints)
    if call != "finish":
        assert sum("do not keep up" in line or "does not keep up" in line for line in wandb.complaints) == 1
        assert f"{wandb.writer.dropped} records did not reach wandb" in wandb.complaints[-1]


@pytest.mark.parametrize("failure", ["raise in init", "die in init", "raise in log", "die in log"])
def test_a_wandb_that_fails_is_told_once(failure: str, fake: Callable[[str], Fake]) -> None:
    wandb = fake(failure)
    wandb.wait_for("init")
    wandb.writer.write({"env_steps": 0})
    wandb.writer._process.wait(60)
    for step in range(100):
        wandb.writer.write({"env_steps": step})
    wandb.close()
    assert wandb.writer.dropped >= 99
    assert sum("has ended" in line for line in wandb.complaints) == 1
    assert len(wandb.complaints) == 2
    if "raise" in failure:
        assert "no such project" in wandb.log.read_text()


def test_without_wandb_the_log_says_so_and_the_run_goes_on(
    fake: Callable[[str], Fake], tmp_path: Path
) -> None:
    wandb = fake("")
    wandb.close()
    (tmp_path / "wandb.py").write_text("raise ImportError('broken installation')")
    broken = WandbWriter(
        tmp_path,
        wandb.log,
        mode="online",
        name="x",
        config={},
        on_error=wandb.complaints.append,
        finish_s=5.0,
    )
    broken._process.wait(60)
    broken.write({"a": 1})
    broken.close()
    assert "broken installation" in wandb.log.read_text()


@pytest.mark.fault
def test_a_killed_run_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb.py").write_text(FAKE)
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls.jsonl"))
    monkeypatch.setenv("FAKE", "block in init")
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{root}")
    code = (
        "import sys, time; from pathlib import Path; from motrix_rl.metrics.wandb import WandbWriter\n"
        "d = Path(sys.argv[1])\n"
        "w = WandbWriter(d, d / 'log', mode='online', name='x', config={}, finish_s=1.0)\n"
        "print(w._process.pid, flush=True); time.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    end = time.monotonic() + 60
    while not (tmp_path / "calls.jsonl").exists() and time.monotonic() < end:
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait(10)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # nobody reaps it here
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("wandb's process outlived its run")


def test_options_choose_the_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(["logging.wandb=off", "logging.tensorboard=false"])
    assert config.logging.wandb == "off"
    check_records(config)
    run = RunDirectory.create(tmp_path, "t", "b", "a")
    records = open_records(config, run, print)
    records.write({"a": 1})
    records.close()
    assert run.metrics_path.read_text().count("\n") == 1
    assert not run.log_path("wandb").exists()

    asked = load_config(["logging.wandb=offline"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install wandb"):
        check_records(asked)
