"""Trying the hooks out: each as its scheduler would run it, with recorded environments and hostile ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from mingle_hooks.install.hook import Hook, named
from mingle_hooks.install.targets import target
from mingle_hooks.install.text import render
from mingle_hooks.install.trial import PATIENCE_S, Trial
from mingle_hooks.runtime import RUN_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mingle_hooks.install.hook import Target
    from mingle_hooks.install.site import Site

INSTALLED = 0o755  # the mode of a hook, and of what is above it


def simulate(scheduler: str, site: Site) -> Iterator[Trial]:
    """Run the hooks in a directory that is removed afterwards; nothing of this machine is changed.

    Root's hooks do all of their work only when root runs this. They write to this machine's system log.
    Raises UsageError.
    """
    with tempfile.TemporaryDirectory(prefix="mingle-simulate.") as place:
        os.chmod(place, INSTALLED)
        its = target(scheduler)
        try:
            yield from its.trials(place, site)
            for name in its.scripts:
                yield from _script(place, site, its, named(its.hooks, name))
        finally:
            _clear(f"{place}/state")


def _script(place: str, site: Site, its: Target, hook: Hook) -> Iterator[Trial]:
    """Try one script: each time a job's start begins with nothing, and its end with what a start has made."""
    state = f"{place}/state"
    script = written(place, site, hook, state)
    before = written(place, site, named(its.hooks, hook.after), state) if hook.after else ""
    for label, arguments, environ in its.runs(hook.name):
        _clear(state)
        if hook.after:
            # The same job's start; where that makes nothing, another's, which must then stay.
            for _, others, variables in ((label, arguments, environ), next(its.runs(hook.after))):
                if not os.path.isdir(state):
                    _ended([before, *others], variables)
        started = time.perf_counter()
        done = _ended([script, *arguments], environ)
        taken = (time.perf_counter() - started) * 1000
        said = tuple(done.stdout.splitlines()) if hook.is_users else _made(state)
        yield Trial(hook.name, label, done.returncode, taken, said)


def written(place: str, site: Site, hook: Hook, state: str) -> str:
    """Write a hook into a directory, as it would be installed; return its path."""
    path = f"{place}/{hook.name}"
    text = render(hook, site, state_directory=state, kill_switch=f"{place}/disabled")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, INSTALLED)
    return path


def _ended(argv: list[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd="/",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _clear(state: str) -> None:
    """Remove the hooks' directory, and what they mounted there."""
    if not os.path.isdir(state):
        return
    for name in os.listdir(state):
        if os.path.ismount(path := f"{state}/{name}"):
            subprocess.run(["/bin/umount", "-l", path], check=True)
    shutil.rmtree(state)


def _made(state: str) -> tuple[str, ...]:
    """Return what is in the hooks' directory, with owners and modes."""
    found = []
    for directory, _, names in os.walk(state):
        for path in [directory, *(f"{directory}/{name}" for name in names)]:
            status = os.lstat(path)
            shown = RUN_ROOT + path.removeprefix(state)
            found.append(f"{shown} uid {status.st_uid} mode {status.st_mode & 0o7777:04o}")
    return tuple(sorted(found))
