"""A7: the exported file alone computes what the policy computes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from motrix_rl.checkpoint.policy import choose_checkpoint, load_policy
from motrix_rl.cli.main import main
from motrix_rl.envs.spec import EnvSpec
from motrix_rl.export import ExportError, export_policy, policy_file
from motrix_rl.runs import ResolvedRun, RunDirectory
from tests.export.policies import make_run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

UNEQUAL = EnvSpec(obs_dim=5, action_dim=3, action_low=(-2.0, 0.0, -0.1), action_high=(2.0, 50.0, 0.3))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path, "env.max_episode_steps=20")


def policy_of(run: RunDirectory):
    return load_policy(choose_checkpoint(ResolvedRun(run)))[0]


@pytest.mark.covers("A7")
def test_unequal_bounds_and_normaliser_are_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from motrix_rl.export.runtime import OnnxPolicy

    run = make_run(tmp_path, spec=UNEQUAL)
    assert main(["export", str(run.path)]) == 0
    assert "obs [batch, 5] -> action [batch, 3]" in capsys.readouterr().out
    exported, policy = OnnxPolicy(run.path / "policy.onnx"), policy_of(run)
    rng = np.random.default_rng(3)
    for rows in (1, 7, 1000):  # the batch axis is free
        obs = (rng.standard_normal((rows, 5)) * 8).astype(np.float32)
        want, got = np.zeros((rows, 3), np.float32), np.zeros((rows, 3), np.float32)
        policy.act(obs, want, deterministic=True)
        exported.act(obs, got)
        half_range = np.array([2.0, 25.0, 0.2])
        assert np.abs((got - want) / half_range).max() <= 1e-5
        assert (got >= np.float32(UNEQUAL.action_low)).all()
        assert (got <= np.float32(UNEQUAL.action_high)).all()
    # The policy moves over its whole range, so that equal constants would not pass.
    assert (np.ptp(want, axis=0) > 0.5 * half_range).all()
    assert exported.metadata == {
        "task": "cartpole-swingup/mujoco.fastsac",
        "generation": "7",
        "obs_dim": "5",
        "action_dim": "3",
        "action_low": "[-2.0, 0.0, -0.1]",
        "action_high": "[2.0, 50.0, 0.3]",
        "control_dt": "null",
    }
    model = onnx.load(str(run.path / "policy.onnx"))
    assert [value.name for value in model.graph.input] == ["obs"]
    assert [value.name for value in model.graph.output] == ["action"]


@pytest.mark.covers("A7")
def test_the_file_alone_earns_what_the_policy_earns(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run.path)]) == 0
    capsys.readouterr()
    results = []
    for words in ([], ["--onnx"], ["--onnx", str(run.path / "policy.onnx")]):
        assert main(["eval", str(run.path), "--episodes", "8", "--json", *words]) == 0
        results.append(json.loads(capsys.readouterr().out))
    torch_result, named, given = results
    assert named == given
    assert named["generation"] == 7
    assert abs(named["return_mean"] - torch_result["return_mean"]) <= torch_result["return_ci95"]


def test_evaluating_a_file_loads_no_torch(run: RunDirectory) -> None:
    assert main(["export", str(run.path)]) == 0
    code = (
        "import sys; from motrix_rl.cli.main import main\n"
        f"assert main(['eval', {str(run.path)!r}, '--onnx', '--episodes', '1']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_file_that_differs_is_not_left(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    module = policy_of(run).export_module()
    module.scaling.scale *= 1.001
    monkeypatch.setattr("motrix_rl.algorithms.fastsac.policy.Policy.export_module", lambda self: module)
    with pytest.raises(ExportError, match=r"was not written: onnxruntime's actions differ"):
        policy_file.export_checkpoint(choose_checkpoint(ResolvedRun(run)), "t", run.path / "policy.onnx")
    assert not (run.path / "policy.onnx").exists()


def test_export_at_the_end_of_a_run(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    report = export_policy(run.path)
    assert report is not None
    assert report.path == run.path / "policy.onnx"
    assert policy_file.difference(policy_of(run), report.path.read_bytes()) <= 1e-5
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert export_policy(run.path) is None


@pytest.mark.covers("U1")
def test_what_cannot_be_exported_is_one_line(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def complaint(*words: str) -> str:
        assert main([*words]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert len(shown.err.splitlines()) == 1
        return shown.err

    assert "motrix-rl export" in complaint("eval", str(run.path), "--onnx")
    assert "give one of the two" in complaint("eval", str(run.path), "--onnx", "--latest")
    assert "no directory" in complaint("export", str(run.path), "--output", str(tmp_path / "no" / "p.onnx"))
    assert "is a directory" in complaint("export", str(run.path), "--output", str(tmp_path))
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    assert main(["eval", str(run.path), "--onnx", str(broken)]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    monkeypatch.setattr("motrix_rl.extras.importlib.util.find_spec", lambda name: None)
    assert "pip install onnx " in complaint("export", str(run.path))
