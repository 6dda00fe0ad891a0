"""Find every deviation of the installed hooks, each with its remedy, and simulate the hooks."""

from __future__ import annotations

import hmac
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mingle_hooks import __version__
from mingle_hooks.errors import MingleError, PlaceError, UsageError, printable
from mingle_hooks.files import RUN_ROOT
from mingle_hooks.hooks import files, plan as plans, slurm
from mingle_hooks.hooks.files import KEYS, KILL_SWITCH, Chain, Manifest, Site, checksum, render_hook, version_of
from mingle_hooks.hooks.plan import TRIAL_S, Finding, Hook, Plan, Removal, Target, Trial, Where
from mingle_hooks.hooks.targets import TARGETS, hook
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.schedulers.facts import fold
from mingle_hooks.settings import SYSTEM_FILE
from mingle_hooks.values import NONE


def verify(plan: Plan, site: Site, where: Where) -> tuple[Finding, ...]:
    """Return what deviates from what was installed, and from the plan that installing now would make.

    Raises UsageError, FactsError and PlaceError.
    """
    installed = files.read_manifest(plan.root)
    found = list(plans.check_health(plan.root, installed, plan.scheduler, site.key_file))
    found += TARGETS[plan.scheduler].findings(plan, where)
    found += (*suffix_findings(site, where, [file.entry for file in plan.files]), *_plan(plan, installed))
    if os.path.lexists(files.inside_root(plan.root, KILL_SWITCH)):
        found.append(Finding(KILL_SWITCH, "is there, so the hooks do nothing", f"rm {KILL_SWITCH}", note=True))
    notes = [note for note in plan.notes if not note.startswith(site.key_file)]  # the key has its own finding
    found += [Finding(plan.scheduler, note, "", note=True) for note in notes]
    return tuple(found)


def suffix_findings(site: Site, where: Where, entries: Iterable[files.Entry]) -> Iterator[Finding]:
    """Find a host_suffix with which this node's name does not resolve. A PBS server's host runs no jobs."""
    name = os.uname().nodename.partition(".")[0] + site.host_suffix
    if where.root or not site.host_suffix or not any(entry.mode & stat.S_IXUSR for entry in entries):
        return
    try:
        subprocess.run(["/usr/bin/getent", "ahosts", name], capture_output=True, timeout=_COMMAND_S, check=True)
    except FileNotFoundError:  # a system without the GNU C library's
        return
    except (OSError, subprocess.SubprocessError):
        remedy = f"another host_suffix in {SYSTEM_FILE}, or this name in DNS or /etc/hosts"
        yield Finding(name, "does not resolve, and jobs whose first host is this one get it as MASTER_ADDR", remedy)


def _plan(plan: Plan, installed: Manifest) -> Iterator[Finding]:
    """Find what installing now would change. These are notes: an upgrade must not fail every node's health check."""
    again = f"mingle hooks install {plan.scheduler}"
    entries = installed.of(plan.scheduler)
    versions = {version_of(file.present.now) for file in plan.files} - {""}
    for file in plan.files:
        entry, now = installed.entries.get(file.entry.path), file.present.now
        if entry is None:
            what = "is missing" if now is None else "is not in the manifest"
            yield Finding(file.entry.path, what, again, note=bool(entries) and versions != {__version__})
        elif now is not None and checksum(now.data) == entry.sha256 != file.entry.sha256:
            what = "is as installed, but these settings give another one"
            if (version := version_of(now)) not in {"", __version__}:
                what = f"is as installed by mingle-hooks {version}, but {__version__} gives another one"
            yield Finding(file.entry.path, what, again, note=True)


# What is installed on this host, what is in its way, and what a job here would get.

_COMMAND_S = 5.0
_NEEDED = ("timeout", "stat", "mkdir", "mv", "rm", "chown", "chmod", "sha256sum", "logger", "chroot", "id", "grep")


def doctor(site: Site, where: Where) -> Iterator[Finding]:
    """Yield findings in the order in which an admin would look. Raises PlaceError if a file cannot be read."""
    yield Finding("mingle-hooks", __version__, "", note=True)
    installed = files.read_manifest(where.root)
    for scheduler, row in TARGETS.items():
        version, has_hooks = _daemon_version(row), bool(installed.of(scheduler))
        if not version and not has_hooks:
            continue
        yield Finding(scheduler, version or "is not on this host", "", note=True)
        none = "has no hooks installed"
        try:
            plan = row.plan(site, where)
            if has_hooks:
                yield from verify(plan, site, where)
            else:
                yield Finding(scheduler, none, f"mingle hooks install {scheduler}", note=True)
        except MingleError as wrong:
            what = f"cannot be checked: saw {wrong.seen}"
            if not has_hooks:
                what = f"{none}, and install would refuse: expected {wrong.expected}, saw {wrong.seen}"
            yield Finding(scheduler, what, wrong.remedy, note=not has_hooks)
    for name in _NEEDED:
        if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
            remedy = f"installing {name} (coreutils, util-linux)"
            yield Finding(name, "is not on this host, and root's hooks need it", remedy)


def preview_job(site: Site, host: str, root: str = "") -> tuple[str, ...]:
    """Return what the second of two tasks on this host, the first of two nodes, would get from Slurm's TaskProlog.

    The kill switch is the one below root.
    """
    environ = {
        "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": f"{host},other", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_NNODES": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1",
        "SLURM_JOB_PARTITION": "".join(site.partitions[:1]),
    }  # fmt: skip
    text = render_hook(hook("slurm", "taskprolog"), site, kill_switch=files.inside_root(root, KILL_SWITCH))
    argv = ["/bin/sh", "-c", text]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=_COMMAND_S, check=True)
    return tuple(done.stdout.splitlines())


def why_nothing(site: Site, host: str, root: str = "") -> Iterator[str]:
    """Yield the reasons for a TaskProlog that prints nothing on this host, with the kill switch below root."""
    if os.path.lexists(files.inside_root(root, KILL_SWITCH)):
        yield f"{root}{KILL_SWITCH} is there"
    for name in dict.fromkeys((host, host + site.host_suffix)):
        if not is_hostname(name):  # is_host in the TaskProlog
            yield f"{name!r} is not a host name that the hook accepts: letters, digits, _ . and -, at most 253 in all"
    if site.observe:
        yield "hooks.observe is on: see the system log"
    if site.hosts and host not in site.hosts:
        yield f"hooks.hosts: only where the first host is one of {', '.join(site.hosts)}"
    if site.opt_in:
        yield f"hooks.opt_in: only jobs with {site.opt_in} in their comment"


def _daemon_version(row: Target) -> str:
    """Return the version that a scheduler's daemon prints; empty if it is not on this host."""
    if not (path := plans.program_path(row.program)):
        return ""
    argv = [path, row.version_option]
    try:
        done = subprocess.run(argv, capture_output=True, errors="replace", timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as wrong:
        return f"{path} does not answer ({type(wrong).__name__})"
    return (done.stdout or done.stderr).strip().partition("\n")[0][:80] or path


# What install, verify and uninstall print as JSON.


def installed_json(plan: Plan, *, changes: bool, bad: Iterable[Finding]) -> str:
    """Return what installing changed, or would change, and what is left to do."""
    rows = [{**_row(file.entry, file.what), "calls": file.entry.chain} for file in plan.files]
    lines = [line._asdict() for line in plan.lines]
    tree = {"changed": changes, "scheduler": plan.scheduler, "files": rows, "lines_for": plan.where, "lines": lines}
    return json.dumps({**tree, "notes": plan.notes, "bad": _rows(bad)}, indent=1)


def verified_json(scheduler: str, found: Sequence[Finding]) -> str:
    """Return what verifying found."""
    bad, notes = (_rows(finding for finding in found if finding.note == note) for note in (False, True))
    return json.dumps({"ok": not bad, "scheduler": scheduler, "bad": bad, "notes": notes}, indent=1)


def removed_json(scheduler: str, found: Iterable[Removal], undo: Sequence[str], *, changes: bool) -> str:
    """Return what uninstalling changed, or would change."""
    rows = [_row(entry, what) for entry, what, _ in found]
    return json.dumps({"changed": changes, "scheduler": scheduler, "files": rows, "commands": list(undo)}, indent=1)


def _row(entry: files.Entry, what: str) -> dict[str, str]:
    return {"path": entry.path, "action": what, "kept": entry.kept}


def _rows(found: Iterable[Finding]) -> list[dict[str, str]]:
    return [{"where": finding.where, "what": finding.what, "remedy": finding.remedy} for finding in found]


# Simulation: each hook as its scheduler would run it, in recorded and in hostile environments.


def simulate(scheduler: str, site: Site) -> Iterator[Trial]:
    """Run the hooks in a directory that is removed afterwards; nothing of this machine is changed.

    Root's hooks do all of their work only when root runs this. They write to this machine's system log.
    """
    with tempfile.TemporaryDirectory(prefix="mingle-simulate.") as place:
        os.chmod(place, 0o755)  # noqa: S103 - as what is above a hook
        row, state = TARGETS[scheduler], f"{place}/state"
        for each in row.hooks.values():
            none = Chain(drop_ins=place)  # of the site's own
            text = render_hook(each, site, none, place=place, state_directory=state, kill_switch=f"{place}/disabled")
            files.write_whole(f"{place}/{each.name}", text.encode(), 0o755)
        try:
            yield from row.trials(place)
            for name in row.scripts:
                yield from _simulate_script(place, state, row, row.hooks[name])
        finally:
            _clear(state)


def _simulate_script(place: str, state: str, row: Target, hook: Hook) -> Iterator[Trial]:
    """Run one script: one for a job's start finds an empty state; one for its end finds what the start created."""
    for label, arguments, environ in row.runs(hook.name):
        _clear(state)
        if hook.after:
            # The same job's start; if that creates nothing, another job's, whose state must survive.
            for _, others, variables in ((label, arguments, environ), next(iter(row.runs(hook.after)))):
                if not os.path.isdir(state):
                    _run([f"{place}/{hook.after}", *others], variables)
        started = time.perf_counter()
        done = _run([f"{place}/{hook.name}", *arguments], environ)
        taken = (time.perf_counter() - started) * 1000
        shown = tuple(done.stdout.splitlines()) if hook.is_users else _contents(state)
        yield Trial(hook.name, label, done.returncode, taken, shown)


def _run(argv: list[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a hook. One that hangs ends with 124, as of timeout(1). Raises PlaceError."""
    try:
        return subprocess.run(
            argv, env=environ, capture_output=True, text=True, timeout=TRIAL_S, check=False, cwd="/",
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "")
    except PermissionError as wrong:  # mounted with noexec
        seen = f"{os.path.dirname(argv[0])}: {wrong.strerror}"
        raise PlaceError("a directory whose programs can be run", seen, "another TMPDIR") from None


def _clear(state: str) -> None:
    """Remove the hooks' directory, and what they mounted there."""
    if not os.path.isdir(state):
        return
    for name in os.listdir(state):
        if os.path.ismount(path := f"{state}/{name}"):
            subprocess.run(["/bin/umount", "-l", path], check=True)
    shutil.rmtree(state)


def _contents(state: str) -> tuple[str, ...]:
    """Return what is in the hooks' directory, with owners and modes."""
    found = []
    for directory, _, names in os.walk(state):
        for path in [directory, *(f"{directory}/{name}" for name in names)]:
            status = os.lstat(path)
            shown = RUN_ROOT + path.removeprefix(state)
            found.append(f"{shown} uid {status.st_uid} mode {status.st_mode & 0o7777:04o}")
    return tuple(sorted(found))


# What a node has of Slurm's hooks, as one line to compare with other nodes' before slurm.conf names the files.

UNKNOWN, MISSING, UNFIT = "unknown", "missing", "unfit"
_REPORTED_KEYS = (*KEYS, "PrologFlags")
_PURPOSE = b"mingle-hooks: a fingerprint, for comparing"
_DIGITS = 16  # 64 bits distinguish keys, and reveal nothing of one that cannot be guessed
_MOST_DROP_INS = 100  # a site has a few, and all nodes' reports are read at once


def report_line(site: Site, where: Where) -> str:
    """Return the report as JSON in one line. It does not ask the controller, as all nodes report at once.

    Raises FactsError for a manifest or a slurm.conf that cannot be read.
    """
    entries = files.read_manifest(where.root).of("slurm")
    conf = slurm.find_slurm_conf(where.root, where.slurm_conf) or slurm.NO_CONF
    places = [f"{files.DROP_INS}/{name}.d/*" for name in KEYS.values()]
    drop_ins = [path for place in places for path in files.glob_matches(where.root, place)]
    known = {
        "version": __version__,
        "hooks": {entry.path: _sum(files.inside_root(where.root, entry.path)) for entry in entries},
        # Slurm runs what a glob matches by itself: the hook need not call it.
        "chain": {
            name: site.chain(name) or (NONE if files.is_glob(conf.one(key)) else UNKNOWN) for key, name in KEYS.items()
        },
        "drop-ins": {path: _sum(files.below_root(where.root, path))[:_DIGITS] for path in drop_ins[:_MOST_DROP_INS]},
        "key": hooks_fingerprint(where.root, site.key_file),
        "slurm.conf": {key: list(conf.all(key)) for key in _REPORTED_KEYS if conf.all(key)},
        "off": os.path.lexists(files.inside_root(where.root, KILL_SWITCH)),
        "problems": sorted(_problems(where.root, entries)),
    }
    return json.dumps(known, sort_keys=True)


def hooks_fingerprint(root: str, path: str) -> str:
    """Return a fingerprint of the site's key, which reveals nothing of the key."""
    place = files.inside_root(root, path)
    if not os.path.lexists(place):
        return NONE
    if any(plans.site_key(root, path)) or (found := files.look_at(place)) is None:
        return UNFIT
    return hmac.new(found.data.strip(), _PURPOSE, "sha256").hexdigest()[:_DIGITS]


def _sum(path: str) -> str:
    """Return the checksum of a file as it is on disk."""
    try:
        found = files.look_at(path)
    except PlaceError:
        return UNFIT
    return checksum(found.data) if found else MISSING


def _problems(root: str, entries: tuple[files.Entry, ...]) -> Iterator[str]:
    """Yield what keeps Slurm from running the files here, or lets others change them."""
    try:
        yield from (f"{entry.path} is a stub that uninstall left" for entry in entries if entry.stub)
        found = [finding for entry in entries for finding in plans.file_findings(root, entry, "")]
        found += plans.chain_findings(root, entries)
        found += (*plans.open_directories(root, entries), *plans.closed_directories(root, entries))
        yield from (f"{finding.where} {finding.what}" for finding in found)
    except (OSError, MingleError) as wrong:
        yield f"the hooks cannot be looked at: {wrong}"


# The comparison of all nodes' reports.

ORDER = f"""\
1. Copy the same key and {SYSTEM_FILE} to every node. Its [hooks] must name the site's own prolog,
   epilog and taskprolog, or "none".
2. clush -a mingle hooks install slurm --yes
3. clush -a mingle hooks report slurm | mingle hooks rollout --check
4. If that exits with 0: add the lines that install printed to slurm.conf, then scontrol reconfigure.
5. clush -a mingle hooks verify slurm
To go back: remove the lines from slurm.conf, scontrol reconfigure, then clush -a mingle hooks uninstall slurm --yes
"""
_INSTALL = "mingle hooks install slurm --yes there"
# What clush and pdsh print: the node's name before each line, and messages of their own about a node.
_LINE = re.compile(r"(?:(?:clush|pdsh@[^:\s]+): )?(?P<node>[A-Za-z0-9_.-]+): (?P<answer>.*)")
# What to do where a part of the report is different.
_REMEDIES = {
    "key": "the same key there",
    "chain": f"the same {SYSTEM_FILE} there, then {_INSTALL}",
    "drop-ins": "the same programs there",
    "slurm.conf": "the same slurm.conf there",
}
_SAME_HOOKS = f"the same mingle and {SYSTEM_FILE} there, then {_INSTALL}"
_SHORT = 12  # characters of a checksum
_MOST_SHOWN = 80


def compare_reports(text: str, nodes: Iterable[str]) -> tuple[Finding, ...]:
    """Return what to fix before slurm.conf may name the files, each with its nodes.

    `text` has a line "NODE: REPORT" for each. Raises UsageError where there is not one.
    """
    reports, answers = _read(text)
    if not reports:
        seen = f"{min(answers)}: {answers[min(answers)][:_MOST_SHOWN]}" if answers else "none"
        remedy = "clush -a mingle hooks report slurm | mingle hooks rollout --check"
        raise UsageError("reports of nodes, as lines such as node1: {...}", seen, remedy)
    short = {name.partition(".")[0] for name in reports}
    found: dict[tuple[str, str], list[str]] = {}
    for node in sorted({*nodes, *answers}):
        if node not in reports and node.partition(".")[0] not in short:
            why = f": {answers[node][:_MOST_SHOWN]}" if node in answers else ""
            found.setdefault((f"no report{why}", _INSTALL), []).append(node)
    for node, what, remedy in (*_different(reports), *_wrong(reports)):
        found.setdefault((what, remedy), []).append(node)
    rows = found.items()
    return tuple(Finding(fold(affected), printable(what), printable(remedy)) for (what, remedy), affected in rows)


def _read(text: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return each node's report, and the output of nodes that gave none."""
    reports: dict[str, dict[str, str]] = {}
    answers: dict[str, str] = {}
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        tree = None
        with suppress(ValueError, RecursionError):
            tree = json.loads(match["answer"])
        if isinstance(tree, dict) and "hooks" in tree and isinstance(tree.get("problems", []), list):
            reports[match["node"]] = dict(_flat(tree))
        else:
            answers.setdefault(match["node"], match["answer"])
    return reports, {node: answer for node, answer in answers.items() if node not in reports}


def _flat(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield key, "some" if value else NONE
            yield from ((f"{key} {inner}", json.dumps(deep).strip('"')) for inner, deep in value.items())
        else:
            yield key, value if isinstance(value, str) else json.dumps(value)


def _different(reports: dict[str, dict[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield node, what is different there from most others, and the remedy."""
    for key in sorted({key for report in reports.values() for key in report if key != "problems"}):
        values = Counter(report.get(key, MISSING) for report in reports.values())
        usual, count = values.most_common(1)[0]
        for node, report in reports.items():
            if (value := report.get(key, MISSING)) != usual:
                what = f"{key} is {value[:_SHORT]}, and {usual[:_SHORT]} on {count} others"
                yield node, what, _REMEDIES.get(key.partition(" ")[0], _SAME_HOOKS)


def _wrong(reports: dict[str, dict[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield node, a problem that all nodes may share, and the remedy."""
    for node, report in reports.items():
        if report.get("hooks") != "some":
            yield node, "no hooks are installed", _INSTALL
        if report.get("key") == UNFIT:
            yield node, "the key is not a file of root's, mode 0400, with 64 to 128 hex digits", "the same key there"
        for name in KEYS.values():
            if report.get(f"chain {name}") == UNKNOWN:
                remedy = f'{name} = "/the/path", or {name} = "none", in [hooks] of {SYSTEM_FILE}'
                yield node, f"{SYSTEM_FILE} does not name the site's own {name}", remedy
        for problem in json.loads(report.get("problems", "[]")):
            yield node, str(problem), "mingle hooks verify slurm there"
