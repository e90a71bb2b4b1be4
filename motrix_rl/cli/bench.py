"""`motrix-rl bench`: how fast this machine trains, and what limits it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from motrix_rl.cli.arguments import Arguments, positive_int
from motrix_rl.cli.train import tell as note
from motrix_rl.config import load_config
from motrix_rl.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from workers.bench.stages import StageReport
    from workers.bench.start import StartReport
    from workers.bench.update import UpdateReport

WHAT = {
    "stages": "each stage of a training alone, then the whole run (the default)",
    "ring": "the transition ring between two processes, beside a plain copy of the same bytes",
    "scale": "the data plane: collectors that sleep, 1 to 8 of them, and a learner that only drains",
    "learner": "updates beside bare matrix products on the same core",
    "start": "where the seconds go from the command to the first update",
}
#: Bytes of a slot: 32 environments of a small task, and a thousand of a large one.
RING_SLOTS = (16_384, 1 << 20, 8 << 20)


def main(words: list[str], program: str) -> int:
    """Measures and prints; returns 0.

    Raises:
        UsageError: the options are wrong, or this machine cannot serve them.
    """
    arguments = Arguments(
        program,
        "Measures a training on this machine. WHAT is one of: "
        + "; ".join(f"{name}: {text}" for name, text in WHAT.items())
        + ".",
    )
    arguments.add_argument(
        "words", nargs="*", metavar="WHAT key=value", help="what, and options as for train"
    )
    arguments.add_argument(
        "--seconds", type=_positive, default=3.0, metavar="S", help="of each measurement (default: 3)"
    )
    arguments.add_argument(
        "--rounds", type=positive_int, default=5, metavar="N", help="measurements of each figure (default: 5)"
    )
    arguments.add_argument("--json", action="store_true", help="print JSON")
    given = arguments.parse_intermixed_args(words)

    names = [word for word in given.words if "=" not in word]
    what = names[0] if names else "stages"
    if what not in WHAT or len(names) > 1:
        wrong = what if what not in WHAT else names[1]
        raise UsageError(f"bench knows no '{wrong}'{did_you_mean(wrong, WHAT)}")
    overrides = [word for word in given.words if "=" in word]
    if what in ("ring", "scale"):
        if overrides:
            raise UsageError(f"bench {what} takes no options of a training ({overrides[0]})")
        return (_ring if what == "ring" else _scale)(given.seconds, given.json)
    config = load_config(overrides, arguments.flags(), note)
    if config.resume is not None:
        raise UsageError("bench starts afresh; leave resume out")

    from topology import TopologyError

    try:
        data, text = _MEASURE[what](config, given.seconds, given.rounds)
    except TopologyError as error:
        raise UsageError(str(error)) from error
    print(json.dumps(data) if given.json else text)
    return 0


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got '{text}'")
    return value


def _progress(line: str) -> None:
    print(f"... {line}", file=sys.stderr, flush=True)


def _ring(seconds: float, as_json: bool) -> int:
    from transport.bench import ring_throughput

    results = [ring_throughput(size, seconds) for size in RING_SLOTS]
    if as_json:
        print(json.dumps(results))
        return 0
    print("   slot bytes     ring GB/s     copy GB/s    ratio    commit to hand, us: p50      p99")
    for found in results:
        print(
            f"{found['slot_bytes']:13,.0f} {found['ring_gb_s']:13.2f} {found['copy_gb_s']:13.2f}"
            f" {found['ratio']:8.2f} {found['latency_p50_us']:27.0f} {found['latency_p99_us']:8.0f}"
        )
    return 0


def _scale(seconds: float, as_json: bool) -> int:
    from workers.bench.scale import COLLECTORS, measure_scale, scale_data, scale_text

    reports = [measure_scale(collectors, seconds) for collectors in COLLECTORS]
    print(json.dumps(scale_data(reports)) if as_json else scale_text(reports))
    return 0


def _stages(config: Any, seconds: float, rounds: int) -> tuple[dict[str, Any], str]:
    from workers.bench.stages import measure_stages

    report = measure_stages(config, seconds, rounds, _progress)
    return report.data(), stages_text(report)


def stages_text(report: StageReport) -> str:
    """The report as a table, median (smallest to largest) in each row."""
    shares = report.shares()
    lines = [report.machine, f"{report.task}, {report.num_envs} environments", report.layout, ""]
    if report.physics_only is not None:
        lines.append(f"{'MuJoCo alone':<16} {report.physics_only.text():>36} steps/s")
    lines.append(f"{'inference_only':<16} {report.inference_only.text():>36} steps/s")
    lines.append(
        f"{'env_acted':<16} {report.env_acted.text():>36} steps/s   as env_only, by the actor's actions"
    )
    for name, stage in report.stages().items():
        updates = f", {report.learner_updates.text(1)} updates/s" if name == "learner_only" else ""
        lines.append(
            f"{name:<16} {stage.text():>36} steps/s   end to end reaches {shares[name]:.0%} of it{updates}"
        )
    lines.append(
        f"{'end_to_end':<16} {report.end_to_end.text():>36} steps/s,"
        f" {report.end_to_end_updates.text(1)} updates/s"
    )
    noise = max(stage.spread for stage in (*report.stages().values(), report.end_to_end))
    measure = "the slower of env_only and collector_only" if report.learner_bound else "the slowest stage"
    lines += [
        "",
        f"end_to_end / {measure}: {report.ratio.text(2)}; the limit is {report.limit()}",
        f"collector_only / inference_only and env_acted by turns: {report.collector_share.text(2)}",
        f"figures are medians (smallest to largest); the noisiest spreads over {noise:.0%} of its median",
        f"learner_only draws from {report.transitions:,} transitions, without collectives;"
        " end_to_end has no evaluation",
    ]
    return "\n".join(lines)


def _learner(config: Any, seconds: float, rounds: int) -> tuple[dict[str, Any], str]:
    from workers.bench.update import measure_update

    report = measure_update(config, seconds, rounds, _progress)
    return report.data(), update_text(report)


def update_text(report: UpdateReport) -> str:
    """The report in a few lines."""
    return "\n".join(
        [
            report.machine,
            f"{report.task}, batch {report.batch_size}, {report.flops / 1e6:,.1f} MFLOP in the products of an update",
            report.layout,
            "",
            f"updates          {report.updates.text(1):>32} a second"
            f" = {report.updates.times(report.flops / 1e9).text(1)} GFLOP/s",
            f"a large product  {report.large.times(1e-9).text(1):>32} GFLOP/s",
            f"a layer's product{report.layer.times(1e-9).text(1):>32} GFLOP/s",
            f"updates reach {report.share.median:.0%} of the large product's rate"
            f" ({min(report.share.values):.0%} to {max(report.share.values):.0%})",
        ]
    )


def _start(config: Any, _seconds: float, _rounds: int) -> tuple[dict[str, Any], str]:
    from workers.bench.start import measure_start

    report = measure_start(config)
    return report.data(), start_text(report)


def start_text(report: StartReport) -> str:
    """The steps and the workers, a line each."""
    meaning = {
        "command": "python, imports of the parent, configuration",
        "plan": "machine, layout, the task's sizes from its simulator",
        "spawn": "starting the processes",
        "workers": "until the last worker is ready",
        "warm-up": f"{report.warmup_generations} generations at random",
        "first update": "from there to the first update",
    }
    lines = [report.machine, report.task, ""]
    lines += [f"{seconds:7.2f} s  {name:<13} {meaning[name]}" for name, seconds in report.steps.items()]
    lines += [
        f"{report.total_s:7.2f} s  in all",
        "",
        "worker        interpreter  importing   building   ready",
    ]
    lines += [
        f"{worker.name:<13} {worker.interpreter_s:9.2f} s {worker.importing_s:8.2f} s {worker.building_s:8.2f} s"
        f" {worker.ready_s:7.2f} s"
        for worker in report.workers
    ]
    return "\n".join(lines)


_MEASURE: dict[str, Callable[[Any, float, int], tuple[dict[str, Any], str]]] = {
    "stages": _stages,
    "learner": _learner,
    "start": _start,
}
