"""Many runs of the hooks with whatever can go wrong, by chance: the same seed, the same runs."""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

from mingle_hooks.install import apart, pbslaunch
from mingle_hooks.install.hook import EVIL, named
from mingle_hooks.install.simulate import INSTALLED, written
from mingle_hooks.install.targets import target
from mingle_hooks.install.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mingle_hooks.install.hook import Target
    from mingle_hooks.install.site import Site

MOST_MS = 6000.0  # the longest that a hook may take
# A program that hangs costs seconds. Where `timeout` itself hangs, nothing is left to bound anything.
_HANGS, _UNBOUNDED = 0.001, "timeout"
_BROKEN, _CHANGED, _AFTER = 0.06, 0.2, 0.8  # of programs, of values, of ends that follow a start
_VALUES = (
    *("", "0", "-1", "08", "1e9", "9" * 30, "a[$(id)]", "../..", "*", " ", "\n", "-rf", "--", "\x7f\x01", EVIL),
    "x" * 70_000,
)
_NAMES = (  # but OPTIND: dash ends at once, with 2, where that is no number
    *("PATH", "IFS", "ENV", "BASH_ENV", "HOME", "PWD", "CDPATH", "TMPDIR", "LC_ALL", "POSIXLY_CORRECT"),
    *("job", "uid", "place", "key", "note", "old", "stamp", "start", "result", "line", "lines", "name", "cluster"),
    *("SLURM_HET_JOB_ID", "SLURM_JOB_START_TIME", "SLURM_JOB_COMMENT", "MINGLE_EXPORTS", "MINGLE_HOOKS"),
)


def storm(scheduler: str, site: Site, runs: int, seed: int) -> Iterator[Trial]:
    """Run the hooks that many times; a trial's `said` is what it wrote outside of the hooks' own directory.

    Raises FactsError, and UsageError.
    """
    chosen = random.Random(seed)  # noqa: S311 - a run is to be had again
    with tempfile.TemporaryDirectory(prefix="mingle-simulate.") as place:
        os.chmod(place, INSTALLED)
        apart.prepare(place)
        site = replace(site, key_file=f"{place}/key")
        with open(site.key_file, "w", encoding="ascii") as file:
            file.write("ab" * 32 + "\n")
        os.chmod(site.key_file, 0o400)
        for _ in range(runs):
            yield _run(place, site, target(scheduler), chosen)


def _run(place: str, site: Site, its: Target, chosen: random.Random) -> Trial:
    programs = [hook.name for hook in its.hooks if hook in pbslaunch.HOOKS[:1]]
    name = chosen.choice([*its.scripts, *programs])
    before: list[str] = []
    if name in programs:
        argv = pbslaunch.command(place, site, f"{place}/run/state", lambda text: _spoilt(text, chosen), chosen)
    else:
        hook = named(its.hooks, name)
        _, arguments, environ = chosen.choice(list(its.runs(name)))
        if hook.after and chosen.random() < _AFTER:
            start = written(place, site, named(its.hooks, hook.after), f"{place}/run/state")
            before = _command(environ, start, *arguments)
        changed = {each: _spoilt(value, chosen) for each, value in environ.items()}
        changed |= {each: chosen.choice(_VALUES) for each in chosen.sample(_NAMES, chosen.randrange(4))}
        script = written(place, site, hook, f"{place}/run/state")
        argv = _command(changed, script, *(_spoilt(word, chosen) for word in arguments))
    faults = apart.Faults(chosen.choice(list(apart.PLACES)), _broken(chosen))
    found = apart.ended(place, before, argv, faults)
    label = ", ".join((faults.place, *(f"{tool} {how}" for tool, how in faults.tools.items())))
    return Trial(name, label, *found)


def _broken(chosen: random.Random) -> dict[str, str]:
    found = {}
    for tool in apart.TOOLS:
        if chosen.random() < _HANGS and tool != _UNBOUNDED:
            found[tool] = "hangs"
        elif chosen.random() < _BROKEN:
            found[tool] = chosen.choice(("is missing", "fails"))
    return found


def _spoilt(text: str, chosen: random.Random) -> str:
    return chosen.choice(_VALUES) if chosen.random() < _CHANGED else text


def _command(environ: Mapping[str, str], *argv: str) -> list[str]:
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environ.items()), *argv]
