"""`mingle exec`: set the variables, then become COMMAND."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from mingle_hooks.cli.answer import How, become, stay
from mingle_hooks.cli.help import COMMON, ONLY_PRINTED, Grouped
from mingle_hooks.cli.options import settings_options

EXAMPLES = """\
srun mingle exec torchrun train.py               # in a Slurm job
mingle exec --id a --nodes 4 torchrun train.py   # on each of 4 machines
srun mingle exec --scope task python train.py    # one process per task"""


@click.command(
    name="exec",
    cls=Grouped,
    examples=EXAMPLES,
    common=(*COMMON, "together", "verbatim", "key_file", "explain"),
    context_settings={"allow_interspersed_args": False},
)
@partial(settings_options, hidden=ONLY_PRINTED)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARG]...")
def exec(  # noqa: A001 - the command's own name
    *,
    command: tuple[str, ...],
    explain: bool,
    no_wait: bool,
    together: bool,
    verbatim: bool,
    keep_key: bool,
    **options: Any,
) -> int:
    """Set the variables, then become COMMAND.

    Put options of mingle before COMMAND. If no world forms, COMMAND is not
    started. Launchers that read no variables get the world as options; --explain
    prints the resulting command line.
    """
    how = How(explain, no_wait, verbatim, keep_key)
    if together:
        return stay(command, options, how)
    become(command, options, how)
    return 0
