"""Where OpenPBS' hooks go, and the qmgr commands that bring them in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mingle_hooks.errors import FactsError
from mingle_hooks.files import ENVIRONMENTS, shipped_names, shipped_text
from mingle_hooks.hooks import files
from mingle_hooks.hooks.files import Chain, Manifest, Site, render_hook
from mingle_hooks.hooks.plan import (
    EVIL,
    TRIAL_S,
    File,
    Hook,
    Line,
    Plan,
    Target,
    Trial,
    Where,
    hooks_by_name,
    join_plans,
    plan_file,
    what_stands,
)
from mingle_hooks.schedulers.pbs import CONFIGURATION, home

# A stand-in for the `pbs` module of pbs_python, to run a hook for execjob_launch or execjob_end anywhere.

# Run as `python -c PROGRAM HOOK EVENT...`: prints for each event how the hook ended, what it logged, added and took
# away, as a line of JSON. For every Python that PBS may bring, from 2.7 on. `spoil` is code that goes first.
STAND_IN = r"""
import json, sys, types
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec")
class Thing(object):
    pass
class Env(dict):  # PBS_ENV behaves like a dictionary of strings
    pass
def accept(text=""):
    ended.append("accept")
    raise SystemExit(0)
def reject(text=""):
    ended.append("reject")
    raise SystemExit(1)
for path in sys.argv[2:]:
    given = json.load(open(path))
    log, ended = [], []
    event, job = Thing(), Thing()
    for name, value in given["job"].items():
        setattr(job, name, value)
    event.job, event.env, event.type = job, Env(given["env"]), given.get("type", "execjob_launch")
    event.accept, event.reject = accept, reject
    pbs = types.ModuleType("pbs")
    pbs.event = lambda: event
    pbs.EXECJOB_LAUNCH, pbs.EXECJOB_END = "execjob_launch", "execjob_end"
    pbs.logjobmsg = lambda job_id, text: log.append(text)
    exec(given.get("spoil", ""))
    sys.modules["pbs"] = pbs
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit:
        pass
    added = dict((name, value) for name, value in event.env.items() if given["env"].get(name) != value)
    gone = sorted(set(given["env"]) - set(event.env.keys()))
    print(json.dumps({"ended": ended, "log": log, "added": added, "gone": gone}))
"""


def stand_in_event(text: str) -> dict[str, Any]:
    """Return a recorded event: what `pbs.event()` gave, as `NAME=value` and `env NAME=value` lines."""
    job: dict[str, Any] = {
        "id": None,
        "euser": None,
        "run_count": None,
        "exec_host": None,
        "exec_host2": None,
        "exec_vnode": None,
    }
    environ = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.startswith("env "):
            environ[name[4:]] = value
        elif name == "run_count":
            job[name] = int(value)
        elif name.removeprefix("job.") in job:
            job[name.removeprefix("job.")] = None if value == "None" else value
    return {"job": job, "env": environ}


# OpenPBS' hooks, and trying the one that its own Python runs.

PBS_HOOKS = (
    Hook("pbs", "launch", "pbs/launch.py.j2", "every task, root, before it; and when a job ends"),
    Hook("pbs", "prologue", "pbs/prologue.sh.j2", "first node, root, before a job"),
    Hook("pbs", "epilogue", "_epilogue.sh.j2", "first node, root, when a job ends", after="prologue"),
)


def pbs_trials(place: str, site: Site) -> Iterator[Trial]:
    """Try the hook for execjob_launch with recorded events and hostile ones, by a stand-in for PBS' own Python."""
    write_launch(place, site, f"{place}/state")
    for label, event in launch_events():
        argv = launch_argv(place, event)
        started = time.perf_counter()
        done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=TRIAL_S, check=True)
        taken = (time.perf_counter() - started) * 1000
        seen = json.loads(done.stdout)
        said = tuple(f"{key}={value}" for key, value in seen["added"].items()) or tuple(seen["log"])
        yield Trial("launch", label, 0 if seen["ended"] == ["accept"] else 1, taken, said)


def write_launch(place: str, site: Site, state: str) -> None:
    """Write the launch hook into a directory."""
    hook = render_hook(hooks_by_name(PBS_HOOKS, "launch"), site, state_directory=state, kill_switch=f"{place}/disabled")
    with open(f"{place}/mingle.py", "w", encoding="utf-8") as text:
        text.write(hook)


def launch_argv(place: str, event: Mapping[str, object]) -> list[str]:
    """Return the command that runs the launch hook in a directory with an event."""
    with open(f"{place}/event.json", "w", encoding="utf-8") as text:
        json.dump(event, text)
    # Not the one of a virtual environment, which the user of a hook may be unable to reach.
    return [os.path.realpath(sys.executable), "-c", STAND_IN, f"{place}/mingle.py", f"{place}/event.json"]


def launch_events() -> Iterator[tuple[str, dict[str, dict[str, object]]]]:
    """Yield recorded and hostile events, each with a label."""
    event: dict[str, dict[str, object]] = {}
    for file in (file for file in shipped_names(ENVIRONMENTS) if file.endswith(".launch")):
        event = stand_in_event(shipped_text(f"{ENVIRONMENTS}/{file}"))
        yield file.removesuffix(".launch"), dict(event)
    for label, job, environ in (
        ("a hostile job id", {"id": "../../etc;" + EVIL}, {}),
        ("hostile hosts", {"exec_host2": EVIL}, {}),
        ("a hostile node number", {}, {"PBS_NODENUM": EVIL}),
        ("hostile texts", {}, {"MASTER_ADDR": EVIL, "MINGLE_EXPORTS": EVIL}),
    ):
        yield label, {"job": {**event["job"], **job}, "env": {**event["env"], **environ}}


PBS_DIRECTORY = f"{files.MANIFEST_DIRECTORY}/pbs"
_BACKUP = f"{files.MANIFEST_DIRECTORY}/qmgr-hooks.before"
# Disabled first: a hook that is deleted while tasks start is a race that the tasks can lose.
UNDO = ('qmgr -c "set hook mingle enabled=false"', 'qmgr -c "delete hook mingle"')
SCRIPTS = ("prologue", "epilogue")
PROGRAM = 0o700  # pbs_mom refuses a prologue that others may write


def plan_pbs(site: Site, where: Where) -> Plan:
    """Return what to write below the root, and the commands for the server's host. Raises FactsError and PlaceError."""
    root = where.root
    old = files.read_manifest(root)
    place = f"{where.pbs_home or home(files.below_root(root, CONFIGURATION))}/mom_priv"
    launch = hooks_by_name(PBS_HOOKS, "launch")
    found = [plan_file(root, old, launch, f"{PBS_DIRECTORY}/mingle.py", render_hook(launch, site), mode=0o644)]
    if os.path.isdir(files.below_root(root, place)):
        found += [with_chain(site, root, old, hook, place) for hook in PBS_HOOKS if hook.name in SCRIPTS]
    return join_plans(
        "pbs",
        root,
        old,
        tuple(found),
        "commands for the host of the PBS server",
        _commands(),
        _notes(root, place),
    )


def with_chain(site: Site, root: str, old: Manifest, hook: Hook, place: str, names: Collection[str] = SCRIPTS) -> File:
    """Return one of a node's classic scripts; one that the site has already is kept and called. Raises PlaceError."""
    path = f"{place}/{hook.name}"
    its = what_stands(root, old, hook, path, names)
    text = render_hook(hook, site, Chain(its.kept))
    return plan_file(root, old, hook, path, text, mode=PROGRAM, chain=its.kept, standing=its)


def _commands() -> tuple[Line, ...]:
    """Return them in order; the backup first, and enabled only when all else is in place.

    Carrying them out again changes nothing: the backup is made while mingle's own hook is not there. `print hook`
    ends with 1 where there is no hook; `list hook` ends with 0 whatever happens, and says nothing then.
    """
    none = '[ -z "$(qmgr -c "list hook" 2>&1)" ]'
    backup = f'{{ qmgr -c "print hook" > {_BACKUP}.new || {none}; }} && mv {_BACKUP}.new {_BACKUP}'
    settings = "event=execjob_launch", "event+=execjob_end", "alarm=10", "order=900"
    return tuple(
        Line(text)
        for text in (
            f'qmgr -c "list hook mingle" >/dev/null 2>&1 || {{ {backup}; }}',
            'qmgr -c "list hook mingle" >/dev/null 2>&1 || qmgr -c "create hook mingle"',
            'qmgr -c "set hook mingle enabled=false"',
            *(f'qmgr -c "set hook mingle {setting}"' for setting in settings),
            f'qmgr -c "import hook mingle application/x-python default {PBS_DIRECTORY}/mingle.py"',
            'qmgr -c "set hook mingle enabled=true"',
        )
    )


def _notes(root: str, place: str) -> tuple[str, ...]:
    """Tell of hooks that shadow the classic scripts: pbs_mom then runs none of them."""
    notes = []
    directory = files.below_root(root, f"{place}/hooks")
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        now = files.look_at(f"{directory}/{name}") if name.endswith(".HK") else None
        for event, script in (("execjob_prologue", "prologue"), ("execjob_epilogue", "epilogue")):
            if now and event in now.text and "enabled=false" not in now.text.lower():
                notes.append(f"hook {name[:-3]} has the event {event}: pbs_mom does not run {place}/{script} then")
    return tuple(notes)


TARGET = Target(PBS_HOOKS, plan_pbs, program="pbs_mom", scripts=SCRIPTS, undo=UNDO, trials=pbs_trials)


# Torque, and others whose daemon runs classic scripts of fixed names from one directory of its own.


def classic_target(
    scheduler: str,
    home: str,
    directory: str,
    *,
    program: str,
    version_option: str = "--version",
    suffixes: tuple[str, ...] = ("",),
) -> Target:
    """Return the row of a scheduler that runs a prologue and an epilogue; `.parallel` ones run on the other nodes.

    They lie in a directory of its home, which --pbs-home replaces. No configuration has to name them.
    """
    hooks = []
    for name, template, when in (
        ("prologue", "torque/prologue.sh.j2", "before a job"),
        ("epilogue", "_epilogue.sh.j2", "when a job ends"),
    ):
        for suffix in suffixes:
            where = f"{'the other nodes' if suffix else 'first node'}, root, {when}"
            after = f"prologue{suffix}" if name == "epilogue" else ""
            hooks.append(Hook(scheduler, name + suffix, template, where, after))
    scripts = tuple(hook.name for hook in hooks)

    def plan(site: Site, where: Where) -> Plan:
        """Return what to write below the root. Raises FactsError and PlaceError."""
        root, place = where.root, f"{where.pbs_home or home}/{directory}"
        if not os.path.isdir(files.below_root(root, place)):
            expected = "pbs_mom's own directory"
            raise FactsError(expected, f"no {root}{place}", "--pbs-home DIR, on a node of the cluster")
        old = files.read_manifest(root)
        found = tuple(with_chain(site, root, old, hook, place, scripts) for hook in hooks)
        return join_plans(scheduler, root, old, found, "nothing to add", ())

    return Target(tuple(hooks), plan, program=program, version_option=version_option, scripts=scripts)
