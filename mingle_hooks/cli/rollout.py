"""`mingle hooks report` and `mingle hooks rollout`: the same hooks on every node, before slurm.conf names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mingle_hooks.cli.health import DEVIATES
from mingle_hooks.cli.places import conf_option, located, root_option, settled
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.install.hook import Where

if TYPE_CHECKING:
    from typing import TextIO

_MOST_CHARACTERS = 64 << 20  # reports of 60,000 nodes


@click.command("report")
@click.argument("scheduler", type=click.Choice(["slurm"]))
@root_option
@conf_option
def report_command(scheduler: str, **places: str | None) -> None:  # noqa: ARG001 -- there is one
    """Print a one-line report of this node, for `mingle hooks rollout --check`."""
    from mingle_hooks.install import nodereport

    click.echo(nodereport.line(settled(places), located(places)))


@click.command("rollout")
@click.option("--check", is_flag=True, help="Compare the nodes' reports; exit with 1 if they differ.")
@click.option("--nodes", metavar="LIST", help="The nodes that must report. [default: those of sinfo]")
@click.argument("reports", type=click.File(), default="-")
def rollout_command(*, check: bool, nodes: str | None, reports: TextIO) -> None:
    """Print the steps of a rollout, or check that slurm.conf may name the hooks on all nodes."""
    from mingle_hooks.install import rollout, running
    from mingle_hooks.schedulers.hostlist import expand, fold

    if not check:
        click.echo(rollout.ORDER, nl=False)
        return
    wanted = expand(nodes) if nodes else running.nodes(Where())
    if not wanted:
        raise UsageError("the nodes that must report", "no answer from sinfo", "--nodes node[1-100]")
    found = rollout.check(reports.read(_MOST_CHARACTERS), wanted)
    for finding in found:
        click.echo(f"BAD  {finding.where}: {printable(finding.what)}; fix: {finding.mend}")
    if found:
        raise click.exceptions.Exit(DEVIATES)
    click.echo(f"ok: all reports from {fold(wanted)} agree; you can name the hooks in slurm.conf")
