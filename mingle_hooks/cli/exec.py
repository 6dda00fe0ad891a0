"""`mingle exec`: set the variables, then become COMMAND."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from mingle_hooks.cli.answer import How, become, stay
from mingle_hooks.cli.help import ONLY_PRINTED, Grouped
from mingle_hooks.cli.options import settings_options

EXAMPLES = """\
srun mingle exec torchrun train.py               # in a job of Slurm
mingle exec --id a --nodes 4 torchrun train.py   # each of four machines
srun mingle exec --scope task python train.py    # each task is a process"""


@click.command(
    name="exec",
    cls=Grouped,
    examples=EXAMPLES,
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

    Options stand before COMMAND; all after it is its own. Without a world
    COMMAND is not started. A launcher that reads no variables gets its nodes
    as options, before what stands there; --explain shows the line.
    """
    how = How(explain, no_wait, verbatim, keep_key)
    if together:
        return stay(command, options, how)
    become(command, options, how)
    return 0
