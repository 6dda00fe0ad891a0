"""What a scheduler's hooks are: the files, and all that installing, checking and trying them out asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mingle_hooks.install.health import Finding
    from mingle_hooks.install.manifest import Entry
    from mingle_hooks.install.plan import Plan
    from mingle_hooks.install.site import Site
    from mingle_hooks.install.trial import Trial

    Run = tuple[str, tuple[str, ...], Mapping[str, str]]  # a label, the hook's arguments, its environment

# What pbs_mom gives a classic prologue and epilogue beside the job and the user, and what a hostile user could be.
EVIL = "$(touch /tmp/mingle-simulate-owned);`id`'\"\nexport LD_PRELOAD=/tmp/evil.so\n\x1b[2J"
_CLASSIC = (
    ("a job", "12.server", "nobody"),
    ("a job of an array", "12[3].server", "nobody"),
    ("a hostile job id", "../../etc;" + EVIL, "nobody"),
    ("a hostile user", "12.server", EVIL),
)


class Hook(NamedTuple):
    """One file of one scheduler."""

    scheduler: str
    name: str
    template: str
    runs: str  # when, where and as whom, for people
    after: str = ""  # the hook that ran at the start of the job whose end this one is for
    is_users: bool = False  # the job's user runs it, and what it prints is for the job


class Where(NamedTuple):
    """Where to look and to write."""

    root: str = ""
    slurm_conf: str | None = None
    slurm_version: tuple[int, int] | None = None
    pbs_home: str | None = None
    is_shown: bool = False  # nothing will be written, so what is in doubt may stay so


def classic(_name: str) -> Iterator[Run]:
    """Yield how a prologue or epilogue of pbs_mom's kind is run, by good and by hostile users."""
    for label, job, user in _CLASSIC:
        yield label, (job, user, "nogroup"), {}


def _nothing(*_: object) -> tuple[()]:
    return ()


def _none(*_: object) -> dict[str, str]:
    return {}


class Target(NamedTuple):
    """A scheduler that hooks can be installed for: TARGET of its module.

    `program` is its daemon, which says by `version_option` which one it is; without it the scheduler is not on this
    host. `plan` tells what to write, `findings` what is wrong beyond those files, `refuse` raises ConflictError while
    the scheduler still runs what is to be removed, `stubs` are texts that must stay there all the same, by their paths,
    and `undo` are commands that end that. To try the hooks out,
    `scripts` are run in their order, each as `runs` says, and `trials` are what else is tried.
    """

    hooks: tuple[Hook, ...]
    plan: Callable[[Site, Where], Plan]
    program: str
    scripts: tuple[str, ...]
    version_option: str = "--version"
    undo: tuple[str, ...] = ()
    runs: Callable[[str], Iterator[Run]] = classic
    trials: Callable[[str, Site], Iterable[Trial]] = _nothing
    findings: Callable[[Plan, Where], Iterable[Finding]] = _nothing
    refuse: Callable[[Where, tuple[Entry, ...]], object] = _nothing
    stubs: Callable[[Where, tuple[Entry, ...]], Mapping[str, str]] = _none


def named(found: Iterable[Hook], name: str) -> Hook:
    """Return the hook of that name. Raises UsageError."""
    hooks = {hook.name: hook for hook in found}
    if name not in hooks:
        scheduler = next(iter(hooks.values())).scheduler
        near = f"mingle hooks render {scheduler} {nearest(name, hooks)}"
        raise UsageError(f"one of {', '.join(hooks)}", repr(name), near)
    return hooks[name]
