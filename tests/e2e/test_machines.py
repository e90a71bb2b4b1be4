"""Several machines, rehearsed on one: what is refused, who hears of it, and that they act as one."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from motrix_rl.checkpoint import CheckpointStore
from tests.e2e.comparing import differences
from tests.e2e.networks import Network, NotAllowedError, two_networks
from tests.e2e.running import Run, options, strict_updates
from tests.e2e.test_deterministic import free_port, settings_of, train

pytestmark = pytest.mark.timeout(240)


def launched(node: int, port: int, address: str = "127.0.0.1", **changed: str) -> list[str]:
    """Words before the interpreter's that set what a launcher sets for one process a machine."""
    variables = {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RANK": str(node),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        **changed,
    }
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


@pytest.mark.covers("U1")
@pytest.mark.parametrize("per_machine", [2, 8])
def test_several_processes_a_machine_are_refused_with_the_right_command(
    per_machine: int, tmp_path: Path
) -> None:
    prefix = launched(0, 1, WORLD_SIZE=str(2 * per_machine), LOCAL_WORLD_SIZE=str(per_machine))
    with Run(tmp_path / "run", options(), prefix) as run:
        assert run.finish(60) == 2
        assert f"--nproc-per-node={per_machine} starts {per_machine} supervisors a machine" in run.output
        right = (
            "torchrun --nnodes=2 --nproc-per-node=1 train.py ... "
            f"algo.trainer.async_options.num_learners={per_machine}"
        )
        assert right in " ".join(run.output.split())
        assert "Traceback" not in run.output
        assert not run.directory.exists()


@pytest.mark.covers("U1")
def test_a_launcher_that_says_too_little_is_refused(tmp_path: Path) -> None:
    with Run(tmp_path / "run", options(), ["env", "WORLD_SIZE=2", "RANK=0"]) as run:
        assert run.finish(60) == 2
        assert "MASTER_ADDR, MASTER_PORT" in run.output
        assert not run.directory.exists()


@pytest.mark.covers("U1", "H2")
@pytest.mark.slow
def test_a_run_directory_that_is_not_shared_is_refused(tmp_path: Path) -> None:
    """The second machine sees a directory of that name, but another one: there, it is a link to an empty place."""
    port = free_port()
    shared = tmp_path / "shared"
    settings = options(async__boot_timeout_s=20, algo__trainer__num_learning_iterations=1_000_000)
    # `unshare` gives the follower its own view of the folder, where the system allows it.
    private = [
        "unshare",
        "--mount",
        "--map-root-user",
        "sh",
        "-c",
        f'mount -t tmpfs none {shared} && exec "$@"',
        "sh",
    ]
    shared.mkdir()
    if not allowed(private):
        pytest.skip("this system does not let a test mount a folder of its own")
    with (
        Run(shared / "run", settings, launched(0, port)) as leader,
        Run(shared / "run", settings, [*private, *launched(1, port)]) as follower,
    ):
        assert follower.finish(90) == 2, follower.output
        assert "give a directory that all machines share: run_dir=..." in " ".join(follower.output.split())
        assert "Traceback" not in follower.output
        assert leader.finish(10) == 1, leader.output
        assert "machine 1 (" in leader.output
        assert "give a directory that all machines share" in " ".join(leader.output.split())
        leader.assert_nothing_left()


@pytest.mark.covers("H2", "S3")
@pytest.mark.fault
@pytest.mark.parametrize("culprit", [0, 1])
def test_a_worker_that_fails_at_boot_ends_all_machines_at_once(
    culprit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    settings = options(async__boot_timeout_s=100)
    runs: list[Run] = []
    with contextlib.ExitStack() as stack:
        for node in (0, 1):
            monkeypatch.setenv("MOTRIX_RL_FAULT", f"raise:learner-{node}:building" if node == culprit else "")
            runs.append(stack.enter_context(Run(tmp_path / "run", settings, launched(node, port))))
        assert runs[culprit].finish(60) == 1
        other = runs[1 - culprit]
        assert other.finish(8) == 1
        said = " ".join(other.output.split())
        assert f"machine {culprit} (" in said
        assert f"did not start: learner-{culprit} failed while it was starting: " in said, said
        assert "ordered by MOTRIX_RL_FAULT" in said
        for run in runs:
            assert "Traceback" not in run.output
            run.assert_nothing_left()


@pytest.mark.covers("H2", "U1")
@pytest.mark.fault
@pytest.mark.parametrize("culprit", [0, 1])
def test_a_machine_that_refuses_a_run_says_so_to_the_others(culprit: int, tmp_path: Path) -> None:
    """A layout that does not divide on one machine, long before it has met the others."""
    port = free_port()
    good = options(async__boot_timeout_s=100)
    bad = options(async__boot_timeout_s=100, async__num_collectors=3)
    with contextlib.ExitStack() as stack:
        runs = [
            stack.enter_context(Run(tmp_path / "run", bad if node == culprit else good, launched(node, port)))
            for node in (0, 1)
        ]
        assert runs[culprit].finish(60) == 2
        other = runs[1 - culprit]
        assert other.finish(8) == 1, other.output
        said = " ".join(other.output.split())
        assert f"machine {culprit} (" in said
        assert "num_collectors" in said
        for run in runs:
            assert "Traceback" not in run.output
            run.assert_nothing_left()


@pytest.mark.covers("U1", "H2")
def test_machines_with_different_settings_refuse_to_start(tmp_path: Path) -> None:
    port = free_port()
    each = [
        options(async__boot_timeout_s=60, seed=1, logging__level="debug"),
        options(async__boot_timeout_s=60, seed=2, algo__agent__gamma=0.5, async__learner_cpu_cores="0"),
    ]
    with contextlib.ExitStack() as stack:
        runs = [
            stack.enter_context(Run(tmp_path / "run", settings, launched(node, port)))
            for node, settings in enumerate(each)
        ]
        told = (
            "error: the machines' settings differ: algo.agent.gamma=0.99 on machine 0 and 0.5 on machine 1; "
            "seed=1 on machine 0 and 2 on machine 1"
        )
        for run in runs:
            assert run.finish(60) == 2, run.output
            assert told in " ".join(run.output.split())
            assert "Traceback" not in run.output
            run.assert_nothing_left()
        assert not runs[0].directory.exists()


def allowed(prefix: list[str]) -> bool:
    """Whether a command that starts with these words runs at all."""
    import subprocess

    return subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.covers("S5", "D6", "D12")
@pytest.mark.slow
@pytest.mark.parametrize("struck", [0, 1])
def test_ctrl_c_on_any_machine_stops_all_after_a_save(struck: int, tmp_path: Path) -> None:
    port = free_port()
    directory = tmp_path / "run"
    settings: dict[str, Any] = options(algo__trainer__num_learning_iterations=1_000_000, logging__interval=10)
    with (
        Run(directory, settings, launched(0, port)) as leader,
        Run(directory, settings, launched(1, port)) as follower,
    ):
        leader.until_generation(20, 120)
        (leader, follower)[struck].send("parent", signal.SIGINT)
        assert leader.finish(60) == 0, leader.output
        assert follower.finish(60) == 0, follower.output
        newest = CheckpointStore(directory / "checkpoints", 3).newest_valid(lambda line: pytest.fail(line))
        assert newest is not None
        assert newest.step >= 20
        assert newest.metadata["world_size"] == 2
        assert newest.metadata["updates"] == strict_updates(newest.step, settings)
        record = leader.record()
        assert record["outcome"] == "interrupted"
        assert record["generation"] == newest.step


@pytest.fixture
def networks() -> Iterator[tuple[Network, Network]]:
    try:
        with two_networks() as both:
            yield both
    except NotAllowedError as fault:
        pytest.skip(f"this system does not let a test make networks: {fault}")


@pytest.mark.covers("C1", "D5")
@pytest.mark.slow
def test_two_machines_with_addresses_of_their_own_are_one(
    networks: tuple[Network, Network], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither reaches the other's loopback; what they say to each other goes over the cable between them."""
    many: dict[str, Any] = {"async__num_collectors": 2, "async__num_learners": 2}
    one = train(monkeypatch, tmp_path / "one", settings_of("cartpole-swingup", 30, **many))
    two, settings, port = tmp_path / "two", settings_of("cartpole-swingup", 30), 29500
    before = [network.bytes_over_the_cable() for network in networks]
    with contextlib.ExitStack() as stack:
        leader, follower = (
            stack.enter_context(
                Run(two, settings, [*network.inside, *launched(node, port, networks[0].address)])
            )
            for node, network in enumerate(networks)
        )
        assert leader.finish(200) == 0, leader.output
        assert follower.finish(60) == 0, follower.output
        for run in (leader, follower):
            assert not any(line.startswith("[W") for line in run.output.splitlines()), "torch's own warnings"
            run.assert_nothing_left()
    assert [path for path in differences(one, two, 60) if not path.startswith("policy.pt")] == []
    # Every update's gradients crossed, in both directions: far more than the meeting itself.
    updates = strict_updates(60, settings)
    for network, earlier in zip(networks, before, strict=True):
        assert network.bytes_over_the_cable() - earlier > 4000 * updates
