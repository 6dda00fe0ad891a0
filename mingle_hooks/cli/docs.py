"""`mingle docs`: print a page of the documentation that is installed."""

from __future__ import annotations

import click

from mingle_hooks import shipped
from mingle_hooks.cli.help import Grouped
from mingle_hooks.cli.stdout import write
from mingle_hooks.errors import UsageError
from mingle_hooks.nearest import nearest

SUFFIX = ".md"
EXAMPLES = """\
mingle docs                   # the pages there are
mingle docs admin | less      # hooks for a cluster
mingle docs schedulers/pbs    # what a job of PBS needs"""


def pages() -> tuple[str, ...]:
    """Return the names of the pages."""
    return tuple(name.removesuffix(SUFFIX) for name in shipped.names("docs") if name.endswith(SUFFIX))


@click.command(cls=Grouped, examples=EXAMPLES)
@click.argument(
    "page", required=False, shell_complete=lambda _ctx, _param, begun: [p for p in pages() if p.startswith(begun)]
)
def docs(page: str | None) -> None:
    """Print a page of the documentation, or the list of pages."""
    known = pages()
    if page is None:
        write("".join(f"{name}\n" for name in known))
    elif page in known:
        write(shipped.text(f"docs/{page}{SUFFIX}"))
    else:
        raise UsageError("a page that `mingle docs` lists", page, f"`mingle docs {nearest(page, known)}`")
