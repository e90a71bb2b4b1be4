"""The configuration of FastSAC."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from motrix_rl.algorithms.fastsac import FastSACConfig


def test_importing_it_loads_no_torch() -> None:
    code = "import sys, motrix_rl.algorithms.fastsac; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_every_field_is_described() -> None:
    assert [name for name, field in FastSACConfig.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v_min": 5.0, "v_max": -5.0}, "must be below"),
        ({"v_min": float("nan")}, "must be below"),
        ({"v_min": 1.0, "v_max": 5.0}, "support around zero"),
        ({"log_std_min": 3.0}, "log_std_min"),
        ({"actor_hidden_dim": 30}, "multiple of 4"),
        ({"policy_frequency": 0}, "greater than or equal to 1"),
        ({"critic_target": "max"}, "own"),
        ({"batchsize": 3}, "Extra inputs"),
    ],
)
def test_wrong_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FastSACConfig(**changes)
