"""`mingle env`: print this node's place in the world, for eval."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from mingle_hooks.cli.answer import print_variables
from mingle_hooks.cli.help import COMMON, Grouped
from mingle_hooks.cli.options import settings_options
from mingle_hooks.cli.plain import ONLY_STARTED

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
