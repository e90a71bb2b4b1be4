"""From what the supervisor knows to the lines of a panel. Pure: same status and size, same lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from motrix_rl.console import figures as fig
from motrix_rl.console.layout import UNICODE, Glyphs, Row, bar, framed
from motrix_rl.console.status import BootStatus, RunStatus, WorkerStatus

_MAX_BAR = 40
# Phases in which a worker does what it is there for; others are shown first when there are too many workers.
_WORKING = frozenset(
    ("acting", "stepping", "waiting", "ingesting", "updating", "collective", "evaluating", "saving", "done")
)


def render_boot(boot: BootStatus, width: int, height: int, glyphs: Glyphs = UNICODE) -> list[Text]:
    """The panel of a run that is starting: every worker's role, phase, seconds and last log line.

    Args:
        boot: What is known.
        width: Cells a line.
        height: Lines there are.
        glyphs: What to draw with.

    Returns:
        At most `height` lines of at most `width` cells.
    """
    ready = sum(worker.ready for worker in boot.workers)
    limit = f" of at most {fig.duration(boot.timeout_s)}" if boot.timeout_s is not None else ""
    rows = [
        Row(
            [f"{ready} of {len(boot.workers)} workers ready", f"{fig.duration(boot.elapsed_s)}{limit}"],
            90,
            "starting",
        ),
        Row([boot.run_dir], 40, "run", "dim", flow=False, keep_end=True),
        *_message_rows(boot.messages, 3),
        *_worker_rows(boot.workers, height, top=80),
    ]
    return framed(rows, f"motrix_rl {boot.title}", fig.duration(boot.elapsed_s), width, height, glyphs)


def render_status(status: RunStatus, width: int, height: int, glyphs: Glyphs = UNICODE) -> list[Text]:
    """The panel of a run that is going on. Arguments and result as `render_boot`."""
    rows = [
        _progress_row(status, width, glyphs),
        Row(_return_chunks(status), 95, "return", "bold"),
        Row(_eval_chunks(status), 85, "eval"),
        Row(_step_chunks(status), 80, "steps"),
        Row(_update_chunks(status), 75, "updates"),
        Row(fig.budget(status.collector_budget) or ["-"], 55, "collector"),
        Row(fig.budget(status.learner_budget) or ["-"], 55, "learner"),
        Row(_ring_chunks(status), 60, "ring"),
        Row([f"{name} {fig.number(value)}" for name, value in status.losses.items()] or ["-"], 50, "losses"),
        Row([status.run_dir], 30, "run", "dim", flow=False, keep_end=True),
        *_message_rows(status.messages, 3),
        *_worker_rows(status.workers, height, top=45),
    ]
    phase = f"{status.phase} " if status.phase else ""
    title = f"motrix_rl {status.title}"
    return framed(rows, title, phase + fig.duration(status.elapsed_s), width, height, glyphs)


def summary_line(status: RunStatus) -> str:
    """The same figures in one line, for a log file or a terminal without a cursor."""
    total = f"/{fig.count(status.total_generations)}" if status.total_generations else ""
    share = f" ({fig.percent(_share(status))})" if total else ""
    parts = [
        f"{fig.duration(status.elapsed_s)} gen {fig.count(status.generation)}{total}{share}",
        f"left {fig.duration(status.eta_s)}",
        " ".join(["return", *_return_chunks(status)]),
        " ".join(["eval", *_eval_chunks(status)]),
        " ".join(["steps", *_step_chunks(status)]),
        " ".join(["updates", *_update_chunks(status)]),
        " ".join(["collector", *fig.budget(status.collector_budget)]) if status.collector_budget else "",
        " ".join(["learner", *fig.budget(status.learner_budget)]) if status.learner_budget else "",
        " ".join(["ring", *_ring_chunks(status)]),
        " ".join(f"{name} {fig.number(value)}" for name, value in status.losses.items()),
    ]
    phase = f"{status.phase} " if status.phase and status.phase != "training" else ""
    return phase + " | ".join(part for part in parts if part)


def _share(status: RunStatus) -> float | None:
    return status.generation / status.total_generations if status.total_generations else None


def _progress_row(status: RunStatus, width: int, glyphs: Glyphs) -> Row:
    share = _share(status)
    done = f"{fig.count(status.generation)}"
    if status.total_generations:
        done += f" of {fig.count(status.total_generations)}"
    chunks = (
        []
        if share is None
        else [f"{bar(share, min(_MAX_BAR, max(width // 4, 5)), glyphs)} {fig.percent(share)}"]
    )
    chunks += [f"left {fig.duration(status.eta_s)}", f"gen {done}"]
    return Row(chunks, 100, "progress", "green")


def _return_chunks(status: RunStatus) -> list[str]:
    known = status.return_window and status.return_mean is not None
    window = f" (last {status.return_window} episodes)" if known else ""
    return [
        f"{fig.number(status.return_mean)}{window}",
        f"length {fig.number(status.length_mean)}",
        f"episodes {fig.count(status.episodes)}",
    ]


def _eval_chunks(status: RunStatus) -> list[str]:
    return [f"last {fig.number(status.last_eval)}", f"best {fig.number(status.best_eval)}"]


def _step_chunks(status: RunStatus) -> list[str]:
    return [fig.count(status.env_steps), fig.rate(status.env_steps_per_s)]


def _update_chunks(status: RunStatus) -> list[str]:
    due = f" of {fig.count(status.updates_due)} due" if status.updates_due is not None else ""
    chunks = [f"{fig.count(status.updates)}{due}", fig.rate(status.updates_per_s)]
    return [*chunks, f"UTD asked {fig.number(status.utd_asked, 3)} kept {fig.number(status.utd_kept, 3)}"]


def _ring_chunks(status: RunStatus) -> list[str]:
    capacity = f" of {status.ring_capacity}" if status.ring_capacity is not None else ""
    return [
        f"filled {fig.number(status.ring_fill, 2)}{capacity}",
        f"policy lag mean {fig.number(status.policy_lag_mean, 3)}",
        f"max {fig.number(status.policy_lag_max, 3)}",
    ]


def _message_rows(messages: Sequence[str], most: int) -> list[Row]:
    newest = list(messages)[-most:] if messages else []
    # The newest note is worth more than a worker's log line, older ones less.
    return [
        Row([message], 70 if at == len(newest) - 1 else 20, "note", "yellow", flow=False, keep_end=True)
        for at, message in enumerate(newest)
    ]


def _worker_rows(workers: Sequence[WorkerStatus], height: int, top: int) -> list[Row]:
    shown = list(workers)
    room = max(height // 2, 3)
    hidden = max(len(shown) - room, 0)
    if hidden:
        # Who is not simply at work is what a person looks for.
        unusual = sorted(range(len(shown)), key=lambda i: (shown[i].ready and shown[i].phase in _WORKING, i))
        shown = [shown[i] for i in sorted(unusual[:room])]
    rows = [
        Row([_worker_line(worker)], top - min(at, 9), "", "" if worker.ready else "yellow", flow=False)
        for at, worker in enumerate(shown)
    ]
    if hidden:
        rows.append(Row([f"and {hidden} more workers"], top - 10, "", "dim", flow=False))
    return rows


def _worker_line(worker: WorkerStatus) -> str:
    phase = f"{worker.phase} {fig.duration(worker.phase_seconds)}"
    name = worker.name if worker.name.startswith(worker.role) else f"{worker.name} ({worker.role})"
    extra = f" [{worker.extra}]" if worker.extra else ""
    return f"{name:<12} {phase:<14}{extra} {worker.last_line}".rstrip()
