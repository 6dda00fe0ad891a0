"""`mingle schema`: JSON schemas of the files that people write, for editors and for checks."""

from __future__ import annotations

import click

from mingle_hooks.cli.help import Grouped
from mingle_hooks.cli.stdout import write

EXAMPLES = """\
mingle schema job > job.schema.json   # then a job file begins with
#:schema ./job.schema.json"""


@click.command(cls=Grouped, examples=EXAMPLES)
@click.argument("file", type=click.Choice(["job", "settings"]))
def schema(file: str) -> None:
    """Print the JSON schema of a job file or of mingle.toml."""
    import json

    from mingle_hooks import schemas

    write(json.dumps(schemas.job() if file == "job" else schemas.settings(), indent=2) + "\n")
