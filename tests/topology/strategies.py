"""Generated machines and requests: odd node ids, shuffled CPUs, SMT, empty nodes, masks, quotas, GPUs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from topology import Gpu, MachineSpec, NumaNode, TrainerRequest
from topology.machine import GIB
from topology.siblings import restrict

# On busy cores an example may take long; what counts is its result.
UNHURRIED = settings(
    deadline=None, max_examples=150, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def machines(draw: st.DrawFn, *, quota: bool = True) -> MachineSpec:
    count = draw(st.integers(1, 4))
    ids = sorted(draw(st.sets(st.integers(0, 20), min_size=count, max_size=count)))
    smt = draw(st.sampled_from([1, 1, 2, 2, 4]))
    cores_per_node = [draw(st.integers(0, 9)) for _ in ids]
    if not any(cores_per_node):
        cores_per_node[0] = 1
    numbers = iter(_numbers(draw, sum(cores_per_node) * smt))
    cores = {node: [tuple(next(numbers) for _ in range(smt)) for _ in range(n)]
             for node, n in zip(ids, cores_per_node, strict=True)}  # fmt: skip
    every = [cpu for groups in cores.values() for group in groups for cpu in group]
    allowed = set(every)
    if draw(st.booleans()):
        allowed = draw(st.sets(st.sampled_from(every), min_size=1))
    nodes = tuple(
        NumaNode(node, tuple(sorted(sum(groups, ()))), tuple(sorted(allowed.intersection(sum(groups, ())))))
        for node, groups in cores.items()
    )
    return MachineSpec(
        name="generated",
        arch="x86_64",
        nodes=nodes,
        siblings=restrict([group for groups in cores.values() for group in groups], allowed),
        gpus=tuple(_gpu(draw, index, ids) for index in range(draw(st.integers(0, 4)))),
        cpu_quota=draw(st.none() | st.floats(0.2, len(every) + 1.0)) if quota else None,
        memory_available=draw(st.none() | st.integers(GIB, 512 * GIB)),
    )


def _numbers(draw: st.DrawFn, count: int) -> list[int]:
    return draw(st.permutations(range(count))) if draw(st.booleans()) else list(range(count))


def _gpu(draw: st.DrawFn, index: int, ids: list[int]) -> Gpu:
    nodes = draw(st.one_of(
        st.sampled_from(ids).map(lambda node: (node,)),
        st.just(()),
        st.just((99,)),
        st.just(tuple(ids[:2])),
    ))  # fmt: skip
    return Gpu(
        index=index,
        name="generated GPU",
        uuid=draw(st.none() | st.just(f"GPU-{index}")),
        pci=draw(st.none() | st.just(f"0000:{index:02x}:00.0")),
        memory_bytes=draw(st.none() | st.integers(GIB, 192 * GIB)),
        numa_nodes=nodes,
        physical_index=draw(st.none() | st.integers(0, 7)),
        mig=draw(st.sampled_from([False, False, False, True])),
    )


@st.composite
def legal_requests(draw: st.DrawFn, machine: MachineSpec, **fixed: object) -> TrainerRequest:
    """Requests whose counts divide, over one or several machines."""
    learners = draw(st.integers(1, 6))
    collectors = learners * draw(st.integers(1, 4))
    nnodes = draw(st.sampled_from([1, 1, 2, 3]))
    values: dict[str, object] = {
        "num_envs": collectors * nnodes * draw(st.integers(1, 40)),
        "batch_size": learners * nnodes * draw(st.integers(1, 300)),
        "num_learners": learners,
        "num_collectors": collectors,
        "learner_devices": draw(st.sampled_from([None, "auto", "cpu"])),
        "evaluator": draw(st.booleans()),
        "policy_bytes": draw(st.sampled_from([1000, 1 << 22])),
        "world": {"nnodes": nnodes, "node_rank": draw(st.integers(0, nnodes - 1))},
    }
    return TrainerRequest.model_validate({**values, **fixed})
