"""`motrix-rl doctor`: checks this machine, one line a finding, each with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from motrix_rl.cli.arguments import Arguments
from motrix_rl.cli.checks import Finding, check_installation, check_limits, check_machine, check_storage
from motrix_rl.errors import UsageError

if TYPE_CHECKING:
    from topology import MachineSpec


def main(words: list[str], program: str) -> int:
    """Prints the findings; returns 1 where something keeps training from working.

    Raises:
        UsageError: the description cannot be written.
    """
    arguments = Arguments(
        program, "Checks this machine for training, and says what to do about each finding."
    )
    arguments.add_argument(
        "--save-machine", metavar="FILE", help="write this machine's description, as plan reads it"
    )
    arguments.add_argument(
        "--runs-root", default="runs", metavar="DIR", help="where runs will be (default: runs)"
    )
    given = arguments.parse_args(words)

    machine = _detect()
    if given.save_machine is not None:
        try:
            machine.save(given.save_machine)
        except OSError as error:
            raise UsageError(f"cannot write {given.save_machine}: {error.strerror}") from error
    findings = [
        *check_installation(),
        *check_machine(machine),
        *check_limits(),
        *check_storage(given.runs_root),
    ]
    print(render(findings))
    if given.save_machine is not None:
        print(f"\nthis machine's description: {given.save_machine}")
    return 1 if any(finding.level == "error" for finding in findings) else 0


def render(findings: Sequence[Finding]) -> str:
    """One line a finding, then the count of those to act on."""
    marks = {"ok": "ok   ", "warning": "warn ", "error": "ERROR"}
    lines = [
        f"{marks[finding.level]} {finding.what}" + (f" -> {finding.advice}" if finding.advice else "")
        for finding in findings
    ]
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    return "\n".join([*lines, "", f"{errors} errors, {warnings} warnings"])


def _detect() -> MachineSpec:
    from topology import MachineSpec, TopologyError

    try:
        return MachineSpec.detect()
    except TopologyError as error:
        raise UsageError(str(error)) from error
