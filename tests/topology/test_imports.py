"""Topology answers before torch could even be imported."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.timeout(60)
def test_topology_imports_nothing_heavy() -> None:
    code = (
        "import sys, topology; m = topology.MachineSpec.detect();"
        "topology.resolve_trainer_topology(m, topology.TrainerRequest(num_envs=8, batch_size=8));"
        "print(sorted({'torch', 'numpy', 'mujoco', 'gymnasium', 'omegaconf'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout.strip() == "[]"
