"""The invariants of a layout, written against machine and request rather than against the resolver."""

from __future__ import annotations

from topology import MachineSpec, TrainerRequest, TrainerTopology


def check_layout(machine: MachineSpec, request: TrainerRequest, plan: TrainerTopology) -> None:
    check_placement(machine, plan)
    check_cpus(machine, plan)
    check_quota(machine, request, plan)
    check_shares(request, plan)


def check_placement(machine: MachineSpec, plan: TrainerTopology) -> None:
    """T1: a collector is on its owner's node, and its CPUs are that node's."""
    by_rank = {learner.rank: learner for learner in plan.learners}
    for worker in (*plan.learners, *plan.collectors):
        if worker.numa_node is not None:
            node = machine.node(worker.numa_node)
            assert node is not None
            assert set(worker.cpus) <= set(node.cpus)
    for collector in plan.collectors:
        assert collector.numa_node == by_rank[collector.owner].numa_node
    gpus = {gpu.device: gpu for gpu in machine.gpus}
    usable = {node.id for node in machine.usable_nodes}
    for learner in plan.learners:
        gpu = gpus.get(learner.device)
        if gpu is not None and gpu.numa_node in usable:
            assert learner.numa_node == gpu.numa_node
        elif gpu is not None and learner.numa_node is not None:  # a fallback was taken, and says so
            assert usable == {learner.numa_node} or usable.intersection(gpu.numa_nodes) == {learner.numa_node}
            assert any(
                f"({learner.device})" in note and f"node {learner.numa_node}" in note for note in plan.notes
            )
        elif gpu is not None:
            assert any(f"({learner.device})" in note and "unpinned" in note for note in plan.notes)


def check_cpus(machine: MachineSpec, plan: TrainerTopology) -> None:
    """T2: allowed CPUs only, disjoint while they suffice, threads never above the lists."""
    workers = (*plan.learners, *plan.collectors)
    allowed = set(machine.allowed_cpus)
    everyone = (*workers, *((plan.evaluator,) if plan.evaluator else ()))
    for worker in everyone:
        assert worker.cpus
        assert list(worker.cpus) == sorted(set(worker.cpus))
        assert set(worker.cpus) <= allowed
        assert 1 <= worker.threads <= len(worker.cpus)
    assert len({learner.threads for learner in plan.learners}) == 1
    lists = [set(worker.cpus) for worker in workers]
    if plan.evaluator and not plan.evaluator.shared:
        lists.append(set(plan.evaluator.cpus))
    used = set().union(*lists)
    disjoint = sum(map(len, lists)) == len(used)
    assert disjoint or plan.cpus_shared
    if plan.cpus_shared:
        assert any("share" in note for note in plan.notes)
    elif sum(worker.threads for worker in workers) > len(used):
        raise AssertionError("threads oversubscribe the CPUs")


def check_quota(machine: MachineSpec, request: TrainerRequest, plan: TrainerTopology) -> None:
    """T2: no more CPUs than the cgroup grants time for, but one a node; a user's list may say more."""
    if request.collector_cpu_cores is None and request.learner_cpu_cores is None:
        everyone = (*plan.learners, *plan.collectors, *((plan.evaluator,) if plan.evaluator else ()))
        homes = {worker.numa_node for worker in plan.learners}
        used = {cpu for worker in everyone for cpu in worker.cpus}
        assert len(used) <= max(machine.cpu_budget, len(homes))


def cpus_suffice(machine: MachineSpec, plan: TrainerTopology) -> bool:
    """Whether every node has a CPU for each worker that must be there (ranks pinned, no quota)."""
    wanted: dict[int | None, int] = {}
    for worker in (*plan.learners, *plan.collectors):
        wanted[worker.numa_node] = wanted.get(worker.numa_node, 0) + 1
    if None in wanted or machine.cpu_budget < len(machine.allowed_cpus):
        return False
    nodes = {node.id: node for node in machine.nodes}
    return all(node is not None and len(nodes[node].cpus) >= count for node, count in wanted.items())


def siblings_split(machine: MachineSpec, plan: TrainerTopology) -> bool:
    """Whether two workers got CPUs of one core."""
    for group in machine.siblings:
        owners = [worker for worker in (*plan.learners, *plan.collectors) if set(worker.cpus) & set(group)]
        if len(owners) > 1:
            return True
    return False


def check_shares(request: TrainerRequest, plan: TrainerTopology) -> None:
    """T3: everything divides, shards tile this machine's environments, owners have neighbours."""
    world = request.world
    per_machine = request.num_envs // world.nnodes
    edges = [edge for shard in plan.env_shards for edge in shard]
    assert edges[0] == world.node_rank * per_machine
    assert edges[-1] == (world.node_rank + 1) * per_machine
    assert edges[1:-1:2] == edges[2::2]
    assert len({collector.num_envs for collector in plan.collectors}) == 1
    assert plan.batch_size_per_rank * plan.world_size == request.batch_size
    assert plan.world_size == world.nnodes * len(plan.learners)
    rings = [f"ring {c.id}" for c in plan.collectors]
    joined: list[str] = []
    for learner in plan.learners:
        mine = plan.ring_slice_for_rank(rings, learner.rank)
        assert len(mine) * len(plan.learners) == len(plan.collectors)
        joined.extend(mine)
        assert {c.ring for c in plan.collectors if c.owner == learner.rank} in ({"host"}, {"cuda_ipc"})
    assert joined == rings
    for collector in plan.collectors:
        assert plan.collector_owner(collector.id) == collector.owner
