"""What `doctor` finds, on machines made for it."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from motrix_rl.cli import checks
from motrix_rl.cli.checks import Finding, check_installation, check_limits, check_machine, check_storage
from motrix_rl.cli.doctor import render
from motrix_rl.runs import limits
from topology import Gpu, MachineSpec, NumaNode

GIB = 1 << 30


def machine(**changes: object) -> MachineSpec:
    """A machine with four CPUs and plenty of memory, with changes."""
    facts: dict[str, object] = {
        "name": "test",
        "arch": "x86_64",
        "nodes": (NumaNode(0, (0, 1, 2, 3), (0, 1, 2, 3)),),
        "siblings": ((0,), (1,), (2,), (3,)),
        "memory_available": 16 * GIB,
    }
    return MachineSpec(**{**facts, **changes})  # type: ignore[arg-type]


def problems(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that ask for something; each must say what to do."""
    found = [finding for finding in findings if finding.level != "ok"]
    assert all(finding.advice for finding in found), found
    return found


def test_a_sound_machine_has_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.ctypes.util, "find_library", lambda name: None)
    assert problems(check_machine(machine())) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cpu_quota": 1.5}, "cgroup grants 1.5 CPUs"),
        ({"nodes": (NumaNode(0, (0,), (0,)),), "siblings": ((0,),)}, "CPUs: 1"),
        ({"memory_available": GIB}, "memory: 1.0 GiB available"),
        ({"memory_limit": 2 * GIB, "memory_limit_free": GIB}, "left under the cgroup's limit"),
        ({"memory_available": None}, "memory: unknown"),
    ],
)
def test_what_is_short_is_found(
    changes: dict[str, object], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.ctypes.util, "find_library", lambda name: None)
    (finding,) = problems(check_machine(machine(**changes)))
    assert expected in finding.what


def test_gpus_are_listed_and_their_troubles_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "version", lambda package: "2.13.0+cpu")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    gpus = (
        Gpu(0, "H200", memory_bytes=141 * GIB, numa_nodes=(0,)),
        Gpu(1, "slice", numa_nodes=(0,), mig=True),
    )
    findings = list(check_machine(machine(gpus=gpus)))
    text = render(findings)
    assert "GPU cuda:0: H200, 141.0 GiB" in text
    found = " ".join(finding.what for finding in problems(findings))
    assert "MIG" in found
    assert "+cpu cannot use the GPUs" in found
    assert "expandable_segments" in found


def test_hidden_gpus_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.ctypes.util, "find_library", lambda name: "libcuda.so.1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (finding,) = problems(check_machine(machine()))
    assert "CUDA_VISIBLE_DEVICES=''" in finding.what


def test_missing_and_old_packages_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "mujoco":
            raise checks.PackageNotFoundError(package)
        return {"torch": "2.5.1+cu124"}.get(package, "99.0")

    monkeypatch.setattr(checks, "version", version)
    found = problems(check_installation())
    assert [finding.level for finding in found] == ["error", "error"]
    assert found[0].advice == 'pip install "mujoco>=4.0"'
    assert found[1].advice == 'pip install "torch>=2.6"'


@pytest.mark.covers("S8")
def test_low_limits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (64, resource.RLIM_INFINITY))
    found = problems(check_limits())
    assert "ulimit -n 1024" in found[0].advice
    assert "processes and threads: at most 64" in found[1].what
    monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (-1, -1))
    assert problems(check_limits()) == []


def test_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(check_storage(str(tmp_path / "runs"))) == []
    (tmp_path / "file").write_text("")
    (finding,) = problems(check_storage(str(tmp_path / "file" / "runs")))
    assert finding.level == "error"
    monkeypatch.setattr(limits.os, "access", lambda path, mode: False)
    (finding,) = problems(check_storage(str(tmp_path)))
    assert "cannot be written" in finding.what
    monkeypatch.undo()
    monkeypatch.setattr(limits.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2, 1, 1))
    (finding,) = problems(check_storage(str(tmp_path)))
    assert finding.level == "warning"


def test_one_line_a_finding_and_the_count() -> None:
    text = render([Finding("ok", "a"), Finding("warning", "b", "do c"), Finding("error", "d", "do e")])
    assert text.splitlines() == ["ok    a", "warn  b -> do c", "ERROR d -> do e", "", "1 errors, 1 warnings"]
