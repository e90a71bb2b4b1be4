"""`motrix-rl plan`: the layout of a run, and the bytes that it takes, without starting anything."""

from __future__ import annotations

from motrix_rl.cli.arguments import Arguments
from motrix_rl.cli.train import tell
from motrix_rl.config import load_config
from motrix_rl.errors import UsageError


def main(words: list[str], program: str) -> int:
    """Prints who would run where for the given options; returns 0.

    Raises:
        UsageError: the options are wrong, or no layout satisfies them on that machine.
    """
    arguments = Arguments(
        program,
        "Shows the layout that a run would have on this machine, or on a described one; starts nothing.",
    )
    arguments.add_argument("overrides", nargs="*", metavar="key=value", help="options as for train")
    arguments.add_argument(
        "--machine", metavar="FILE", help="a machine's description (see doctor --save-machine)"
    )
    arguments.add_argument("--name", metavar="NAME", help="which machine, where FILE holds several")
    arguments.add_argument("--json", action="store_true", help="print JSON")
    given = arguments.parse_intermixed_args(words)
    if given.name is not None and given.machine is None:
        raise UsageError("--name chooses a machine out of a file; give the file too: --machine FILE")
    config = load_config(given.overrides, arguments.flags(), tell)

    from topology import MachineSpec, TopologyError

    try:
        machine = None if given.machine is None else MachineSpec.load(given.machine, given.name)
        # Only now: the workers' floor is heavy, and a mistake above is answered without it.
        from workers.planning import plan_text

        print(plan_text(config, machine, as_json=given.json))
    except TopologyError as error:
        raise UsageError(str(error)) from error
    return 0
