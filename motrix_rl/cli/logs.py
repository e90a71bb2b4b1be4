"""`motrix-rl logs`: one worker's log, or those of all workers merged by time."""

from __future__ import annotations

from motrix_rl.cli.arguments import Arguments, positive_int
from motrix_rl.logs import follow, read_log
from motrix_rl.runs import resolve_run


def main(words: list[str], program: str) -> int:
    """Prints the lines; with `-f` also those to come, until the run ends or Ctrl-C; returns 0.

    Raises:
        UsageError: there is no such run or worker.
    """
    arguments = Arguments(program, "Shows the log of one worker of a run, or of all workers merged by time.")
    arguments.add_argument("run", metavar="RUN", help="a run directory, a checkpoint, or 'latest'")
    arguments.add_argument(
        "worker", nargs="?", metavar="WORKER", help="one worker, such as collector-0; all without it"
    )
    arguments.add_argument(
        "-f", "--follow", action="store_true", help="go on with new lines until the run ends"
    )
    arguments.add_argument(
        "-n", "--lines", type=positive_int, metavar="N", help="begin with the last N lines"
    )
    arguments.add_argument(
        "--runs-root", default="runs", metavar="DIR", help="where runs are (default: runs)"
    )
    given = arguments.parse_intermixed_args(words)

    run = resolve_run(given.run, given.runs_root).run_dir
    if given.follow:
        lines = follow(run, given.worker, lines=given.lines)
    elif given.lines is not None:
        lines = follow(run, given.worker, lines=given.lines, stop=lambda: True)
    else:
        lines = read_log(run, given.worker)
    for line in lines:
        # Each line at once: a follower is often read through a pipe.
        print(line, flush=given.follow)
    return 0
