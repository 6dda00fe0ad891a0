"""Where OpenPBS' hooks go, and the qmgr commands that bring them in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.install import files, manifest
from mingle_hooks.install.hook import Target, named
from mingle_hooks.install.keeping import stands
from mingle_hooks.install.pbslaunch import HOOKS, trials
from mingle_hooks.install.plan import File, Line, Plan, planned, together
from mingle_hooks.install.text import Chain, render
from mingle_hooks.schedulers.pbs import CONFIGURATION, home

if TYPE_CHECKING:
    from collections.abc import Collection

    from mingle_hooks.install.hook import Hook, Where
    from mingle_hooks.install.manifest import Manifest
    from mingle_hooks.install.site import Site

DIRECTORY = f"{manifest.DIRECTORY}/pbs"
_BACKUP = f"{manifest.DIRECTORY}/qmgr-hooks.before"
# Disabled first: a hook that is deleted while tasks start is a race that the tasks can lose.
UNDO = ('qmgr -c "set hook mingle enabled=false"', 'qmgr -c "delete hook mingle"')
SCRIPTS = ("prologue", "epilogue")
PROGRAM = 0o700  # pbs_mom refuses a prologue that others may write


def plan(site: Site, where: Where) -> Plan:
    """Return what to write below the root, and the commands for the server's host. Raises FactsError and PlaceError."""
    root = where.root
    old = manifest.read(root)
    place = f"{where.pbs_home or home(files.at(root, CONFIGURATION))}/mom_priv"
    launch = named(HOOKS, "launch")
    found = [planned(root, old, launch, f"{DIRECTORY}/mingle.py", render(launch, site), mode=0o644)]
    if os.path.isdir(files.at(root, place)):
        found += [with_chain(site, root, old, hook, place) for hook in HOOKS if hook.name in SCRIPTS]
    return together(
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
    its = stands(root, old, hook, path, names)
    text = render(hook, site, Chain(its.kept))
    return planned(root, old, hook, path, text, mode=PROGRAM, chain=its.kept, standing=its)


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
            f'qmgr -c "import hook mingle application/x-python default {DIRECTORY}/mingle.py"',
            'qmgr -c "set hook mingle enabled=true"',
        )
    )


def _notes(root: str, place: str) -> tuple[str, ...]:
    """Tell of hooks that shadow the classic scripts: pbs_mom then runs none of them."""
    notes = []
    directory = files.at(root, f"{place}/hooks")
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        now = files.look(f"{directory}/{name}") if name.endswith(".HK") else None
        for event, script in (("execjob_prologue", "prologue"), ("execjob_epilogue", "epilogue")):
            if now and event in now.text and "enabled=false" not in now.text.lower():
                notes.append(f"hook {name[:-3]} has the event {event}: pbs_mom does not run {place}/{script} then")
    return tuple(notes)


TARGET = Target(HOOKS, plan, program="pbs_mom", scripts=SCRIPTS, undo=UNDO, trials=trials)
