"""`mingle exec`: set the variables, then become COMMAND."""

from __future__ import annotations

from typing import Any

import click

from mingle_hooks.cli.answer import become
from mingle_hooks.cli.options import settings_options


@click.command(name="exec", context_settings={"allow_interspersed_args": False})
@settings_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec(  # noqa: A001 - the command's own name
    *,
    command: tuple[str, ...],
    explain: bool,
    no_wait: bool,
    **options: Any,  # noqa: ANN401 - one for each setting
) -> None:
    """Set the variables, then become COMMAND. Options stand before COMMAND; all after it is its own.

    \b
    srun mingle exec torchrun train.py
    """
    become(command, options, explain=explain, no_wait=no_wait)
