"""T7: what a spawned worker has, read from the system."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.topology import procs_topology
from topology import bound_spawn
from topology.binding import _read_policy, thread_environment
from topology.cpulist import parse


def own_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture
def untouched() -> Iterator[None]:
    """Whatever a test does, this process's own binding must come back."""
    environment, cpus, policy = own_environment(), os.sched_getaffinity(0), _read_policy()
    yield
    assert own_environment() == environment
    assert os.sched_getaffinity(0) == cpus
    assert _read_policy() == policy


def spawn_and_ask(**binding: Any) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=procs_topology.report, kwargs={"answer": theirs})
    with bound_spawn(**binding):
        process.start()
    theirs.close()
    try:
        assert ours.poll(90), "the worker did not answer"
        return ours.recv()
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()
        assert process.exitcode == 0


@pytest.mark.covers("T7")
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("untouched")
def test_every_thread_of_a_worker_is_on_its_cpus() -> None:
    cpu = max(os.sched_getaffinity(0))
    told = spawn_and_ask(cpus=[cpu], numa_node=0, threads=1, extra_environment={"EXTRA": "yes"})
    assert [parse(mask) for mask in told["first"]] == [(cpu,)] * len(told["first"])
    assert {parse(mask) for mask in told["masks"]} == {(cpu,)}
    assert told["torch"] == 1
    assert told["environment"] == {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "EXTRA": "yes"}


@pytest.mark.covers("T7")
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("untouched")
def test_pools_are_no_larger_than_the_list() -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    told = spawn_and_ask(cpus=cpus, numa_node=None, threads=len(cpus))
    assert {parse(mask) for mask in told["masks"]} == {tuple(cpus)}
    assert told["torch"] <= len(cpus)


@pytest.mark.usefixtures("untouched")
def test_restored_after_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = os.sched_getaffinity(0)
    seen: list[object] = []

    def fail_within() -> None:
        with bound_spawn([min(before)], numa_node=0, threads=3):
            seen.extend([os.environ["OMP_NUM_THREADS"], os.sched_getaffinity(0)])
            raise KeyError

    with pytest.raises(KeyError):
        fail_within()
    assert seen == ["3", {min(before)}]
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
    assert os.sched_getaffinity(0) == before


@pytest.mark.usefixtures("untouched")
def test_a_node_that_is_not_there_is_a_note() -> None:
    with bound_spawn([], numa_node=900, threads=1) as bound:
        pass
    assert len(bound.notes) == 1
    assert "node 900 not set" in bound.notes[0]


@pytest.mark.usefixtures("untouched")
def test_memory_policy_is_set_within_and_back_after() -> None:
    before = _read_policy()
    if before is None:
        pytest.skip("this system does not let us read the memory policy")
    with bound_spawn([], numa_node=0, threads=1) as bound:
        assert bound.notes or _read_policy() == (1, 1)  # MPOL_PREFERRED, node 0
    assert _read_policy() == before


@pytest.mark.usefixtures("untouched")
def test_cpus_that_cannot_be_had_are_an_error_and_leave_nothing() -> None:
    with pytest.raises(OSError, match="Invalid argument"), bound_spawn([4095], numa_node=0, threads=1):
        raise AssertionError("unreachable")


def test_from_the_main_thread_only() -> None:
    caught: list[BaseException] = []

    def other() -> None:
        try:
            with bound_spawn([], threads=1):
                pass
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_environment_covers_the_usual_pools() -> None:
    variables = thread_environment(5)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        assert variables[name] == "5"
    assert variables["OMP_WAIT_POLICY"] == "PASSIVE"
