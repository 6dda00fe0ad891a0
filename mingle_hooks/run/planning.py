"""From the job, the settings and the options of one call to what a run needs to know."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from mingle_hooks import keys, values
from mingle_hooks.errors import FactsError, SecretError, UsageError
from mingle_hooks.export import launchers
from mingle_hooks.export.variables import own
from mingle_hooks.net.addresses import hostname
from mingle_hooks.net.ports import DEFAULT_RANGE
from mingle_hooks.run import starters
from mingle_hooks.run.events import Plan
from mingle_hooks.run.starters import Allocation, Starter
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import MOST_NODES, JobFacts
from mingle_hooks.settings import Settings, load

# What one `mingle run` was asked for.


class Agreed(NamedTuple):
    """What all hosts work out alike, where they are started by somebody else: the run's id, key and possible ports."""

    run: str
    key: bytes
    ports: tuple[int, ...]


class Request(NamedTuple):
    """The plan, and all that the state machine needs not know."""

    plan: Plan
    starter: Starter
    job: Allocation
    command: tuple[str, ...]
    options: tuple[str, ...]  # for `mingle exec`
    is_per_task: bool
    silence_s: float
    key: str | None  # of the members, where they would not find one by themselves
    is_labelled: bool
    is_quiet: bool
    log_dir: str | None
    progress: str | None  # a file that changes as the program gets further
    again: str | None = None  # a line for sh
    is_of_job: bool = False  # COMMAND, such as mpirun, is started once, here, and reaches the hosts by itself
    port_range: range = DEFAULT_RANGE  # where supervisors reach the runner
    iface: tuple[object, ...] = ()  # networks to be reached by, the preferred first
    id: str | None = None  # of the job, or of the world where a person named it
    agreed: Agreed | None = None
    keys: tuple[bytes, ...] = ()  # of those who may ask how it does, and end it


MOST_RESTARTS = 1000
_WARNINGS = ("USR1", "USR2", "HUP", "INT", "TERM", "QUIT")


class Options(NamedTuple):
    """The options that only `mingle run` has, as they were typed."""

    hosts: str | None = None
    nodes: str | None = None
    spares: str | None = None
    restarts: str | None = None
    window: str | None = None
    grace: str | None = None
    silence: str | None = None
    stall: str | None = None
    limit: str | None = None
    warn: str | None = None
    warn_signal: str = "USR1"
    progress: str | None = None
    log_dir: str | None = None
    again: str | None = None
    start_option: tuple[str, ...] = ()
    no_label: bool = False


def plan_request(
    command: tuple[str, ...], options: Options, settings: Mapping[str, object], words: tuple[str, ...]
) -> Request:
    """Return what this call asks for; `words` are the options of `mingle exec`. Raises UsageError and FactsError."""
    users = own(os.environ)
    loaded = load(users, settings)
    facts = facts_of(users, loaded, options.hosts)
    is_per_task = loaded.scope == "task"
    launcher, end = (None if "--verbatim" in words else launchers.find(command)) or (None, 0)
    is_of_job = launcher is not None and launcher.starts == "job"
    _check_alone(command, options, loaded, facts)
    if launcher is not None and is_of_job and not loaded.alone:
        launchers.check_processes(launcher.name, command[end:], facts.nodes)
    starter, job = (
        _here() if is_of_job or loaded.alone else plan_hosts(facts, users, options.hosts, is_per_task=is_per_task)
    )
    if options.start_option:
        job = starters.with_options(starter, job, options.start_option)
    least, most = _counts(options, len(job.hosts))
    needs_key = "MINGLE_KEY" not in users and loaded.key_file is None and not loaded.insecure
    key = keys.fresh() if needs_key else None
    return Request(
        plan=_plan(options, loaded, starter, job, least, most),
        starter=starter,
        job=job,
        command=command,
        options=(*words, "--verbatim") if is_of_job else words,
        is_per_task=is_per_task,
        silence_s=option_seconds(options.silence, "--silence", 15.0),
        key=key,
        id=loaded.id or facts.job_id,
        keys=options_text(facts, loaded, users, key),
        is_labelled=not options.no_label,
        is_quiet=loaded.quiet,
        log_dir=options.log_dir,
        progress=options.progress,
        again=options.again,
        is_of_job=is_of_job,
        iface=loaded.iface,
        port_range=loaded.port_range,
    )


def _check_alone(command: tuple[str, ...], options: Options, loaded: Settings, facts: JobFacts) -> None:
    """Refuse, with the line that works, to train on this host alone where nobody has asked for that."""
    if loaded.alone:
        if options.hosts or options.nodes not in (None, "1") or options.spares:
            raise UsageError("only this host with --alone", "--hosts, --nodes or --spares", "one of the two")
        return
    if facts.scheduler == "none" and not (options.hosts or options.nodes or os.environ.get("MINGLE_RUN")):
        raise UsageError("a job, or hosts, to train on", "no job here", launchers.anywhere(command, os.environ))


def facts_of(environ: Mapping[str, str], loaded: Settings, hosts: str | None) -> JobFacts:
    """Return what the scheduler says of the whole job, also where this is a command of a run. Raises FactsError.

    Packages that add schedulers are asked where nobody says the hosts or the world's id, as `mingle env` asks them.
    """
    outside = {name: value for name, value in environ.items() if name != "MINGLE_RUN"}
    return detect(outside, socket.gethostname(), asks_plugins=hosts is None and loaded.id is None)


def options_text(facts: JobFacts, loaded: Settings, environ: Mapping[str, str], key: str | None) -> tuple[bytes, ...]:
    """Return the keys that the user can ask with: the user's own; where there is one, also this run's, for COMMAND."""
    try:
        held = tuple(its.material for its in keys.held(facts, loaded, environ, is_new=True))
    except SecretError:  # who asks is told
        return ()
    return (*held, key.encode()) if held and key is not None else held


def plan_hosts(
    facts: JobFacts, environ: Mapping[str, str], hosts: str | None, *, is_per_task: bool = False
) -> tuple[Starter, Allocation]:
    """Return what starts supervisors, and where; without a job and hosts, this host alone.

    Raises FactsError and UsageError.
    """
    if hosts is None and (starters.is_alone(facts) or os.environ.get("MINGLE_RUN")):
        inside = detect(os.environ, socket.gethostname())
        if inside.nodes is not None and inside.nodes > 1:
            raise FactsError(
                "the job's script, or --hosts",
                f"a command of a run on {inside.nodes} nodes",
                "`mingle exec COMMAND` in its place",
            )
        return _here()
    starter = starters.find(facts, environ, hosts)
    return starter, starters.allocation(facts, environ, hosts, is_per_task=is_per_task)


def _here() -> tuple[Starter, Allocation]:
    """Return what starts one supervisor on this host."""
    name = hostname()
    return starters.TABLE[0], Allocation("local", (name,), (1,), own=name)


def _counts(options: Options, hosts: int) -> tuple[int, int]:
    """Return how many hosts an attempt needs, and takes at most. Raises UsageError."""
    spares = 0 if options.spares is None else _whole(options.spares, "--spares", 0, MOST_NODES)
    text = options.nodes or os.environ.get("MINGLE_NODES") or ""
    least, colon, most = text.partition(":")
    there = max(hosts - spares, 0)
    high = _whole(most if colon else least, "--nodes", 1, MOST_NODES) if text else there
    low = _whole(least, "--nodes", 1, MOST_NODES) if text else there
    if not 1 <= low <= high or low > there:
        seen = f"{hosts} of them" + (f", {spares} of these spares" if spares else "")
        wanted = f"{low} hosts that train" if low else "a host that trains"
        raise UsageError(wanted, seen, "a smaller --nodes or --spares, or more hosts")
    if high == 1 < there:
        source = "--nodes" if options.nodes else "MINGLE_NODES"
        without = "no --nodes" if options.nodes else "unset MINGLE_NODES"
        remedy = f"{without}, --spares {hosts - 1}, or --alone to train on this host only"
        raise UsageError(f"a run on all {hosts} hosts", f"1 ({source})", remedy)
    return low, min(high, there)


def _plan(options: Options, loaded: Settings, starter: Starter, job: Allocation, least: int, most: int) -> Plan:
    limit = None if options.limit is None else option_seconds(options.limit, "--limit", 0.0)
    warn = None if options.warn is None else option_seconds(options.warn, "--warn", 0.0)
    if limit is None and warn is not None:
        if job.end is None:
            raise UsageError("a time limit to warn about", "none from the scheduler", "--limit 4h")
        limit = job.end - time.time()
    name = options.warn_signal.upper().removeprefix("SIG")
    if name not in _WARNINGS:
        raise UsageError(f"a signal out of {', '.join(_WARNINGS)}", options.warn_signal, "--warn-signal USR1")
    return Plan(
        hosts=job.hosts,
        slots=tuple(job.supervisors(host) for host in job.hosts),
        least=least,
        most=most,
        restarts=0 if options.restarts is None else _whole(options.restarts, "--restarts", 0, MOST_RESTARTS),
        grace_s=option_seconds(options.grace, "--grace", job.grace_s),
        join_s=loaded.timeout,
        window_s=option_seconds(options.window, "--window", 30.0),
        warn_at_s=None if limit is None or warn is None else max(limit - warn, 0.0),
        limit_at_s=limit,
        stall_s=None if options.stall is None else option_seconds(options.stall, "--stall", 0.0),
        warn_signal=int(getattr(signal, f"SIG{name}")),
        signals_reach_command=starter.signals_reach_command,
    )


def option_seconds(text: str | None, option: str, default: float) -> float:
    """Return what an option says as a time, in seconds. Raises UsageError, which names the option."""
    try:
        return default if text is None else values.seconds(text)
    except UsageError as wrong:
        raise UsageError(wrong.expected, f"{wrong.seen} ({option})", wrong.remedy) from None


def _whole(text: str, option: str, least: int, most: int) -> int:
    try:
        return values.whole(text, least=least, most=most)
    except UsageError as wrong:
        raise UsageError(wrong.expected, f"{wrong.seen} ({option})", wrong.remedy) from None
