"""T1, T2, T3: layouts of generated and of described machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topology.checks import check_layout, cpus_suffice, siblings_split
from tests.topology.strategies import UNHURRIED, legal_requests, machines
from topology import Gpu, MachineSpec, NumaNode, RequestError, TrainerRequest, resolve_trainer_topology
from topology.cpulist import parse
from topology.siblings import infer_node_cores


def machine(
    nodes: dict[int, str], gpus: tuple[int | None, ...] = (), smt: int = 1, **rest: object
) -> MachineSpec:
    """A machine by node lists and GPU nodes."""
    lists = {node: parse(text) for node, text in nodes.items()}
    return MachineSpec(
        name="drawn",
        arch="x86_64",
        nodes=tuple(NumaNode(node, cpus, cpus) for node, cpus in lists.items()),
        siblings=tuple(
            sorted(core for cpus in lists.values() for core in infer_node_cores(cpus, smt, "x86_64"))
        ),
        gpus=tuple(Gpu(i, "gpu", numa_nodes=() if node is None else (node,)) for i, node in enumerate(gpus)),
        **rest,  # type: ignore[arg-type]
    )


def request(num_envs: int = 64, batch_size: int = 256, **rest: object) -> TrainerRequest:
    return TrainerRequest.model_validate({"num_envs": num_envs, "batch_size": batch_size, **rest})


@pytest.mark.covers("T1", "T2")
@UNHURRIED
@given(st.data())
def test_every_legal_request_gets_a_sound_layout(data: st.DataObject) -> None:
    spec = data.draw(machines())
    wish = data.draw(legal_requests(spec))
    plan = resolve_trainer_topology(spec, wish)
    check_layout(spec, wish, plan)
    assert resolve_trainer_topology(spec, wish) == plan


@pytest.mark.covers("T2")
@UNHURRIED
@given(st.data())
def test_lists_are_disjoint_wherever_every_node_has_enough(data: st.DataObject) -> None:
    spec = data.draw(machines(quota=False))
    plan = resolve_trainer_topology(spec, data.draw(legal_requests(spec)))
    if cpus_suffice(spec, plan):
        assert not plan.cpus_shared
    if siblings_split(spec, plan) and not plan.cpus_shared:
        assert any("siblings are separated" in note or "unpinned" in note for note in plan.notes)


@pytest.mark.covers("T1", "T2")
@UNHURRIED
@given(st.data())
def test_user_lists_are_kept(data: st.DataObject) -> None:
    spec = data.draw(machines())
    some = st.sets(st.sampled_from(spec.allowed_cpus), min_size=1)
    collectors, learners = data.draw(some), data.draw(st.none() | some)
    wish = data.draw(legal_requests(
        spec,
        collector_cpu_cores=",".join(map(str, collectors)),
        learner_cpu_cores=None if learners is None else ",".join(map(str, learners)),
        cpus_per_collector=data.draw(st.none() | st.integers(1, 3)),
    ))  # fmt: skip
    try:
        plan = resolve_trainer_topology(spec, wish)
    except RequestError:
        return
    check_layout(spec, wish, plan)
    for collector in plan.collectors:
        assert set(collector.cpus) <= collectors
    for learner in plan.learners:
        assert learners is None or set(learner.cpus) <= learners


@pytest.mark.covers("T3")
@UNHURRIED
@given(st.data())
def test_a_default_request_is_legal_on_every_generated_machine(data: st.DataObject) -> None:
    spec = data.draw(machines())
    wish = request(num_envs=data.draw(st.integers(1, 5000)), batch_size=data.draw(st.integers(1, 9000)))
    plan = resolve_trainer_topology(spec, wish)
    check_layout(spec, wish, plan)
    assert (len(plan.learners), len(plan.collectors)) == (1, 1)


@pytest.mark.covers("T1", "T2", "T3")
@pytest.mark.parametrize("learners", [None, 1, 2, 4, 8])
@pytest.mark.parametrize("each", [None, 1, 2, 8])
def test_described_machines(
    layouts_file: Path, machine_name: str, learners: int | None, each: int | None
) -> None:
    spec = MachineSpec.load(layouts_file, machine_name)
    for devices in (None, "cpu"):
        collectors = None if each is None else each * (learners or 1)
        wish = request(6400, 6400, num_learners=learners, num_collectors=collectors, learner_devices=devices)
        plan = resolve_trainer_topology(spec, wish)
        check_layout(spec, wish, plan)
        assert not plan.cpus_shared or not cpus_suffice(spec, plan)


@pytest.mark.covers("T1")
def test_two_ranks_share_a_node_with_siblings_together() -> None:
    spec = machine({0: "0-15"}, (0, 0), smt=2)
    plan = resolve_trainer_topology(spec, request(num_learners=2, num_collectors=4, evaluator=False))
    assert [learner.cpus for learner in plan.learners] == [(0, 8), (1, 9)]
    assert [c.cpus for c in plan.collectors] == [(2, 10), (3, 11), (4, 12), (5, 13)]
    assert [c.owner for c in plan.collectors] == [0, 0, 1, 1]


@pytest.mark.covers("T1")
def test_gpu_order_is_not_node_order() -> None:
    plan = resolve_trainer_topology(machine({0: "0-7", 3: "8-15"}, (3, 0)), request(num_learners=2))
    assert [learner.numa_node for learner in plan.learners] == [3, 0]
    assert all(set(plan.learners[0].cpus) <= set(range(8, 16)) for _ in "x")


def test_two_cpus_one_of_each() -> None:
    plan = resolve_trainer_topology(machine({0: "0-1"}), request())
    assert plan.learners[0].cpus == (0,)
    assert plan.collectors[0].cpus == (1,)
    assert plan.evaluator is not None
    assert plan.evaluator.cpus == (1,)
    assert plan.evaluator.shared
    assert not plan.cpus_shared
    assert any("evaluator: no CPU to spare; shares CPUs 1" in note for note in plan.notes)


def test_one_cpu_for_all() -> None:
    plan = resolve_trainer_topology(machine({0: "5"}), request(num_collectors=4))
    assert {worker.cpus for worker in (*plan.learners, *plan.collectors)} == {(5,)}
    assert plan.cpus_shared
    assert any("all share CPUs 5" in note for note in plan.notes)


def test_more_collectors_than_cpus_leave_the_learner_its_own() -> None:
    plan = resolve_trainer_topology(machine({0: "0-3"}), request(num_collectors=8))
    assert plan.learners[0].cpus == (0,)
    assert {c.cpus for c in plan.collectors} == {(1, 2, 3)}
    assert {c.threads for c in plan.collectors} == {1}
    assert any("the 8 collectors share CPUs 1-3" in note for note in plan.notes)


def test_cpu_learner_takes_half_the_cores_up_to_a_limit() -> None:
    plan = resolve_trainer_topology(machine({0: "0-15"}, smt=2), request())
    assert len(plan.learners[0].cpus) == 8
    assert plan.learners[0].threads == 4  # cores, not hyperthreads
    plan = resolve_trainer_topology(machine({0: "0-127"}), request())
    assert plan.learners[0].threads == 16


def test_cpu_learner_takes_no_more_cores_than_it_makes_use_of() -> None:
    spec = machine({0: "0-15"}, smt=2)
    plan = resolve_trainer_topology(spec, request(max_cpu_learner_cores=1))
    assert (plan.learners[0].threads, len(plan.learners[0].cpus)) == (1, 2)
    assert len(plan.collectors[0].cpus) == 12  # the last core is the evaluator's
    # Who names the CPUs has chosen, and a GPU's learner computes elsewhere.
    named = request(max_cpu_learner_cores=1, learner_cpu_cores="0:3")
    assert resolve_trainer_topology(spec, named).learners[0].threads == 4
    beside_gpu = resolve_trainer_topology(machine({0: "0-15"}, (0,)), request(max_cpu_learner_cores=1))
    assert beside_gpu.learners[0].threads == 2


def test_all_ranks_compute_with_the_same_number_of_threads() -> None:
    spec = machine({0: "0-31", 1: "32-35"})
    plan = resolve_trainer_topology(spec, request(num_learners=4, learner_devices="cpu"))
    assert len({learner.threads for learner in plan.learners}) == 1
    spec = machine({0: "0-31", 1: "32-35"}, (0, 1))
    plan = resolve_trainer_topology(spec, request(num_learners=2))
    assert [len(learner.cpus) for learner in plan.learners] == [1, 1]


def test_a_collector_has_no_more_threads_than_environments() -> None:
    plan = resolve_trainer_topology(machine({0: "0-31"}, (0,)), request(num_envs=3))
    assert plan.collectors[0].threads == 3
    assert len(plan.collectors[0].cpus) > 3


def test_evaluator_goes_to_an_idle_node() -> None:
    plan = resolve_trainer_topology(machine({0: "0-7", 1: "8-15"}, (0,)), request())
    assert plan.evaluator is not None
    assert plan.evaluator.numa_node == 1
    assert not plan.evaluator.shared
    assert resolve_trainer_topology(machine({0: "0-7"}), request(evaluator=False)).evaluator is None


@pytest.mark.covers("T2")
def test_quota_limits_cpus_to_one_a_core() -> None:
    spec = machine({0: "0-31"}, smt=2, cpu_quota=4.9)
    plan = resolve_trainer_topology(spec, request())
    used = {cpu for worker in (*plan.learners, *plan.collectors) for cpu in worker.cpus}
    assert len(used) <= 4
    assert used <= set(range(16))
    assert any("the cgroup grants 4.9 CPUs" in note for note in plan.notes)


@pytest.mark.covers("T1")
@pytest.mark.parametrize(
    ("numa", "words"),
    [((), "unknown"), ((0, 1), "ambiguous (one of 0-1)"), ((9,), "does not show"), ((2,), "has no CPUs")],
)
def test_fallbacks_of_a_gpu_without_a_usable_node(numa: tuple[int, ...], words: str) -> None:
    base = machine({0: "0-7", 1: "8-15", 2: ""})
    gpu = Gpu(0, "gpu", numa_nodes=numa)
    several = MachineSpec("m", "x86_64", base.nodes, base.siblings, (gpu,))
    plan = resolve_trainer_topology(several, request())
    note = next(note for note in plan.notes if note.startswith("rank 0 (cuda:0)"))
    assert words in note
    assert "unpinned" in note
    assert plan.learners[0].numa_node is None
    assert {cpu // 8 for cpu in plan.collectors[0].cpus} == {0, 1}  # spread over both nodes, not just node 0
    one = machine({1: "8-15", 2: ""})
    plan = resolve_trainer_topology(MachineSpec("m", "x86_64", one.nodes, one.siblings, (gpu,)), request())
    assert plan.learners[0].numa_node == 1
    note = next(note for note in plan.notes if note.startswith("rank 0 (cuda:0)"))
    assert "the only one" in note


def test_node_without_memory_is_said() -> None:
    spec = MachineSpec("m", "x86_64", (NumaNode(0, (0, 1), (0, 1), 0),), ((0,), (1,)))
    assert any(
        "no memory that we may use" in note for note in resolve_trainer_topology(spec, request()).notes
    )


def test_mailboxes_one_a_node_written_by_its_lowest_rank() -> None:
    spec = machine({0: "0-31", 5: "32-63"}, (5, 0, 5, 0))
    plan = resolve_trainer_topology(spec, request(num_learners=4))
    assert plan.mailbox_nodes == ((5, 0), (0, 1))
    on_gpu = request(num_learners=4, collector_inference_device="cuda", weight_ipc="on")
    assert resolve_trainer_topology(spec, on_gpu).mailbox_nodes == ((5, 0),)  # for the evaluator


@pytest.mark.covers("T3")
def test_several_machines_number_everything_globally() -> None:
    spec = machine({0: "0-7"})
    plans = [
        resolve_trainer_topology(
            spec, request(num_learners=2, num_collectors=4, world={"nnodes": 2, "node_rank": node})
        )
        for node in (0, 1)
    ]
    assert [r.rank for plan in plans for r in plan.learners] == [0, 1, 2, 3]
    assert [c.id for plan in plans for c in plan.collectors] == list(range(8))
    assert [shard for plan in plans for shard in plan.env_shards] == [(8 * i, 8 * i + 8) for i in range(8)]
    assert [plan.evaluator is not None for plan in plans] == [True, False]
    assert plans[1].collector_owner(6) == 3
    assert plans[1].ring_slice_for_rank("abcd", 3) == "cd"
    with pytest.raises(ValueError, match="rank 0 is not on this machine"):
        plans[1].learner(0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"collector_cpu_cores": "0:99"}, "may not use CPU 8:99; allowed are 0:7"),
        ({"learner_cpu_cores": ""}, "learner_cpu_cores is empty"),
        ({"learner_cpu_cores": "x"}, "is not a CPU number"),
        ({"cpus_per_collector": 9}, "at most"),
        ({"num_collectors": 16, "cpus_per_collector": 2}, "use cpus_per_collector=1"),
    ],
)
def test_impossible_cpu_wishes(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        resolve_trainer_topology(machine({0: "0-7"}), request(**options))


def test_a_list_without_a_cpu_on_the_gpus_node() -> None:
    spec = machine({0: "0-7", 1: "8-15"}, (0, 1))
    with pytest.raises(
        RequestError, match=r"no CPU on NUMA node 1, where rank 1 \(cuda:1\).*add some of 8-15"
    ):
        resolve_trainer_topology(spec, request(num_learners=2, collector_cpu_cores="0:3"))


def test_cpus_per_collector_keeps_cores_whole_and_suggests_what_fits() -> None:
    spec = machine({0: "0-15"}, (0,), smt=2)
    plan = resolve_trainer_topology(spec, request(num_collectors=2, cpus_per_collector=3))
    assert [c.cpus for c in plan.collectors] == [(2, 3, 10), (4, 5, 12)]
    with pytest.raises(RequestError) as caught:
        resolve_trainer_topology(spec, request(num_collectors=2, cpus_per_collector=30))
    most = caught.value.suggestions["cpus_per_collector"][0]
    resolve_trainer_topology(spec, request(num_collectors=2, cpus_per_collector=most))
