"""`mingle key`: print a fresh key for the members of a world."""

from __future__ import annotations

import click

from mingle_hooks.cli.stdout import write


@click.command()
def key() -> None:
    """Print a new key for the members of a world.

    \b
    (umask 077; mingle key > ~/.config/mingle/key)   # and copy it
    """
    from mingle_hooks.keys import fresh

    write(fresh() + "\n")
