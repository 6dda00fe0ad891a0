"""mingle hooks: render, install, verify, uninstall, simulate, doctor, report and rollout."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from mingle_hooks.cli.group import Group
from mingle_hooks.cli.health import DEVIATES
from mingle_hooks.cli.places import conf_option, home_option, located, root_option, settled, version_option
from mingle_hooks.cli.rollout import report_command, rollout_command
from mingle_hooks.cli.told import difference, show, show_edited, show_files, show_lines
from mingle_hooks.errors import SettingsError, printable
from mingle_hooks.install import manifest, report
from mingle_hooks.install.apply import apply
from mingle_hooks.install.health import closed, health
from mingle_hooks.install.lock import alone
from mingle_hooks.install.site import Site
from mingle_hooks.install.targets import TARGETS, hook, target
from mingle_hooks.install.text import render
from mingle_hooks.install.uninstall import removals, uninstall
from mingle_hooks.install.verify import verify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.install.plan import Plan

# Exit status where --detailed-exitcode asks for it and something was changed, or would be. As DEVIATES, where there is
# something to mend, it is no error of the command itself: these are 64 and above.
CHANGED = 2

_scheduler = click.argument("scheduler", type=click.Choice([*TARGETS]))
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_detailed = click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 if something would change.")


def _names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return a scheduler's hooks, for completion."""
    return [its.name for its in target(ctx.params["scheduler"]).hooks if its.name.startswith(incomplete)]


@click.group(cls=Group)
def hooks() -> None:
    """Install the hooks of a cluster: prolog, epilog, task prolog."""


@hooks.command("render")
@_scheduler
@click.argument("name", required=False, shell_complete=_names)
@click.option("--diff", is_flag=True, help="Show the difference from what is installed.")
@click.option("--observe", is_flag=True, help="Render hooks that only log what they would set.")
@root_option
@conf_option
@version_option
@home_option
def render_command(scheduler: str, name: str | None, *, diff: bool, observe: bool, **places: str | None) -> None:
    """Print the hooks as `install` would write them."""
    if name is not None and not diff:
        click.echo(render(hook(scheduler, name), settled(places, observe=observe)), nl=False)
        return
    plan = target(scheduler).plan(settled(places, observe=observe), located(places)._replace(is_shown=True))
    for file in plan.files:
        if name in (None, file.entry.name):
            if diff:
                click.echo(difference(file.before, file.text, file.entry.path), nl=False)
            else:
                click.echo(f"==> {file.entry.path} <==\n{file.text}")


@hooks.command("install")
@_scheduler
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the plan without writing anything.")
@click.option("--diff", is_flag=True, help="Show the changes in each file.")
@_json
@_detailed
@root_option
@conf_option
@version_option
@home_option
def install_command(
    scheduler: str,
    *,
    yes: bool,
    dry_run: bool,
    diff: bool,
    as_json: bool,
    detailed_exitcode: bool,
    **places: str | None,
) -> None:
    """Install the hooks, and print the lines that the scheduler's configuration needs."""
    where = located(places)
    with nullcontext() if dry_run else alone(where.root):
        plan = _plan(scheduler, places)
        changes = plan.changes
        if not as_json:
            show_files(plan, diff=diff)
        if changes and not dry_run:
            if not yes:
                click.confirm("Write these files?", abort=True, err=True)
            apply(plan)
    bad = tuple(closed(plan.root, [file.entry for file in plan.files]))
    if as_json:
        click.echo(report.installed(plan, changes=changes, bad=bad))
    else:
        show_lines(plan, bad)
    _end(bad=bool(bad), changed=changes and detailed_exitcode)


@hooks.command("verify")
@_scheduler
@click.option(
    "--quiet", is_flag=True, help="For node health checks: check files and key only, print nothing if all is well."
)
@_json
@root_option
@conf_option
@version_option
@home_option
def verify_command(scheduler: str, *, quiet: bool, as_json: bool, **places: str | None) -> None:
    """Compare the node with what was installed; exit with 1 if anything differs."""
    where, its = located(places), settled(places)
    plan = None if quiet else target(scheduler).plan(its, where)
    if plan is None:
        found = tuple(health(where.root, manifest.read(where.root), scheduler, its.key_file))
    else:
        found = verify(plan, its, where)
    bad = any(not finding.note for finding in found)
    if as_json:
        click.echo(report.verified(scheduler, found))
    else:
        show(found)
        if plan is not None:
            show_edited(plan)
            click.echo("" if bad else "ok\n", nl=False)
    _end(bad=bad)


@hooks.command("uninstall")
@_scheduler
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed without removing anything.")
@_json
@_detailed
@root_option
@conf_option
@home_option
def uninstall_command(
    scheduler: str, *, yes: bool, dry_run: bool, as_json: bool, detailed_exitcode: bool, **places: str | None
) -> None:
    """Remove the hooks and restore what was there before. Refused while slurm.conf still runs them."""
    where = located(places)
    with nullcontext() if dry_run else alone(where.root):
        found = removals(where, scheduler, _settled_or_default(places))
        undo = target(scheduler).undo if found else ()
        changes = any(removal.what not in {"leave", "gone"} for removal in found)
        if not as_json:
            for line in undo:
                click.echo(line)
            for removal in found:
                click.echo(f"{removal.what:8}{where.root}{removal.entry.path}")
            if any(removal.what == "stub" for removal in found):
                click.echo("stub: Slurm may still run it, so it stays; repeat this after scontrol reconfigure")
        if not dry_run:
            if found and not yes:
                click.confirm("Continue?", abort=True, err=True)
            uninstall(where.root, scheduler, found)
    if as_json:
        click.echo(report.removed(scheduler, found, undo, changes=changes))
    _end(changed=changes and detailed_exitcode)


def _end(*, bad: bool = False, changed: bool = False) -> None:
    """End with the status for what was found or done; without one for 0."""
    if bad or changed:
        raise click.exceptions.Exit(DEVIATES if bad else CHANGED)


@hooks.command("simulate")
@_scheduler
@root_option
@click.option("--runs", default=0, metavar="N", help="Run them N times with random faults; root only.")
@click.option("--seed", default=0, metavar="N", help="Seed of the random faults.")
def simulate_command(scheduler: str, root: str, *, runs: int, seed: int) -> None:
    """Run the hooks in recorded and hostile environments; exit with 1 if one fails."""
    from mingle_hooks.install.simulate import simulate

    if runs:
        _storm(scheduler, root, runs, seed)
        return
    trials = []
    for trial in simulate(scheduler, settled({"root": root})):
        trials.append(trial)
        click.echo(f"{trial.hook:19}{trial.environment:28}status {trial.status}{trial.milliseconds:8.1f} ms")
        for line in trial.said:
            click.echo(f"    {printable(line)}")
    failed = sum(trial.status != 0 for trial in trials)
    slowest = max(trial.milliseconds for trial in trials)
    click.echo(f"\n{len(trials)} runs, {failed or 'none'} failed, the slowest took {slowest:.0f} ms")
    if os.geteuid() != 0:
        click.echo("note: run this as root: otherwise root's hooks do nothing", err=True)
    _end(bad=bool(failed))


def _storm(scheduler: str, root: str, runs: int, seed: int) -> None:
    from mingle_hooks.install.storm import MOST_MS, storm

    trials, failed = [], 0
    for trial in storm(scheduler, settled({"root": root}), runs, seed):
        trials.append(trial.milliseconds)
        if trial.status or trial.said or trial.milliseconds > MOST_MS:
            failed += 1
            outside = f"; wrote {', '.join(map(printable, trial.said))}" if trial.said else ""
            taken = f"status {trial.status}, {trial.milliseconds:.0f} ms"
            click.echo(f"run {len(trials)}: {trial.hook}, {trial.environment}: {taken}{outside}")
    click.echo(f"{runs} runs, seed {seed}: {failed or 'none'} failed, the slowest {max(trials):.0f} ms")
    _end(bad=bool(failed))


@hooks.command("doctor")
@root_option
@conf_option
@version_option
@home_option
def doctor_command(**places: str | None) -> None:
    """Show what is installed, what is wrong, and what a job on this host would get."""
    from mingle_hooks.install.doctor import doctor, preview, why_nothing

    where, site = located(places), settled(places)
    found = list(doctor(site, where))
    show(found)
    host = os.uname().nodename.partition(".")[0]
    click.echo(f"\nUnder Slurm the second of two tasks on {host}, in a step of two nodes, would get:")
    lines = preview(site, host, where.root)
    click.echo("\n".join(f"  {line}" for line in lines or ("nothing", *why_nothing(site, host, where.root))))
    _end(bad=any(not finding.note for finding in found))


hooks.add_command(report_command)
hooks.add_command(rollout_command)


def _settled_or_default(places: Mapping[str, str | None]) -> Site:
    """Return the site's settings, or none: a file that is wrong may be why the hooks have to go."""
    try:
        return settled(places)
    except SettingsError:
        return Site()


def _plan(scheduler: str, places: Mapping[str, str | None]) -> Plan:
    return target(scheduler).plan(settled(places), located(places))
