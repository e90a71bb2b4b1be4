"""What a launcher says about the machines of a run."""

from __future__ import annotations

import pytest

from motrix_rl.config import load_config
from motrix_rl.errors import UsageError
from workers.agreement import MAY_DIFFER, by_dotted_name, differences, shared_settings
from workers.machines import Machines

GOOD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_a_launchers_variables_are_taken_out_of_the_environment() -> None:
    environment = {**GOOD, "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "3", "HOME": "/"}
    machines = Machines.take_from(environment)
    assert machines == Machines(2, 1, "10.0.0.1", 29500, agent_store=False, restarts=3)
    assert environment == {"TORCHELASTIC_RESTART_COUNT": "3", "HOME": "/"}
    assert Machines.take_from({"HOME": "/"}) is None
    assert Machines.take_from({"WORLD_SIZE": "1", "RANK": "0"}) is None


@pytest.mark.covers("U1")
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("RANK", "5", "RANK=5 must be a whole number from 0 to 1, with WORLD_SIZE=2"),
        ("RANK", "a", "RANK=a must be a whole number from 0 to 1"),
        ("RANK", "-1", "RANK=-1 must be"),
        ("WORLD_SIZE", "two", "WORLD_SIZE=two must be a whole number from 1 up"),
        ("WORLD_SIZE", "0", "WORLD_SIZE=0 must be"),
        ("LOCAL_WORLD_SIZE", "", "LOCAL_WORLD_SIZE= must be"),
        ("MASTER_PORT", "99999999", "MASTER_PORT=99999999 must be a whole number from 1 to 65535"),
        ("MASTER_PORT", "http", "MASTER_PORT=http must be"),
        ("TORCHELASTIC_RESTART_COUNT", "x", "TORCHELASTIC_RESTART_COUNT=x must be"),
    ],
)
def test_a_variable_that_is_no_such_number_is_one_line(name: str, value: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        Machines.take_from({**GOOD, name: value})
    assert told in str(caught.value)


@pytest.mark.covers("U1")
def test_what_differs_between_machines_is_named_once_with_its_values() -> None:
    options = "algo.trainer.async_options."
    own = [
        f"{options}learner_cpu_cores=0",
        f"{options}transition_ipc=off",
        "logging.console=plain",
        "run_dir=x",
    ]
    ours, same = shared_settings(load_config([])), shared_settings(load_config(own))
    assert ours == same
    assert differences(ours, {1: same, 2: same}) == []
    other = shared_settings(load_config(["seed=3", "algo.agent.gamma=0.5"]))
    older = {key: value for key, value in ours.items() if key != "lag"}
    assert differences(ours, {1: same, 2: other, 3: other, 4: older}) == [
        "algo.agent.gamma=0.99 on machine 0 and 0.5 on machine 2 (and others on 1 more)",
        "lag=1 on machine 0 and unknown on machine 4",
        "seed=0 on machine 0 and 3 on machine 2 (and others on 1 more)",
    ]


def test_all_options_that_may_differ_are_there() -> None:
    flat = by_dotted_name(load_config([]).model_dump())
    assert set(flat) >= MAY_DIFFER
