"""The schedulers that hooks can be installed for: the table; PBS' and Torque's hooks, and where they go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from typing import Any

from mingle_hooks.errors import FactsError, UsageError
from mingle_hooks.files import shipped_text
from mingle_hooks.hooks import files, plan as plans, slurm
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.plan import EVIL, TRIAL_S, Draft, Hook, Line, Plan, Target, Trial, Where, by_name
from mingle_hooks.schedulers.pbs import CONFIGURATION, home, starts_mom
from mingle_hooks.values import nearest

# The program that runs a hook on any host, with a fake of pbs_python's `pbs` module.
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
_PBS_SCRIPTS = ("prologue", "epilogue")


def pbs_trials(place: str) -> Iterator[Trial]:
    """Run the hook for execjob_launch on recorded and on hostile events, with a fake of the module of PBS."""
    # Not the Python of a virtual environment, which the user of a hook may be unable to reach.
    argv = [os.path.realpath(sys.executable), "-c", shipped_text(FAKE_PBS), f"{place}/launch", f"{place}/event.json"]
    recorded = [(label, fake_event(text)) for label, text in plans.recorded("launch")]
    _, last = recorded[-1]
    hostile = [
        ("a hostile job id", last | {"job": last["job"] | {"id": "../../etc;" + EVIL}}),
        ("hostile hosts", last | {"job": last["job"] | {"exec_host2": EVIL}}),
        ("a hostile node number", last | {"env": last["env"] | {"PBS_NODENUM": EVIL}}),
        ("hostile texts", last | {"env": last["env"] | {"MASTER_ADDR": EVIL, "MINGLE_EXPORTS": EVIL}}),
    ]
    for label, event in recorded + hostile:
        with open(argv[-1], "w", encoding="utf-8") as text:
            json.dump(event, text)
        started = time.perf_counter()
        done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=TRIAL_S, check=True)
        taken = (time.perf_counter() - started) * 1000
        seen = json.loads(done.stdout)
        shown = tuple(f"{key}={value}" for key, value in seen["added"].items()) or tuple(seen["log"])
        yield Trial("launch", label, 0 if seen["ended"] == ["accept"] else 1, taken, shown)


PBS_DIRECTORY = f"{files.MANIFEST_DIRECTORY}/pbs"
_BACKUP = f"{files.MANIFEST_DIRECTORY}/qmgr-hooks.before"
# Disabled first: a hook that is deleted while tasks start is a race that the tasks can lose.
UNDO = ('qmgr -c "set hook mingle enabled=false"', 'qmgr -c "delete hook mingle"')


def plan_pbs(site: Site, where: Where) -> Plan:
    """Return what to write below the root, and the commands for the server's host. Raises FactsError and PlaceError."""
    draft, root = Draft(site, where), where.root
    place = f"{where.pbs_home or home(files.below_root(root, CONFIGURATION))}/mom_priv"
    draft.add(PBS_HOOKS["launch"], f"{PBS_DIRECTORY}/mingle.py", mode=0o644)
    if os.path.isdir(files.below_root(root, place)) and starts_mom(files.below_root(root, CONFIGURATION)):
        _add_scripts(draft, [PBS_HOOKS[name] for name in _PBS_SCRIPTS], place)
    draft.lines += _commands()
    draft.notes += _notes(root, place)
    return draft.plan("pbs", "commands for the host of the PBS server")


def _add_scripts(draft: Draft, hooks: Collection[Hook], place: str) -> None:
    """Add a node's classic scripts; each calls the one that the site has already."""
    for hook in hooks:  # pbs_mom refuses a prologue that others may write
        draft.add(hook, f"{place}/{hook.name}", mode=0o700, classic=[each.name for each in hooks])


def _commands() -> Iterator[Line]:
    """Yield the commands in order: the backup comes first; the hook is enabled last.

    Running them again changes nothing: the backup is made only while mingle's own hook does not exist. `print hook`
    exits with 1 if there is no hook; `list hook` always exits with 0, and prints nothing then.
    """
    none = '[ -z "$(qmgr -c "list hook" 2>&1)" ]'
    backup = f'{{ qmgr -c "print hook" > {_BACKUP}.new || {none}; }} && mv {_BACKUP}.new {_BACKUP}'
    yield Line(f'qmgr -c "list hook mingle" >/dev/null 2>&1 || {{ {backup}; }}')
    yield Line('qmgr -c "list hook mingle" >/dev/null 2>&1 || qmgr -c "create hook mingle"')
    for setting in ("enabled=false", "event=execjob_launch", "event+=execjob_end", "alarm=10", "order=900"):
        yield Line(f'qmgr -c "set hook mingle {setting}"')
    yield Line(f'qmgr -c "import hook mingle application/x-python default {PBS_DIRECTORY}/mingle.py"')
    yield Line('qmgr -c "set hook mingle enabled=true"')


def _notes(root: str, place: str) -> Iterator[str]:
    """Yield a note for each hook that shadows a classic script: pbs_mom then does not run the script."""
    for path in files.glob_matches(root, f"{place}/hooks/*.HK"):
        now, name = files.look_at(files.below_root(root, path)), os.path.basename(path).removesuffix(".HK")
        for script in _PBS_SCRIPTS:
            event = f"execjob_{script}"
            if now and event.encode() in now.data and b"enabled=false" not in now.data.lower():
                yield f"hook {name} has the event {event}: pbs_mom does not run {place}/{script} then"


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

    def plan(site: Site, where: Where) -> Plan:
        """Return what to write below the root. Raises FactsError and PlaceError."""
        place = f"{where.pbs_home or home}/{directory}"
        if not where.is_preview and not os.path.isdir(files.below_root(where.root, place)):
            expected = "pbs_mom's own directory"
            raise FactsError(expected, f"no {where.root}{place}", "--pbs-home DIR, on a node of the cluster")
        draft = Draft(site, where)
        _add_scripts(draft, hooks.values(), place)
        return draft.plan(scheduler, "nothing to add")

    return Target(scheduler, hooks, plan, program, tuple(hooks), version_option)


# A new scheduler is a row here.
_TARGETS = (
    slurm.TARGET,
    Target("pbs", PBS_HOOKS, plan_pbs, "pbs_mom", _PBS_SCRIPTS, undo=UNDO, trials=pbs_trials),
    classic_target(
        "torque", "/var/spool/torque", "mom_priv", program="momctl", version_option="-V", suffixes=("", ".parallel")
    ),
)
TARGETS = {target.name: target for target in _TARGETS}


def hook(scheduler: str, name: str) -> Hook:
    """Return one hook. Raises UsageError."""
    hooks = TARGETS[scheduler].hooks
    if name not in hooks:
        near = f"mingle hooks render {scheduler} {nearest(name, hooks)}"
        raise UsageError(f"one of {', '.join(hooks)}", repr(name), near)
    return hooks[name]
