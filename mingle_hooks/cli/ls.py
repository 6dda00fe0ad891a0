"""`mingle ls`: the runs of this user that form or run."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from mingle_hooks.cli import runs
from mingle_hooks.cli.stdout import write

if TYPE_CHECKING:
    from mingle_hooks.supervise.worlds.finding import Runs, Seen

_WATCH_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"


@click.command(name="ls")
@click.option("--watch", is_flag=True, help="Refresh every 2 s; without a terminal, print changes.")
@runs.json_option
@runs.key_option
def ls(*, watch: bool, is_json: bool, key_file: str | None) -> None:
    """List your runs.

    NODES is the number of nodes that have joined and the number expected.
    Attempts count from 0. A run that does not answer is unreachable.
    """
    known = runs.runs(key_file)
    found = known.look(known.ways())
    if is_json:
        _print_json(found)
    elif watch and sys.stdout.isatty():
        _draw(found)
    elif found:
        _print(runs.lines(found))
    elif not watch:
        runs.note("no runs")
    if watch:
        _watch(known, found, is_json=is_json)


def _watch(known: Runs, last: list[Seen], *, is_json: bool) -> None:
    """Refresh the list until the user stops it."""
    while True:
        time.sleep(_WATCH_S)
        found = known.look(known.ways())
        if not is_json and sys.stdout.isatty():
            _draw(found)
        elif is_json and found != last:
            _print_json(found)
        elif not is_json:
            _print(runs.changes(last, found))
        last = found


def _draw(found: list[Seen]) -> None:
    write(_CLEAR + "".join(f"{line}\n" for line in runs.lines(found)))


def _print(lines: list[str]) -> None:
    if lines:
        write("".join(f"{line}\n" for line in lines))


def _print_json(found: list[Seen]) -> None:
    runs.print_json([runs.row(seen) for seen in found])
