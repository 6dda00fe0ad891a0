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
from mingle_hooks.hooks.files import Chain, Manifest, Site, render_hook, write_hook
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
    by_name,
    join_plans,
    look_at_target,
    plan_file,
)
from mingle_hooks.schedulers.pbs import CONFIGURATION, home, starts_mom

# The program with a fake of the `pbs` module of pbs_python, which runs a hook anywhere.
FAKE_PBS = "templates/hooks/pbs/fake_pbs.py"


def fake_event(text: str) -> dict[str, dict[str, Any]]:
    """Return a recorded event: what `pbs.event()` gave, as `NAME=value` and `env NAME=value` lines."""
    job: dict[str, Any] = dict.fromkeys(("id", "euser", "run_count", "exec_host", "exec_host2", "exec_vnode"))
    environ = {}
    for name, _, value in (line.partition("=") for line in text.splitlines()):
        if name.startswith("env "):
            environ[name[4:]] = value
        elif (attribute := name.removeprefix("job.")) in job and value != "None":
            job[attribute] = int(value) if attribute == "run_count" else value
    return {"job": job, "env": environ}


# OpenPBS' hooks, and trying the one that its own Python runs.

PBS_HOOKS = by_name(
    Hook("pbs", "launch", "pbs/launch.py.j2"),
    Hook("pbs", "prologue", "pbs/prologue.sh.j2"),
    Hook("pbs", "epilogue", "_epilogue.sh.j2", after="prologue"),
)


def pbs_trials(place: str, site: Site) -> Iterator[Trial]:
    """Run the hook for execjob_launch on recorded and on hostile events, with a fake of the module of PBS."""
    write_hook(place, site, PBS_HOOKS["launch"], f"{place}/state")
    for label, event in launch_events():
        argv = launch_argv(place, event)
        started = time.perf_counter()
        done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=TRIAL_S, check=True)
        taken = (time.perf_counter() - started) * 1000
        seen = json.loads(done.stdout)
        shown = tuple(f"{key}={value}" for key, value in seen["added"].items()) or tuple(seen["log"])
        yield Trial("launch", label, 0 if seen["ended"] == ["accept"] else 1, taken, shown)


def launch_argv(place: str, event: Mapping[str, object]) -> list[str]:
    """Return the command that runs the launch hook in a directory with an event."""
    with open(f"{place}/event.json", "w", encoding="utf-8") as text:
        json.dump(event, text)
    # Not the one of a virtual environment, which the user of a hook may be unable to reach.
    return [os.path.realpath(sys.executable), "-c", shipped_text(FAKE_PBS), f"{place}/launch", f"{place}/event.json"]


def launch_events() -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield recorded and hostile events, each with a label."""
    event: dict[str, dict[str, Any]] = {}
    for file in (file for file in shipped_names(ENVIRONMENTS) if file.endswith(".launch")):
        event = fake_event(shipped_text(f"{ENVIRONMENTS}/{file}"))
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
    launch = PBS_HOOKS["launch"]
    found = [plan_file(root, old, launch, f"{PBS_DIRECTORY}/mingle.py", render_hook(launch, site), mode=0o644)]
    if os.path.isdir(files.below_root(root, place)) and starts_mom(files.below_root(root, CONFIGURATION)):
        found += [with_chain(site, root, old, hook, place) for hook in map(PBS_HOOKS.__getitem__, SCRIPTS)]
    return join_plans(
        "pbs", root, old, tuple(found), "commands for the host of the PBS server", _commands(), _notes(root, place)
    )


def with_chain(site: Site, root: str, old: Manifest, hook: Hook, place: str, names: Collection[str] = SCRIPTS) -> File:
    """Return one of a node's classic scripts; it calls the one that the site has already. Raises PlaceError."""
    path = f"{place}/{hook.name}"
    before = look_at_target(root, old, hook, path, names)
    text = render_hook(hook, site, Chain(before.original))
    return plan_file(root, old, hook, path, text, mode=PROGRAM, chain=before.original, present=before)


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
    """Return a note for each hook that shadows a classic script: pbs_mom then does not run the script."""
    notes = []
    directory = files.below_root(root, f"{place}/hooks")
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        now = files.look_at(f"{directory}/{name}") if name.endswith(".HK") else None
        for event, script in ((b"execjob_prologue", "prologue"), (b"execjob_epilogue", "epilogue")):
            if now and event in now.data and b"enabled=false" not in now.data.lower():
                notes.append(
                    f"hook {name[:-3]} has the event {event.decode()}: pbs_mom does not run {place}/{script} then"
                )
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
    hooks = by_name(
        *(Hook(scheduler, f"prologue{suffix}", "torque/prologue.sh.j2") for suffix in suffixes),
        *(Hook(scheduler, f"epilogue{suffix}", "_epilogue.sh.j2", f"prologue{suffix}") for suffix in suffixes),
    )
    scripts = tuple(hooks)

    def plan(site: Site, where: Where) -> Plan:
        """Return what to write below the root. Raises FactsError and PlaceError."""
        root, place = where.root, f"{where.pbs_home or home}/{directory}"
        if not os.path.isdir(files.below_root(root, place)):
            expected = "pbs_mom's own directory"
            raise FactsError(expected, f"no {root}{place}", "--pbs-home DIR, on a node of the cluster")
        old = files.read_manifest(root)
        found = tuple(with_chain(site, root, old, hook, place, scripts) for hook in hooks.values())
        return join_plans(scheduler, root, old, found, "nothing to add", ())

    return Target(hooks, plan, program=program, version_option=version_option, scripts=scripts)
