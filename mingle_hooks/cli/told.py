"""What `mingle hooks` tells people: files, findings and differences."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.install.health import Finding
    from mingle_hooks.install.plan import Plan


def show_files(plan: Plan, *, diff: bool) -> None:
    """Write what happens, or will happen, to each file."""
    for file in plan.files:
        kept = f", keeps the site's own as {file.entry.kept}" if file.entry.kept else ""
        chain = f", calls {file.entry.chain}" if file.entry.chain else ""
        copy = file.standing.copy
        edited = f", keeps the edited one as {copy.path}" if copy and file.standing.whose == "edited" else ""
        click.echo(f"{file.what:8}{plan.root}{file.entry.path}{chain}{kept}{edited}")
        if diff:
            click.echo(difference(file.before, file.text, file.entry.path), nl=False)


def show_lines(plan: Plan, bad: Sequence[Finding]) -> None:
    """Write what is left to do, and what is wrong."""
    click.echo(f"\n{plan.where}:")
    for line in plan.lines:
        click.echo(f"{line.text}{'    # already there' if line.is_there else ''}")
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    for finding in bad:
        click.echo(f"BAD  {finding.where}: {finding.what}; fix, before you reconfigure: {finding.mend}", err=True)


def show_edited(plan: Plan) -> None:
    """Write what somebody changed in each hook, against what installing would write."""
    for file in plan.files:
        if file.standing.whose == "edited":
            click.echo(difference(file.text, file.before, file.entry.path, "as installed", "as edited"), nl=False)


def show(found: Sequence[Finding]) -> None:
    """Write findings, in columns."""
    width = max((len(finding.where) for finding in found), default=0) + 2
    for finding in found:
        mend = f"; fix: {finding.mend}" if finding.mend else ""
        click.echo(f"{'note' if finding.note else 'BAD':5}{finding.where + ':':{width}}{finding.what}{mend}")


def difference(before: str, after: str, path: str, old: str = "", new: str = "new") -> str:
    """Return a unified diff."""
    names = f"{path} ({old})" if old else path, f"{path} ({new})"
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")
    return "".join(f"{line}\n" for line in lines)
