"""Trying the hooks out: each as its scheduler would run it, with recorded environments and hostile ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks import shipped
from mingle_hooks.install import standin
from mingle_hooks.install.hook import hook
from mingle_hooks.install.site import STATE_DIRECTORY
from mingle_hooks.install.text import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mingle_hooks.install.site import Site

# Recorded on real clusters.
_ENVIRONMENTS = "templates/hooks/environments"
# The hooks bound themselves at 12 s; this is for a machine that is itself in trouble.
_PATIENCE_S = 30.0
_EVIL = "$(touch /tmp/mingle-simulate-owned);`id`'\"\nexport LD_PRELOAD=/tmp/evil.so\n\x1b[2J"
# What a user, or another scheduler's leftovers, can put there.
_HOSTILE = {
    "no variables at all": None,
    "a hostile job id": {"SLURM_JOB_ID": "7/../../etc;" + _EVIL},
    "hostile host lists": {
        "SLURM_JOB_NODELIST": _EVIL,
        "SLURM_STEP_NODELIST": "n[1-$(id)]",
        "SLURM_NODELIST": _EVIL,
    },
    "hostile numbers": {
        "SLURM_PROCID": "a[$(id)]",
        "SLURM_NODEID": "08",
        "SLURM_JOB_UID": "-1",
        "SLURM_NNODES": _EVIL,
    },
    "hostile texts": {
        "SLURM_JOB_COMMENT": _EVIL,
        "SLURM_JOB_NAME": _EVIL,
        "MASTER_ADDR": _EVIL,
        "IFS": "0123456789",
    },
}

_CLASSIC = (
    ("a job", "12.server", "nobody"),
    ("a job of an array", "12[3].server", "nobody"),
    ("a hostile job id", "../../etc;" + _EVIL, "nobody"),
    ("a hostile user", "12.server", _EVIL),
)
_SCRIPTS = {
    "slurm": ("prolog", "taskprolog", "epilog"),
    "pbs": ("prologue", "epilogue"),
    "torque": ("prologue", "prologue.parallel", "epilogue", "epilogue.parallel"),
}

# What runs at the start of a job whose end a script is for.
_BEFORE = {"epilog": "prolog", "epilogue": "prologue", "epilogue.parallel": "prologue.parallel"}


class Trial(NamedTuple):
    """One run of one hook."""

    hook: str
    environment: str
    status: int
    milliseconds: float
    said: tuple[str, ...]  # what the job would get, line by line, or what the hook put into its directory


def simulate(scheduler: str, site: Site) -> Iterator[Trial]:
    """Run the hooks in a directory that is removed afterwards; nothing of this machine is changed.

    Root's hooks do all of their work only when root runs this. They write to this machine's system log.
    """
    with tempfile.TemporaryDirectory(prefix="mingle-simulate.") as place:
        os.chmod(place, 0o755)  # noqa: S103 -- as it will be installed
        if scheduler == "pbs":
            yield from _launches(place, site)
        for name in _SCRIPTS[scheduler]:
            yield from _script(place, site, scheduler, name)


def _script(place: str, site: Site, scheduler: str, name: str) -> Iterator[Trial]:
    """Try one script: each time a job's start begins with nothing, and its end with what a start has made."""
    script, state = _written(place, site, scheduler, name), f"{place}/state"
    start = _BEFORE.get(name)
    before = _written(place, site, scheduler, start) if start else ""
    for label, arguments, environ in _environments(scheduler, name):
        if os.path.isdir(state):
            shutil.rmtree(state)
        if start:
            # The same job's start; where that makes nothing, another's, which must then stay.
            for _, others, variables in ((label, arguments, environ), next(_environments(scheduler, start))):
                if not os.path.isdir(state):
                    _ended([before, *others], variables)
        started = time.perf_counter()
        done = _ended([script, *arguments], environ)
        taken = (time.perf_counter() - started) * 1000
        said = tuple(done.stdout.splitlines()) if name == "taskprolog" else _made(state)
        yield Trial(name, label, done.returncode, taken, said)


def _written(place: str, site: Site, scheduler: str, name: str) -> str:
    path = f"{place}/{name}"
    found = hook(scheduler, name)
    text = render(found, site, state_directory=f"{place}/state", kill_switch=f"{place}/disabled")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)  # noqa: S103 -- as it will be installed
    return path


def _ended(argv: list[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 -- own texts, no shell in between
        argv, env=environ, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd="/",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _environments(scheduler: str, name: str) -> Iterator[tuple[str, tuple[str, ...], Mapping[str, str]]]:
    """Yield a label, arguments and an environment for each trial."""
    if scheduler != "slurm":  # the classic scripts have arguments and no variables
        for label, job, user in _CLASSIC:
            yield label, (job, user, "nogroup"), {}
        return
    last: dict[str, str] = {}
    for file in shipped.names(_ENVIRONMENTS):
        label, _, kind = file.rpartition(".")
        if kind == name:
            lines = shipped.text(f"{_ENVIRONMENTS}/{file}").splitlines()
            last = dict(line.partition("=")[::2] for line in lines)
            yield label, (), last
    for label, spoilt in _HOSTILE.items():
        yield label, (), {} if spoilt is None else {**last, **spoilt}


def _made(state: str) -> tuple[str, ...]:
    """Return what is in the hooks' directory, with owners and modes."""
    found = []
    for directory, _, names in os.walk(state):
        for path in [directory, *(f"{directory}/{name}" for name in names)]:
            status = os.lstat(path)
            shown = STATE_DIRECTORY + path.removeprefix(state)
            found.append(f"{shown} uid {status.st_uid} mode {status.st_mode & 0o7777:04o}")
    return tuple(sorted(found))


def _launches(place: str, site: Site) -> Iterator[Trial]:
    for name, file in (("launch", "mingle.py"), ("config", "mingle.json")):
        with open(f"{place}/{file}", "w", encoding="utf-8") as text:
            found = hook("pbs", name)
            text.write(render(found, site, state_directory=f"{place}/state", kill_switch=f"{place}/disabled"))
    for label, event in _events():
        with open(f"{place}/event.json", "w", encoding="utf-8") as text:
            json.dump({"config": f"{place}/mingle.json", **event}, text)
        started = time.perf_counter()
        argv = [sys.executable, "-c", standin.PROGRAM, f"{place}/mingle.py", f"{place}/event.json"]
        done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)  # noqa: S603 -- own texts, no shell in between
        taken = (time.perf_counter() - started) * 1000
        seen = json.loads(done.stdout)
        said = tuple(f"{key}={value}" for key, value in seen["added"].items()) or tuple(seen["log"])
        yield Trial("launch", label, 0 if seen["ended"] == ["accept"] else 1, taken, said)


def _events() -> Iterator[tuple[str, dict[str, object]]]:
    event: dict[str, dict[str, object]] = {}
    for file in (file for file in shipped.names(_ENVIRONMENTS) if file.endswith(".launch")):
        event = standin.event(shipped.text(f"{_ENVIRONMENTS}/{file}"))
        yield file.removesuffix(".launch"), dict(event)
    for label, job, environ in (
        ("a hostile job id", {"id": "../../etc;" + _EVIL}, {}),
        ("hostile hosts", {"exec_host2": _EVIL}, {}),
        ("a hostile node number", {}, {"PBS_NODENUM": _EVIL}),
        ("hostile texts", {}, {"MASTER_ADDR": _EVIL, "MINGLE_EXPORTS": _EVIL}),
    ):
        yield label, {"job": {**event["job"], **job}, "env": {**event["env"], **environ}}
