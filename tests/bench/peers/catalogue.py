"""Who is compared, and on what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from motrix_rl.errors import UsageError, did_you_mean

HERE = Path(__file__).resolve().parent
OURS = "ours"
#: Episodes of an evaluation, ours and theirs.
EPISODES = 10


@dataclass(frozen=True)
class Task:
    """A task of ours, Gymnasium's environment that it is, and the mean return that counts as learnt."""

    env_id: str
    threshold: float


@dataclass(frozen=True)
class Peer:
    """Somebody else's trainer.

    Attributes:
        script: its trainer in `trainers/`, and words before the options.
        what: one line for the table.
    """

    script: tuple[str, ...]
    what: str


TASKS = {
    "halfcheetah": Task("HalfCheetah-v5", 3000.0),
    "hopper": Task("Hopper-v5", 1500.0),
    "walker2d": Task("Walker2d-v5", 1500.0),
}
PEERS = {
    "sb3": Peer(("train_sac.py", "sb3"), "Stable-Baselines3's SAC, default settings"),
    "sbx": Peer(("train_sac.py", "sbx"), "SBX's SAC (JAX on the CPU), default settings"),
    "motrixlab": Peer(
        ("train_motrixlab.py",),
        "MotrixLab's asynchronous FastSAC on Gymnasium's environments, since its wheels carry no task: default"
        " networks and losses, 64 worlds, batch 256, 4 updates an iteration; rewards are not scaled to its value"
        " support of -20 to 20",
    ),
}


def chosen(text: str, kind: str, valid: Iterable[str]) -> list[str]:
    """Splits `a,b` into names, each once.

    Raises:
        UsageError: one of them is not valid; names the nearest.
    """
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    valid = list(valid)
    for name in names:
        if name not in valid:
            raise UsageError(f"there is no {kind} '{name}'{did_you_mean(name, valid)}")
    if not names:
        raise UsageError(f"no {kind} is named; valid: {', '.join(valid)}")
    return names
