"""mingle hooks: render, install, verify, uninstall, simulate, doctor, report and rollout."""

from __future__ import annotations

import difflib
import os
import re
from typing import TYPE_CHECKING

import click

from mingle_hooks import settings
from mingle_hooks.cli.group import Group
from mingle_hooks.cli.rollout import report_command, rollout_command
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.install import manifest
from mingle_hooks.install.apply import apply
from mingle_hooks.install.hook import Where
from mingle_hooks.install.site import Site, site
from mingle_hooks.install.targets import TARGETS, hook, target
from mingle_hooks.install.text import render
from mingle_hooks.install.uninstall import removals, uninstall
from mingle_hooks.install.verify import closed, verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.install.plan import Plan
    from mingle_hooks.install.verify import Finding

# Exit status where there is something to mend. 64 and above are errors of the command itself.
DEVIATES = 1

_scheduler = click.argument("scheduler", type=click.Choice([*TARGETS]))
_root = click.option("--root", default="", metavar="DIR", help="Work below DIR, such as a node image.")
_conf = click.option("--slurm-conf", metavar="PATH", help="Where slurm.conf is (below --root).")
_version = click.option("--slurm-version", metavar="X.Y", help="The version of Slurm, such as 23.11.")
_home = click.option("--pbs-home", metavar="DIR", help="PBS_HOME; otherwise taken from /etc/pbs.conf.")


def _names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return a scheduler's hooks, for completion."""
    return [its.name for its in target(ctx.params["scheduler"]).hooks if its.name.startswith(incomplete)]


@click.group(cls=Group)
def hooks() -> None:
    """Hooks that give every job MASTER_ADDR, NODE_RANK and the rest."""


@hooks.command("render")
@_scheduler
@click.argument("name", required=False, shell_complete=_names)
@click.option("--diff", is_flag=True, help="Show the difference from what is installed instead.")
@click.option("--observe", is_flag=True, help="Hooks that only log what they would set.")
@_root
@_conf
@_version
@_home
def render_command(scheduler: str, name: str | None, *, diff: bool, observe: bool, **places: str | None) -> None:
    """Print a hook, or all of them, as installing would write it."""
    if name is not None and not diff:
        click.echo(render(hook(scheduler, name), _site(places, observe=observe)), nl=False)
        return
    plan = target(scheduler).plan(_site(places, observe=observe), _where(places)._replace(is_shown=True))
    for file in plan.files:
        if name in (None, file.entry.name):
            if diff:
                click.echo(_difference(file.before or "", file.text, file.entry.path), nl=False)
            else:
                click.echo(f"==> {file.entry.path} <==\n{file.text}")


@hooks.command("install")
@_scheduler
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan and write nothing.")
@click.option("--diff", is_flag=True, help="Show what changes in each file.")
@_root
@_conf
@_version
@_home
def install_command(scheduler: str, *, yes: bool, dry_run: bool, diff: bool, **places: str | None) -> None:
    """Show what would be written, ask, write it, and say what the scheduler's configuration must name."""
    plan = _plan(scheduler, places)
    for file in plan.files:
        kept = f", the site's own is kept as {file.entry.kept}" if file.entry.kept else ""
        chain = f", calls {file.entry.chain}" if file.entry.chain else ""
        click.echo(f"{file.what:8}{places['root']}{file.entry.path}{chain}{kept}")
        if diff:
            click.echo(_difference(file.before or "", file.text, file.entry.path), nl=False)
    if plan.changes and not dry_run:
        if not yes:
            click.confirm("Write these files?", abort=True, err=True)
        apply(plan)
    click.echo(f"\n{plan.where}:")
    for line in plan.lines:
        click.echo(f"{line.text}{'    # already there' if line.is_there else ''}")
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    for finding in closed(plan):
        click.echo(f"BAD  {finding.where}: {finding.what}; mend, before you reconfigure: {finding.mend}", err=True)


@hooks.command("verify")
@_scheduler
@_root
@_conf
@_version
@_home
def verify_command(scheduler: str, **places: str | None) -> None:
    """Tell every deviation from what installing would write; exit status 1 where there is one."""
    found = verify(_plan(scheduler, places), _site(places), _where(places))
    _show(found)
    if any(not finding.note for finding in found):
        raise click.exceptions.Exit(DEVIATES)
    click.echo("ok")


@hooks.command("uninstall")
@_scheduler
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@_root
@_conf
def uninstall_command(scheduler: str, *, yes: bool, dry_run: bool, root: str, slurm_conf: str | None) -> None:
    """Remove the hooks and put back what stood there; refused while slurm.conf still runs them."""
    found = removals(Where(root, slurm_conf), scheduler)
    for line in target(scheduler).undo if manifest.read(root).of(scheduler) else ():
        click.echo(line)
    for removal in found:
        click.echo(f"{removal.what:8}{root}{removal.entry.path}")
    if any(removal.what == "stub" for removal in found):
        click.echo("stub: Slurm may still run it, so it stays, for the site's own; repeat after scontrol reconfigure")
    if dry_run:
        return
    if found and not yes:
        click.confirm("Carry this out?", abort=True, err=True)
    uninstall(root, scheduler, found)


@hooks.command("simulate")
@_scheduler
@_root
def simulate_command(scheduler: str, root: str) -> None:
    """Run the hooks with recorded and hostile environments; exit status 1 where one does not end with 0."""
    from mingle_hooks.install.simulate import simulate

    trials = []
    for trial in simulate(scheduler, _site({"root": root})):
        trials.append(trial)
        click.echo(f"{trial.hook:19}{trial.environment:28}status {trial.status}{trial.milliseconds:8.1f} ms")
        for line in trial.said:
            click.echo(f"    {printable(line)}")
    failed = sum(trial.status != 0 for trial in trials)
    slowest = max(trial.milliseconds for trial in trials)
    click.echo(f"\n{len(trials)} runs, {failed or 'none'} with another status than 0, the slowest {slowest:.0f} ms")
    if os.geteuid() != 0:
        click.echo("note: run it as root: root's hooks do nothing of their work for others", err=True)
    if failed:
        raise click.exceptions.Exit(DEVIATES)


@hooks.command("doctor")
@_root
@_conf
@_version
@_home
def doctor_command(**places: str | None) -> None:
    """Tell what is installed, what is wrong or in the way, and what a job on this host would get."""
    from mingle_hooks.install.doctor import doctor, preview, why_nothing

    where, site = _where(places), _site(places)
    found = list(doctor(site, where))
    _show(found)
    host = os.uname().nodename.partition(".")[0]
    click.echo(f"\nUnder Slurm the second of two tasks on {host}, in a step of two nodes, would get:")
    lines = preview(site, host, where.root)
    click.echo("\n".join(f"  {line}" for line in lines or ("nothing", *why_nothing(site, host, where.root))))
    if any(not finding.note for finding in found):
        raise click.exceptions.Exit(DEVIATES)


hooks.add_command(report_command)
hooks.add_command(rollout_command)


def _show(found: Sequence[Finding]) -> None:
    width = max((len(finding.where) for finding in found), default=0) + 2
    for finding in found:
        mend = f"; mend: {finding.mend}" if finding.mend else ""
        click.echo(f"{'note' if finding.note else 'BAD':5}{finding.where + ':':{width}}{finding.what}{mend}")


def _site(places: Mapping[str, str | None], *, observe: bool = False) -> Site:
    """Return the site's settings: only the site's file counts, not what the admin's own shell has."""
    root = places.get("root") or ""
    found = site(settings.load({}, {}, system_file=root + settings.SYSTEM_FILE))
    return Site(**{**found.__dict__, "observe": True}) if observe else found


def _plan(scheduler: str, places: Mapping[str, str | None], *, observe: bool = False) -> Plan:
    return target(scheduler).plan(_site(places, observe=observe), _where(places))


def _where(places: Mapping[str, str | None]) -> Where:
    root = places["root"] or ""
    if root and not os.path.isdir(root):
        raise UsageError("a directory", f"--root {root}", "making it first")
    version = _parsed(places["slurm_version"])
    return Where(root.rstrip("/"), places["slurm_conf"], version, places["pbs_home"])


def _parsed(version: str | None) -> tuple[int, int] | None:
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})(\.[0-9a-z.-]*)?", version) if version else None
    if version and not match:
        raise UsageError("a version such as 23.11", repr(version), "--slurm-version with what `slurmd -V` says")
    return (int(match[1]), int(match[2])) if match else None


def _difference(before: str, after: str, path: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, f"{path} (new)", lineterm="")
    return "".join(f"{line}\n" for line in lines)
