"""OpenPBS' hooks, and trying the one that its own Python runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from mingle_hooks import shipped
from mingle_hooks.install import standin
from mingle_hooks.install.hook import EVIL, Hook, named
from mingle_hooks.install.text import render
from mingle_hooks.install.trial import PATIENCE_S, Trial

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

    from mingle_hooks.install.site import Site

_ACCEPTS = """case "$("$@")" in *'"ended": ["accept"]'*) ;; *) exit 1 ;; esac"""
HOOKS = (
    Hook("pbs", "launch", "pbs/launch.py.j2", "every task, root, before it; and when a job ends"),
    Hook("pbs", "prologue", "pbs/prologue.sh.j2", "first node, root, before a job"),
    Hook("pbs", "epilogue", "_epilogue.sh.j2", "first node, root, when a job ends", after="prologue"),
)


def trials(place: str, site: Site) -> Iterator[Trial]:
    """Try the hook for execjob_launch with recorded events and hostile ones, by a stand-in for PBS' own Python."""
    _write(place, site, f"{place}/state")
    for label, event in _events():
        argv = _command(place, event)
        started = time.perf_counter()
        done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        taken = (time.perf_counter() - started) * 1000
        seen = json.loads(done.stdout)
        said = tuple(f"{key}={value}" for key, value in seen["added"].items()) or tuple(seen["log"])
        yield Trial("launch", label, 0 if seen["ended"] == ["accept"] else 1, taken, said)


def command(place: str, site: Site, state: str, spoilt: Callable[[str], str], chosen: random.Random) -> list[str]:
    """Return a command that runs the hook with an event that is spoilt here and there; it fails unless that accepts."""
    _write(place, site, state)
    _, event = chosen.choice(list(_events()))
    for part in event.values():
        part |= {name: spoilt(value) for name, value in part.items() if isinstance(value, str)}
    kind = chosen.choice(("execjob_launch", "execjob_end"))
    return ["/bin/sh", "-c", _ACCEPTS, "sh", *_command(place, {**event, "type": kind})]


def _write(place: str, site: Site, state: str) -> None:
    hook = render(named(HOOKS, "launch"), site, state_directory=state, kill_switch=f"{place}/disabled")
    with open(f"{place}/mingle.py", "w", encoding="utf-8") as text:
        text.write(hook)


def _command(place: str, event: Mapping[str, object]) -> list[str]:
    with open(f"{place}/event.json", "w", encoding="utf-8") as text:
        json.dump(event, text)
    # Not the one of a virtual environment, which may lie where simulate --runs puts another file system.
    return [os.path.realpath(sys.executable), "-c", standin.PROGRAM, f"{place}/mingle.py", f"{place}/event.json"]


def _events() -> Iterator[tuple[str, dict[str, dict[str, object]]]]:
    event: dict[str, dict[str, object]] = {}
    for file in (file for file in shipped.names(shipped.ENVIRONMENTS) if file.endswith(".launch")):
        event = standin.event(shipped.text(f"{shipped.ENVIRONMENTS}/{file}"))
        yield file.removesuffix(".launch"), dict(event)
    for label, job, environ in (
        ("a hostile job id", {"id": "../../etc;" + EVIL}, {}),
        ("hostile hosts", {"exec_host2": EVIL}, {}),
        ("a hostile node number", {}, {"PBS_NODENUM": EVIL}),
        ("hostile texts", {}, {"MASTER_ADDR": EVIL, "MINGLE_EXPORTS": EVIL}),
    ):
        yield label, {"job": {**event["job"], **job}, "env": {**event["env"], **environ}}
