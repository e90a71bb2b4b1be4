"""`python -m tests.bench.peers`: how long we and others take to learn the same, and at which rates."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from motrix_rl.cli.arguments import Arguments, positive_int
from motrix_rl.errors import MotrixError, UsageError, did_you_mean
from tests.bench.peers import rate_table
from tests.bench.peers.campaign import Campaign
from tests.bench.peers.catalogue import OURS, PEERS, TASKS, chosen
from tests.bench.peers.rates import Rates
from tests.bench.peers.table import load, markdown
from topology.cpulist import parse
from topology.errors import CpuListError

PROGRAM = "python -m tests.bench.peers"
VERBS = {
    "run": "measure, and print the table",
    "table": "print the table of what has been measured",
    "rates": "measure our rates and MotrixLab's by turns on the same work, and print the table",
}


def main(words: Sequence[str]) -> int:
    """Does what the words say; returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _main(list(words))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except MotrixError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; what was finished is kept", file=sys.stderr)
        return 130


def _main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: {PROGRAM} VERB --out DIR ...")
        print("\n".join(f"  {verb}: {what} ({PROGRAM} {verb} --help)" for verb, what in VERBS.items()))
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        raise UsageError(f"{PROGRAM} knows no '{verb}'{did_you_mean(verb, VERBS)}")
    given = _arguments(verb).parse_args(rest)
    if verb == "rates":
        return _rates(given)
    fine = True
    if verb == "run":
        fine = _campaign(given).run()
    found = load(given.out)
    _show(json.dumps(found, indent=1) if given.json else markdown(found))
    return 0 if fine else 1


def _rates(given: argparse.Namespace) -> int:
    cores, venvs = _cores(given.cores), given.venvs or given.out / "venvs"
    found = rate_table.summary(Rates(given.out, venvs, cores, given.rounds, given.seconds).run())
    _show(json.dumps(found, indent=1) if given.json else rate_table.markdown(found))
    return 1 if found["failed"] else 0


def _show(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains once more at exit


def _arguments(verb: str) -> Arguments:
    arguments = Arguments(f"{PROGRAM} {verb}", f"{VERBS[verb].capitalize()}.")
    flag = arguments.add_argument
    flag("--out", type=_directory, required=True, metavar="DIR", help="where results are kept")
    flag("--json", action="store_true", help="print JSON instead of Markdown")
    if verb in ("run", "rates"):
        flag("--cores", metavar="LIST", help="CPUs for each training, such as 0,1 or 0:3 (default: two)")
        flag("--venvs", type=_directory, metavar="DIR", help="the peers' environments (default: OUT/venvs)")
    if verb == "rates":
        flag("--rounds", type=positive_int, default=3, metavar="N", help="of all figures (default: 3)")
        flag("--seconds", type=_seconds, default=20.0, metavar="S", help="of each measurement (default: 20)")
    if verb == "run":
        flag("--peers", default=",".join((OURS, *PEERS)), metavar="A,B", help="who (default: %(default)s)")
        flag("--tasks", default=",".join(TASKS), metavar="A,B", help="what (default: %(default)s)")
        flag("--seeds", type=_seeds, default="0,1,2", metavar="N,M", help="of ours (default: %(default)s)")
        flag("--peer-seeds", type=_seeds, default="0", metavar="N,M", help="of peers (default: %(default)s)")
        flag("--cap", type=_seconds, default=1200.0, metavar="SECONDS", help="for anybody (default: 1200)")
        flag("--again", action="store_true", help="measure also what has been measured")
    return arguments


def _campaign(given: argparse.Namespace) -> Campaign:
    return Campaign(
        out=given.out,
        venvs=given.venvs or given.out / "venvs",
        peers=chosen(given.peers, "peer", (OURS, *PEERS)),
        tasks=chosen(given.tasks, "task", TASKS),
        seeds=given.seeds,
        peer_seeds=given.peer_seeds,
        cores=_cores(given.cores),
        cap_s=given.cap,
        again=given.again,
    )


def _cores(text: str | None) -> tuple[int, ...]:
    allowed = sorted(os.sched_getaffinity(0))
    if text is None:
        return tuple(allowed[:2])
    try:
        cores = parse(text)
    except CpuListError as error:
        raise UsageError(f"--cores: {error}") from error
    wrong = [core for core in cores if core not in allowed]
    if wrong or not cores:
        raise UsageError(
            f"--cores {text}: CPU {wrong[0] if wrong else '-'} is not to be had; these are: {allowed}"
        )
    return cores


def _directory(text: str) -> Path:
    return Path(text).expanduser().resolve()  # trainings have working directories of their own


def _seeds(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers such as 0,1,2, got '{text}'") from None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0 or value == float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got '{text}'")
    return value


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
