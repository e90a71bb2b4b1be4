"""The command `motrix-rl`: a table of verbs, each loaded only when it is asked for."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from motrix_rl import __version__
from motrix_rl.errors import MotrixError, UsageError, did_you_mean

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Verb:
    """One verb: `module.main(words, program) -> exit code` does it."""

    module: str
    usage: str
    summary: str


VERBS: dict[str, Verb] = {
    "train": Verb("motrix_rl.cli.train", "[key=value ...]", "train a policy (the same as train.py)"),
    "eval": Verb("motrix_rl.cli.evaluate", "RUN", "measure a trained policy"),
    "play": Verb("motrix_rl.cli.play", "RUN", "watch a trained policy, or make a video of it"),
    "export": Verb("motrix_rl.cli.export", "RUN", "write a trained policy as ONNX"),
    "logs": Verb("motrix_rl.cli.logs", "RUN [WORKER]", "show the logs of a run's workers"),
    "plan": Verb(
        "motrix_rl.cli.plan", "[key=value ...]", "show who would run where, without starting anything"
    ),
    "bench": Verb(
        "motrix_rl.cli.bench",
        "[WHAT] [key=value ...]",
        "measure the stages of a training, and what limits it",
    ),
    "doctor": Verb("motrix_rl.cli.doctor", "", "check this machine, and say what to do about each finding"),
}


def entry() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


def main(words: Sequence[str]) -> int:
    """Runs `motrix-rl WORDS`; returns the exit code."""
    if not words:
        print(usage(), file=sys.stderr)
        return EXIT_USAGE
    name = words[0]
    if name in ("-h", "--help", "help"):
        print(usage())
        return 0
    if name in ("-V", "--version"):
        print(f"motrix-rl {__version__}")
        return 0
    if name not in VERBS:
        hint = "; did you mean 'train'?" if "=" in name else did_you_mean(name, VERBS)
        print(f"error: '{name}' is not a verb of motrix-rl{hint}", file=sys.stderr)
        return EXIT_USAGE
    return run_verb(name, words[1:], program=f"motrix-rl {name}")


def run_verb(name: str, words: Sequence[str], program: str) -> int:
    """Runs one verb; a person's mistake becomes one line and exit code 2, never a traceback.

    Args:
        name: a key of `VERBS`.
        words: what follows the verb.
        program: how the person called it, for usage texts.
    """
    module = importlib.import_module(VERBS[name].module)
    try:
        code: int = module.main(list(words), program)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except MotrixError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # `... --help | head`: the reader has seen enough. Without this, Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def usage() -> str:
    """The text of `motrix-rl --help`."""
    width = max(len(f"{name} {verb.usage}") for name, verb in VERBS.items())
    lines = [f"  {f'{name} {verb.usage}':<{width}}  {verb.summary}" for name, verb in VERBS.items()]
    return "\n".join(
        [
            f"motrix-rl {__version__}: asynchronous training of robot policies",
            "",
            "usage: motrix-rl VERB ...",
            "",
            *lines,
            "",
            "RUN is a run directory, a checkpoint, or 'latest'. `motrix-rl VERB --help` says more.",
        ]
    )
