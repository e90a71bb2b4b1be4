"""A plan as text for a person, and as JSON for a program."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from topology.cpulist import format_person
from topology.machine import MachineSpec
from topology.memory import Finding, Item, account, check_memory, gib
from topology.plan import Channel, TrainerTopology
from topology.request import TrainerRequest

WIDTH = 100


def to_json(topology: TrainerTopology) -> dict[str, object]:
    """The plan for a program: `cpus` are lists of numbers, `numa_node` null means unpinned."""
    return {
        "learners": [
            {"rank": r.rank, "device": r.device, "numa_node": r.numa_node, "cpus": list(r.cpus)}
            for r in topology.learners
        ],
        "collectors": [
            {
                "id": c.id,
                "owner": c.owner,
                "num_envs": c.num_envs,
                "numa_node": c.numa_node,
                "cpus": list(c.cpus),
                "inference_device": c.inference_device,
                "ring": c.ring,
                "weights": c.weights,
            }
            for c in topology.collectors
        ],
        "notes": list(topology.notes),
    }


def render_plan(machine: MachineSpec, topology: TrainerTopology, request: TrainerRequest) -> str:
    """The whole plan as text: machine, who runs where, memory, and the reason of every choice."""
    blocks = [
        [f"Machine: {machine.name}", *_machine_lines(machine)],
        ["Learners (train the networks; each is a rank)", *_table(_learner_rows(topology))],
        [
            "Collectors (step the environments, each feeds the learner that owns it)",
            *_table(_collector_rows(topology)),
        ],
        ["Evaluator (tests the policy now and then)", *_evaluator_lines(topology)],
        ["Numbers", *_number_lines(topology)],
        ["Memory", *_memory_lines(machine, topology, request)],
        ["Why", *_bullets(topology.notes)],
    ]
    return (
        "\n\n".join("\n".join([block[0], *(f"  {line}".rstrip() for line in block[1:])]) for block in blocks)
        + "\n"
    )


def _machine_lines(machine: MachineSpec) -> list[str]:
    cpus, cores = len(machine.allowed_cpus), len(machine.siblings)
    everything = sum(len(node.all_cpus) for node in machine.nodes)
    usable = f"{cpus} CPUs" if cpus == everything else f"{cpus} of its {everything} CPUs may be used"
    lines = [f"{machine.arch}, {usable} ({cores} cores), memory free {gib(machine.memory_free)}"]
    empty: list[int] = []
    for node in machine.nodes:
        if not node.all_cpus:
            empty.append(node.id)
            continue
        memory = "" if node.memory_bytes is None else f", {gib(node.memory_bytes)} memory"
        usable = format_person(node.cpus) if node.cpus else "none that may be used"
        lines.append(f"NUMA node {node.id}: CPUs {usable}{memory}")
    if empty:
        lines.append(f"NUMA node(s) {format_person(empty)}: memory only, no CPUs")
    for gpu in machine.gpus:
        place = f"NUMA node {gpu.numa_node}" if gpu.numa_node is not None else "NUMA node unknown"
        if len(gpu.numa_nodes) > 1:
            place = f"NUMA node one of {format_person(gpu.numa_nodes)}"
        memory = "" if gpu.memory_bytes is None else f", {gib(gpu.memory_bytes)}"
        lines.append(f"{gpu.device}: {gpu.name}{memory}, {place}, PCI {gpu.pci or 'unknown'}")
    if not machine.gpus:
        lines.append("no GPU")
    return [piece for line in lines for piece in textwrap.wrap(line, WIDTH, subsequent_indent="  ")]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _node(node: int | None) -> str:
    return "unpinned" if node is None else str(node)


def _channel(channel: Channel) -> str:
    return "host" if channel == "host" else "CUDA IPC"


def _learner_rows(topology: TrainerTopology) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("rank", "device", "NUMA node", "threads", "batch", "CPUs")]
    for r in topology.learners:
        cpus = format_person(r.cpus)
        rows.append((str(r.rank), r.device, _node(r.numa_node), str(r.threads), str(r.batch_size), cpus))
    return rows


def _collector_rows(topology: TrainerTopology) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            "id",
            "owner",
            "environments",
            "NUMA node",
            "threads",
            "policy on",
            "data via",
            "weights via",
            "CPUs",
        )
    ]
    for c in topology.collectors:
        shard = f"{c.env_lo}..{c.env_lo + c.num_envs - 1} ({c.num_envs})"
        rows.append(
            (str(c.id), f"rank {c.owner}", shard, _node(c.numa_node), str(c.threads), c.inference_device,
             _channel(c.ring), _channel(c.weights), format_person(c.cpus))
        )  # fmt: skip
    return rows


def _evaluator_lines(topology: TrainerTopology) -> list[str]:
    evaluator = topology.evaluator
    if evaluator is None:
        return ["none on this machine"]
    shared = ", shared with collectors" if evaluator.shared else ""
    node = "unpinned" if evaluator.numa_node is None else f"NUMA node {evaluator.numa_node}"
    return [f"{node}, {evaluator.threads} thread(s), CPUs {format_person(evaluator.cpus)}{shared}"]


def _number_lines(topology: TrainerTopology) -> list[str]:
    lines = [
        f"{topology.num_envs} environments, {len(topology.collectors)} collector(s) "
        f"of {topology.collectors[0].num_envs}",
        f"batch of {topology.batch_size}, {topology.world_size} rank(s) of {topology.batch_size_per_rank}",
    ]
    if topology.nnodes > 1:
        lines.append(
            f"machine {topology.node_rank} of {topology.nnodes}; the first two figures are over all machines"
        )
    return lines


def _memory_lines(machine: MachineSpec, topology: TrainerTopology, request: TrainerRequest) -> list[str]:
    items = account(topology, request)
    rows = _memory_rows(items)
    lines = [f"{_mark(finding)}{finding.message}" for finding in check_memory(machine, topology, request)]
    wrapped = [piece for line in lines for piece in textwrap.wrap(line, WIDTH, subsequent_indent="  ")]
    return [*(_table(rows) if rows else []), *wrapped, "the size of /dev/shm does not matter: it is not used"]


def _memory_rows(items: Sequence[Item]) -> list[tuple[str, ...]]:
    """One row for what is the same on several GPUs."""
    places: dict[tuple[str, int, int], list[str]] = {}
    for item in items:
        places.setdefault((item.what, item.count, item.size), []).append(item.place)
    return [
        (gib(size), f"{count} x {what}", ", ".join(where) + (" (each)" if len(where) > 1 else ""))
        for (what, count, size), where in places.items()
    ]


def _mark(finding: Finding) -> str:
    return {"ok": "", "warning": "WARNING ", "error": "ERROR "}[finding.level]


def _bullets(notes: Iterable[str]) -> list[str]:
    return [piece for note in notes for piece in textwrap.wrap(f"- {note}", WIDTH, subsequent_indent="  ")]
