"""`motrix-rl export`: a trained policy as one ONNX file."""

from __future__ import annotations

from pathlib import Path

from motrix_rl.cli.arguments import Arguments
from motrix_rl.errors import UsageError
from motrix_rl.export.policy_file import FILE_NAME, OBSERVATIONS, PACKAGES, export_checkpoint, task_of
from motrix_rl.extras import require
from motrix_rl.runs import resolve_run


def main(words: list[str], program: str) -> int:
    """Writes the file and says what is in it; returns 0.

    Raises:
        UsageError: there is no such run, it has no policy yet, or a package is missing.
    """
    arguments = Arguments(
        program,
        "Writes a trained policy as one ONNX file: observation normaliser, network and action scaling.",
    )
    arguments.add_argument("run", metavar="RUN", help="a run directory, a checkpoint, or 'latest'")
    arguments.add_argument(
        "--output", metavar="FILE", help=f"where it goes (default: {FILE_NAME} in the run directory)"
    )
    arguments.add_argument(
        "--latest", action="store_true", help="the newest checkpoint instead of the best policy"
    )
    arguments.add_argument(
        "--runs-root", default="runs", metavar="DIR", help="where runs are (default: runs)"
    )
    given = arguments.parse_args(words)

    run = resolve_run(given.run, given.runs_root)
    path = run.run_dir.path / FILE_NAME if given.output is None else Path(given.output).expanduser()
    if not path.parent.is_dir():
        raise UsageError(f"--output={path}: there is no directory {path.parent}")
    if path.is_dir():
        raise UsageError(f"--output={path} is a directory; name a file, such as {path / FILE_NAME}")
    require(PACKAGES[:1], "export", "an ONNX file")

    from motrix_rl.checkpoint.policy import choose_checkpoint

    checkpoint = choose_checkpoint(run, newest=given.latest)
    report = export_checkpoint(checkpoint, task_of(run.run_dir), path)
    facts = report.metadata
    print(f"{path}: {report.nbytes / 1e3:.0f} kB, {facts['task']}, generation {facts['generation']}")
    print(f"obs [batch, {facts['obs_dim']}] -> action [batch, {facts['action_dim']}], float32")
    if report.error is None:
        print("not compared with torch: onnxruntime is not installed (pip install onnxruntime)")
    else:
        print(
            f"onnxruntime's actions differ from torch's by {report.error:.1e} at most,"
            f" over {OBSERVATIONS} observations"
        )
    return 0
