"""mingle hooks: render, install, verify, uninstall, simulate, doctor, report and rollout."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TextIO

import click

from mingle_hooks import settings
from mingle_hooks.cli.commands import Group
from mingle_hooks.errors import LONGEST, PlaceError, SettingsError, UsageError, printable
from mingle_hooks.hooks import files, plan as plans, slurm, verify
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.plan import UNHEALTHY, Finding, Plan, Removal, Where
from mingle_hooks.hooks.targets import TARGETS, hook
from mingle_hooks.schedulers.facts import expand, fold

# Where `mingle hooks` works: root, slurm.conf, PBS_HOME, and the site's settings.

root_option = click.option("--root", default="", metavar="DIR", help="Work below DIR, such as a node image.")
conf_option = click.option("--slurm-conf", metavar="PATH", help="Path of slurm.conf (below --root).")
version_option = click.option("--slurm-version", metavar="X.Y", help="The version of Slurm, such as 23.11.")
home_option = click.option("--pbs-home", metavar="DIR", help="PBS_HOME; otherwise taken from /etc/pbs.conf.")


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the four options above to a command."""
    return root_option(conf_option(version_option(home_option(command))))


def site_settings(where: Where) -> Site:
    """Return the settings of the site's file, once the files that commands look at have answered.

    Raises SettingsError, and PlaceError also where such a file hangs.
    """
    if hung := plans.hung_finding(where.root, "slurm", plans.VERIFY_S, slurm.conf_places(where)):
        raise PlaceError("files that answer", f"{hung.where}, which {hung.what}", hung.remedy)
    return _read_site(where.root)


def _read_site(root: str) -> Site:
    """Return the settings of the site's file; the admin's own environment and file do not count."""
    given = settings.load({}, {}, system_file=files.below_root(root, settings.SYSTEM_FILE))
    for name in given.left_out:
        click.echo(f"note: ignored {name}, which only a later version of mingle knows", err=True)
    return files.read_site(given)


def hook_places(places: Mapping[str, str | None]) -> Where:
    """Return the places of the options. Raises UsageError."""
    root = places["root"] or ""
    if root and not os.path.isdir(root):
        raise UsageError("a directory", f"--root {root}", f"mkdir -p {root}")
    version = _parsed(places.get("slurm_version"))
    conf, home = (_whole(root, name, places.get(name)) for name in ("slurm_conf", "pbs_home"))
    return Where(root.rstrip("/"), conf, version, home)


def _whole(root: str, name: str, path: str | None) -> str | None:
    """Return an option's path, made absolute. Raises UsageError for a relative one with a root, which is ambiguous."""
    if not path or os.path.isabs(path):
        return path
    if root:
        option = f"--{name.replace('_', '-')}"
        raise UsageError("an absolute path, which is below --root", f"{option} {path}", f"{option} /{path}")
    return os.path.abspath(path)


def _parsed(version: str | None) -> tuple[int, int] | None:
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})(\.[0-9a-z.-]*)?", version) if version else None
    if version and not match:
        raise UsageError("a version such as 23.11", repr(version), "--slurm-version with the version from `slurmd -V`")
    return (int(match[1]), int(match[2])) if match else None


# Output: files, findings and differences.


def show_files(plan: Plan, *, diff: bool) -> None:
    """Print what happens, or will happen, to each file."""
    for file in plan.files:
        renamed = f", keeps the site's own as {file.entry.kept}" if file.entry.kept else ""
        chain = f", calls {file.entry.chain}" if file.entry.chain else ""
        copy = file.present.copy
        edited = f", keeps the edited one as {copy[0]}" if copy and file.present.origin == "edited" else ""
        click.echo(f"{file.what:8}{plan.root}{file.entry.path}{chain}{renamed}{edited}")
        if diff:
            show_difference(file.before, file.text, file.entry.path)


def show_lines(plan: Plan, bad: Sequence[Finding]) -> None:
    """Print the remaining steps, notes and findings."""
    click.echo(f"\n{plan.where}:")
    for line in plan.lines:
        click.echo(f"{line.text}{'    # already there' if line.is_there else ''}")
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    for finding in bad:
        click.echo(f"BAD  {finding.where}: {finding.what}; fix, before you reconfigure: {finding.remedy}", err=True)


def show(found: Sequence[Finding]) -> None:
    """Print findings in columns."""
    width = max((len(finding.where) for finding in found), default=0) + 2
    for finding in found:
        remedy = f"; fix: {finding.remedy}" if finding.remedy else ""
        text = f"{'note' if finding.note else 'BAD':5}{finding.where + ':':{width}}{finding.what}{remedy}"
        click.echo(printable(text, LONGEST))


def show_difference(before: str, after: str, path: str, old: str = "", new: str = "new") -> None:
    """Print a unified diff."""
    names = f"{path} ({old})" if old else path, f"{path} ({new})"
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")
    click.echo("".join(f"{line}\n" for line in lines), nl=False)


def _confirm(question: str) -> None:
    """Ask a question, and exit if the answer is no. Raises UsageError if there is none."""
    try:
        is_yes = click.confirm(question, err=True)
    except click.Abort:  # the end of stdin, as main.py makes another error of Ctrl-C
        click.echo(err=True)
        seen = "none, so nothing was changed"
        raise UsageError("an answer to the question, or --yes", seen, "--yes") from None
    if not is_yes:
        raise click.exceptions.Exit(UNHEALTHY)


# The exit status of --detailed-exitcode if something was changed, or would be. Like UNHEALTHY, it is no error of the
# command itself: errors are 64 and above.
CHANGED = 2

_scheduler = click.argument("scheduler", type=click.Choice([*TARGETS]))
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_detailed = click.option("--detailed-exitcode", "detailed", is_flag=True, help="Exit with 2 if something would change.")


def _names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return a scheduler's hooks, for completion; none after a mistyped scheduler, which click gives as None."""
    target = TARGETS.get(ctx.params["scheduler"])
    return [name for name in target.hooks if name.startswith(incomplete)] if target else []


@click.group(cls=Group)
def hooks() -> None:
    """Install the hooks of a cluster: prolog, epilog, task prolog."""


@hooks.command("render")
@_scheduler
@click.argument("name", required=False, shell_complete=_names)
@click.option("--diff", is_flag=True, help="Show the difference from what is installed.")
@click.option("--observe", is_flag=True, help="Render hooks that only log what they would set.")
@_place_options
def render_command(scheduler: str, name: str | None, *, diff: bool, observe: bool, **places: str | None) -> None:
    """Print the hooks as `install` would write them."""
    named = None if name is None else hook(scheduler, name)
    where = hook_places(places)._replace(is_preview=True)
    site = site_settings(where)
    site = replace(site, observe=site.observe or observe)
    plan = TARGETS[scheduler].plan(site, where)
    found = [file for file in plan.files if name in (None, file.entry.name)]
    if named is not None and not found and not diff:  # one that this host does not need
        click.echo(files.render_hook(named, site), nl=False)
    for file in found:
        if diff:
            show_difference(file.before, file.text, file.entry.path)
        elif named is not None:
            click.echo(file.text, nl=False)
        else:
            click.echo(f"==> {file.entry.path} <==\n{file.text}")


@hooks.command("install")
@_scheduler
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the plan without writing anything.")
@click.option("--diff", is_flag=True, help="Show the changes in each file.")
@_json
@_detailed
@_place_options
def install_command(
    scheduler: str, *, yes: bool, dry_run: bool, diff: bool, as_json: bool, detailed: bool, **places: str | None
) -> None:
    """Install the hooks, and print the lines that the scheduler's configuration needs."""
    where = hook_places(places)
    site = site_settings(where)
    with nullcontext() if dry_run else files.installation_lock(where.root):
        plan = TARGETS[scheduler].plan(site, where)
        changes = plan.changes
        needs_confirmation = changes and not dry_run and not yes
        if needs_confirmation and not as_json:
            show_files(plan, diff=diff)
        if needs_confirmation:
            _confirm("Write these files?")
        if not dry_run:
            plans.apply(plan)
    # After the work, as writing fails if the reader has left, such as `head -1`.
    if not needs_confirmation and not as_json:
        show_files(plan, diff=diff)
    entries = [file.entry for file in plan.files]
    bad = (
        *plans.closed_directories(plan.root, entries),
        *(plans.chain_findings(plan.root, entries) if scheduler == "slurm" else ()),
        *verify.suffix_findings(site, where, entries),
    )
    if as_json:
        click.echo(verify.installed_json(plan, changes=changes, bad=bad))
    else:
        show_lines(plan, bad)
    _end(bad=bool(bad), changed=changes and detailed)


@hooks.command("verify")
@_scheduler
@click.option(
    "--quiet", is_flag=True, help="For node health checks: check files and key only, print nothing if all is well."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=plans.VERIFY_S,
    metavar="SECONDS",
    show_default=True,
    help="Name the first file that does not answer within this time.",
)
@_json
@_place_options
def verify_command(scheduler: str, *, quiet: bool, timeout: float, as_json: bool, **places: str | None) -> None:
    """Compare the node with what was installed; exit with 1 if anything differs."""
    where = hook_places(places)
    plan: Plan | None = None
    found: Sequence[Finding]
    if quiet:
        found = plans.quick_findings(where.root, scheduler, timeout)
    elif hung := plans.hung_finding(where.root, scheduler, timeout, slurm.conf_places(where)):
        found = (hung,)
    else:
        site = _read_site(where.root)
        plan = TARGETS[scheduler].plan(site, where)
        found = verify.verify(plan, site, where)
    bad = any(not finding.note for finding in found)
    if as_json:
        click.echo(verify.verified_json(scheduler, found))
    else:
        show(found)
        if plan is not None:
            for file in plan.files:
                if file.present.origin == "edited":
                    show_difference(file.text, file.before, file.entry.path, "as installed", "as edited")
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
    scheduler: str, *, yes: bool, dry_run: bool, as_json: bool, detailed: bool, **places: str | None
) -> None:
    """Remove the hooks and restore what was there before. Refused while slurm.conf still runs them."""
    where = hook_places(places)
    with nullcontext() if dry_run else files.installation_lock(where.root):
        try:
            site = site_settings(where)
        except SettingsError:  # an invalid file may be the reason for uninstalling
            site = Site()
        found = plans.removals(where, TARGETS[scheduler], site)
        undo = TARGETS[scheduler].undo if found else ()
        changes = any(removal.what not in {"leave", "gone", "wait"} for removal in found)
        needs_confirmation = bool(found) and not dry_run and not yes
        if needs_confirmation and not as_json:
            _show_removals(where.root, found, undo)
        if needs_confirmation:
            _confirm("Continue?")
        if not dry_run:
            with files.directory_locks(where.root, [removal.entry.path for removal in found]):
                plans.uninstall(where.root, scheduler, found)
        left = () if dry_run else TARGETS[scheduler].clear(where)
    if not needs_confirmation and not as_json:
        _show_removals(where.root, found, undo)
    if as_json:
        click.echo(verify.removed_json(scheduler, found, undo, changes=changes))
    for path in left:
        click.echo(f"note: {path} is left for its job; run this again after the job", err=True)
    _end(changed=changes and detailed)


def _show_removals(root: str, found: Sequence[Removal], undo: Sequence[str]) -> None:
    """Print what happens, or will happen, to each file."""
    for line in undo:
        click.echo(line)
    for removal in found:
        click.echo(f"{removal.what:8}{root}{removal.entry.path}")
    if any(removal.what in {"stub", "wait"} for removal in found):
        click.echo(
            "stub: runs your own hooks only, as a slurmd may not have read slurm.conf yet; "
            f"after {plans.STUB_S} s, run scontrol reconfigure, then this again"
        )


def _end(*, bad: bool = False, changed: bool = False) -> None:
    """Exit with the status for findings or changes; return if there are none."""
    if bad or changed:
        raise click.exceptions.Exit(UNHEALTHY if bad else CHANGED)


@hooks.command("simulate")
@_scheduler
@root_option
def simulate_command(scheduler: str, root: str) -> None:
    """Run the hooks in recorded and hostile environments; exit with 1 if one fails."""
    trials = []
    for trial in verify.simulate(scheduler, site_settings(Where(root))):
        trials.append(trial)
        click.echo(f"{trial.hook:19}{trial.environment:28}status {trial.status}{trial.milliseconds:8.1f} ms")
        for line in trial.output:
            click.echo(f"    {printable(line)}")
    failed = sum(trial.status != 0 for trial in trials)
    slowest = max(trial.milliseconds for trial in trials)
    click.echo(f"\n{len(trials)} runs, {failed or 'none'} failed, the slowest took {slowest:.0f} ms")
    if os.geteuid() != 0:
        click.echo("note: run this as root: otherwise root's hooks do nothing", err=True)
    _end(bad=bool(failed))


_MOST_SHOWN = 78  # of a variable, on a screen of 80 columns: MINGLE_EXPORTS repeats all others


@hooks.command("doctor")
@_place_options
def doctor_command(**places: str | None) -> None:
    """Show what is installed, what is wrong, and what a job on this host would get."""
    where = hook_places(places)
    site = site_settings(where)
    found = list(verify.doctor(site, where))
    show(found)
    host = os.uname().nodename.partition(".")[0]
    click.echo(f"\nUnder Slurm the second of two tasks on {host}, in a step of two nodes, would get:")
    lines = [printable(line, _MOST_SHOWN) for line in verify.preview_job(site, host, where.root)]
    click.echo("\n".join(f"  {line}" for line in lines or ("nothing", *verify.why_nothing(site, host, where.root))))
    _end(bad=any(not finding.note for finding in found))


# `mingle hooks report` and `mingle hooks rollout`: the same hooks on every node, before slurm.conf names them.

_MOST_CHARACTERS = 128 << 20  # reports of 60,000 nodes that each have many programs of the site's own


@hooks.command("report")
@click.argument("scheduler", type=click.Choice(["slurm"]))
@root_option
@conf_option
def report_command(scheduler: str, **places: str | None) -> None:  # noqa: ARG001 -- there is one
    """Print a one-line report of this node, for `mingle hooks rollout --check`."""
    where = hook_places(places)
    click.echo(verify.report_line(site_settings(where), where))


@hooks.command("rollout")
@click.option("--check", is_flag=True, help="Compare the nodes' reports; exit with 1 if they differ.")
@click.option("--nodes", metavar="LIST", help="The nodes that must report. [default: those of sinfo]")
@click.argument("reports", type=click.File(errors="replace"), default="-")
def rollout_command(*, check: bool, nodes: str | None, reports: TextIO) -> None:
    """Print the steps of a rollout, or check that slurm.conf may name the hooks on all nodes."""
    if not check:
        click.echo(verify.ORDER, nl=False)
        return
    wanted = expand(nodes) if nodes else slurm.slurm_nodes(Where())
    if not wanted:
        raise UsageError("the nodes that must report", "no answer from sinfo", "--nodes node[1-100]")
    found = verify.compare_reports(reports.read(_MOST_CHARACTERS), wanted)
    for finding in found:
        click.echo(f"BAD  {finding.where}: {printable(finding.what)}; fix: {finding.remedy}")
    _end(bad=bool(found))
    click.echo(f"ok: all reports from {fold(wanted)} agree; you can name the hooks in slurm.conf")
