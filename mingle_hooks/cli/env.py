"""`mingle env`: print this node's place in the world, for eval."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from mingle_hooks.cli.answer import How, become_command, print_variables, run_together
from mingle_hooks.cli.help import COMMON, ONLY_PRINTED, Grouped, settings_options
from mingle_hooks.cli.main import ONLY_STARTED

EXAMPLES = """\
eval "$(mingle env || echo exit 1)"; torchrun train.py   # sh, bash, zsh
mingle env --shell fish | source                         # fish
eval "`mingle env --shell csh`"                          # csh, tcsh"""


@click.command(cls=Grouped, examples=EXAMPLES, common=(*COMMON, "shell", "key_file", "explain"))
@partial(settings_options, without=ONLY_STARTED)
def env(*, explain: bool, no_wait: bool, **options: Any) -> None:
    """Print the variables of this node for eval.

    If no world forms, nothing is set and eval ends the script. An interactive
    shell stays open.
    """
    print_variables(options, explain=explain, no_wait=no_wait)


# `mingle exec`: set the variables, then become COMMAND.

EXAMPLES_EXEC = """\
srun mingle exec torchrun train.py               # in a Slurm job
mingle exec --id a --nodes 4 torchrun train.py   # on each of 4 machines
srun mingle exec --scope task python train.py    # one process per task"""


@click.command(
    name="exec",
    cls=Grouped,
    examples=EXAMPLES_EXEC,
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
        return run_together(command, options, how)
    become_command(command, options, how)
    return 0
