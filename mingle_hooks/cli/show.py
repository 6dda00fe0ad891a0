"""`mingle show`: one run, with its nodes and its last failure."""

from __future__ import annotations

import click

from mingle_hooks.cli import runs
from mingle_hooks.cli.stdout import write


@click.command()
@click.argument("name", metavar="ID")
@runs.json_option
@runs.key_option
def show(*, name: str, is_json: bool, key_file: str | None) -> None:
    """Show one run: its nodes, who is missing, and its last failure.

    ID is the id of the job or of the run, or its beginning.
    """
    known = runs.runs(key_file)
    way = known.one(name)
    found = known.look([way], is_whole=True)
    if not found:
        raise runs.ended(way.entry)
    if is_json:
        runs.print_json(runs.whole_row(found[0]))
    else:
        write("".join(f"{line}\n" for line in runs.page(found[0])))
    if found[0].state is None:
        raise runs.silent(way.entry, known.path)
