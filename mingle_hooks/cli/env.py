"""`mingle env`: print this node's place in the world, for eval."""

from __future__ import annotations

from typing import Any

import click

from mingle_hooks.cli.answer import print_variables
from mingle_hooks.cli.options import settings_options


@click.command()
@settings_options
def env(*, explain: bool, no_wait: bool, **options: Any) -> None:  # noqa: ANN401 - one for each setting
    """Print this node's place in the world, for eval.

    \b
    v=$(mingle env) || exit; eval "$v"       # sh, bash, zsh, ksh
    mingle env --shell fish | source         # fish
    eval "`mingle env --shell csh`"          # csh, tcsh
    """
    print_variables(options, explain=explain, no_wait=no_wait)
