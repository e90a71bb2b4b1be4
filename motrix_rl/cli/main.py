"""The command `motrix-rl`: a table of verbs, each loaded only when it is asked for."""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:  # before a verb heard it
        code = EXIT_INTERRUPTED
    sys.exit(code)


def main(words: Sequence[str]) -> int:
    """Runs `motrix-rl WORDS`; returns the exit code."""
    open_standard_streams()
    try:
        return _main(words)
    except OSError as error:
        return _stream_failed(error)


def open_standard_streams() -> None:
    """Gives a process that was started with closed standard streams empty ones.

    Otherwise the next file that is opened would become its standard output.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is `fd`
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _stream_failed(error: OSError) -> int:
    """What was said could not be written: a reader that has seen enough is fine, a full disk is told.

    Raises:
        OSError: it is another failure, and deserves its traceback.
    """
    if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains once more at exit
    if isinstance(error, BrokenPipeError):
        return 0
    with contextlib.suppress(OSError):
        print(
            f"error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}",
            file=sys.stderr,
        )
    return EXIT_FAILED


def _main(words: Sequence[str]) -> int:
    if not words:
        print(usage(), file=sys.stderr)
        return EXIT_USAGE
    name = words[0]
    if name in ("-h", "--help", "help"):
        print(usage(), flush=True)
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
    open_standard_streams()
    try:
        _refuse_hidden_packages()
        module = importlib.import_module(VERBS[name].module)
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
    except OSError as error:
        # `... --help | head`, `... > /dev/full`.
        return _stream_failed(error)


def _refuse_hidden_packages() -> None:
    """Says so where a person's own module, on the path before ours, has the name of one of our packages.

    Raises:
        UsageError: there is one; names it.
    """
    # Not above: spawned workers load this file too.
    from motrix_rl.tasks.loading import NAMES_TAKEN

    ours = Path(__file__).parents[2]
    for name in NAMES_TAKEN:
        spec = importlib.util.find_spec(name)
        found = None if spec is None else spec.origin
        if found is not None and not os.path.samefile(Path(found).parent, ours / name):
            raise UsageError(
                f"{found} hides a package of motrix_rl; give it another name, or take its folder off PYTHONPATH"
            )


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
