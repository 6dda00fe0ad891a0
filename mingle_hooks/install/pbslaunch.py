"""OpenPBS' hooks, and trying the one that its own Python runs."""

from __future__ import annotations

import json
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
    from collections.abc import Iterator

    from mingle_hooks.install.site import Site

HOOKS = (
    Hook("pbs", "launch", "pbs/launch.py.j2", "every task, root, before it; and when a job ends"),
    Hook("pbs", "prologue", "pbs/prologue.sh.j2", "first node, root, before a job"),
    Hook("pbs", "epilogue", "_epilogue.sh.j2", "first node, root, when a job ends", after="prologue"),
)


def trials(place: str, site: Site) -> Iterator[Trial]:
    """Try the hook for execjob_launch with recorded events and hostile ones, by a stand-in for PBS' own Python."""
    hook = render(named(HOOKS, "launch"), site, state_directory=f"{place}/state", kill_switch=f"{place}/disabled")
    with open(f"{place}/mingle.py", "w", encoding="utf-8") as text:
        text.write(hook)
    for label, event in _events():
        with open(f"{place}/event.json", "w", encoding="utf-8") as text:
            json.dump(event, text)
        started = time.perf_counter()
        argv = [sys.executable, "-c", standin.PROGRAM, f"{place}/mingle.py", f"{place}/event.json"]
        done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        taken = (time.perf_counter() - started) * 1000
        seen = json.loads(done.stdout)
        said = tuple(f"{key}={value}" for key, value in seen["added"].items()) or tuple(seen["log"])
        yield Trial("launch", label, 0 if seen["ended"] == ["accept"] else 1, taken, said)


def _events() -> Iterator[tuple[str, dict[str, object]]]:
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
