"""The start of a run: what is asked for, its plan, and its agents first, which take the longest.

Also `mingle exec --together`: the members of a world, whoever started them, run COMMAND as one.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

from mingle_hooks import values
from mingle_hooks.errors import FactsError, SecretError, UsageError
from mingle_hooks.export import launchers
from mingle_hooks.export.variables import own
from mingle_hooks.job import check_runner
from mingle_hooks.joining import find_key, fresh_key, held_keys
from mingle_hooks.net.addresses import candidates, hostname
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.member import MemberSpec
from mingle_hooks.rendezvous.messages import View
from mingle_hooks.rendezvous.wire import Secret
from mingle_hooks.run import messages, processes, starters
from mingle_hooks.run.attempt import NEVER, Plan
from mingle_hooks.run.launching import Agreed, Launching
from mingle_hooks.run.starters import Allocation, Starter
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import MOST_NODES, JobFacts
from mingle_hooks.settings import Settings, load, option_arguments

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
    on_event: str | None = None
    again: str | None = None
    start_option: tuple[str, ...] = ()
    no_label: bool = False


class Request(NamedTuple):
    """One run: the plan, and what the state machine need not know."""

    plan: Plan
    starter: Starter
    job: Allocation
    command: tuple[str, ...]
    exec_options: tuple[str, ...]  # for `mingle exec`
    settings: Settings
    options: Options = Options()
    silence: messages.Silence = messages.Silence()
    key: str | None = None  # of the members, if they would not find one by themselves
    is_of_job: bool = False  # COMMAND, such as mpirun, is started once, here, and reaches the hosts by itself
    id: str | None = None  # of the job, or of the world if a person named it
    agreed: Agreed | None = None
    keys: tuple[bytes, ...] = ()  # with which `mingle kill` reaches it


def plan_request(
    command: tuple[str, ...], options: Options, settings: Mapping[str, object], exec_options: tuple[str, ...]
) -> Request:
    """Return what this call asks for; `exec_options` are those of `mingle exec`. Raises UsageError and FactsError."""
    users = own(os.environ)
    loaded = load(users, settings)
    facts = facts_of(users, loaded, options.hosts)
    launcher, end = (None, 0) if "--verbatim" in exec_options else launchers.find(command)
    is_of_job = launcher is not None and launcher.starts == "job"
    _check_alone(command, options, loaded, facts)
    if launcher is not None and is_of_job and not loaded.alone:
        launchers.check_processes(launcher.name, command[end:], facts.nodes)
    if is_of_job or loaded.alone:
        starter, job = _here_in_job(facts, users)
    else:
        starter, job = plan_hosts(facts, users, options.hosts, is_per_task=loaded.scope == "task")
    if options.start_option and not starter.takes_options:
        raise UsageError("a starter that takes options, which is srun", starter.help, "leaving --start-option out")
    job = job._replace(options=options.start_option)
    if options.warn is not None and options.limit is None and job.end is None:
        job = job._replace(end=starter.asked_end(job))
    needs_key = "MINGLE_KEY" not in users and loaded.key_file is None and not loaded.insecure
    key = fresh_key() if needs_key else None
    return Request(
        plan=_plan(_of_job(options, facts.nodes or 1) if is_of_job else options, loaded, starter, job),
        starter=starter,
        job=job,
        command=command,
        exec_options=(*exec_options, "--verbatim") if is_of_job else exec_options,
        settings=loaded,
        options=options,
        silence=_silence(options.silence),
        key=key,
        is_of_job=is_of_job,
        id=loaded.id or facts.job_id,
        keys=kill_keys(facts, loaded, users, key),
    )


def _silence(text: str | None) -> messages.Silence:
    """Return how long a host may be silent, and after a comma a process on a host that answers. Raises UsageError."""
    host, comma, process = (text or "").partition(",")
    default = messages.Silence()
    host_s = option_seconds(host or None, "--silence", default.host_s)
    process_s = option_seconds(process, "--silence", 0.0) if comma else max(default.process_s, host_s)
    return messages.Silence(host_s, process_s)


def _check_alone(command: tuple[str, ...], options: Options, loaded: Settings, facts: JobFacts) -> None:
    """Refuse to train on this host alone without --alone, and name the line that works. Raises UsageError."""
    if loaded.alone:
        if options.hosts or options.nodes not in (None, "1") or options.spares:
            raise UsageError("only this host with --alone", "--hosts, --nodes or --spares", "one of the two")
    elif facts.scheduler == "none" and not (options.hosts or options.nodes or os.environ.get("MINGLE_RUN")):
        raise UsageError("a job, or hosts, to train on", "no job here", launchers.anywhere(command, os.environ))


def facts_of(environ: Mapping[str, str], loaded: Settings, hosts: str | None) -> JobFacts:
    """Return the scheduler's facts of the whole job, also in a command of a run. Raises FactsError.

    As for `mingle env`, plugins add their facts unless an option names the hosts or the world's id.
    """
    outside = {name: value for name, value in environ.items() if name != "MINGLE_RUN"}
    return detect(outside, socket.gethostname(), asks_plugins=hosts is None and loaded.id is None)


def kill_keys(facts: JobFacts, loaded: Settings, environ: Mapping[str, str], key: str | None) -> tuple[bytes, ...]:
    """Return the keys of `mingle kill`: the user's own, and with these the run's `key`, which COMMAND has."""
    try:
        held = tuple(found.material for found in held_keys(facts, loaded, environ, is_new=True))
    except SecretError:  # `mingle kill` reports it
        return ()
    return (*held, key.encode()) if held and key is not None else held


def plan_hosts(
    facts: JobFacts, environ: Mapping[str, str], hosts: str | None, *, is_per_task: bool = False
) -> tuple[Starter, Allocation]:
    """Return the starter of the agents, and their hosts; without a job and hosts, this host alone.

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
    return starters.find(facts, environ, hosts, is_per_task=is_per_task)


def _here() -> tuple[Starter, Allocation]:
    """Return the starter of one agent on this host."""
    name = hostname()
    return starters.TABLE[0], Allocation((name,), (1,), own=name)


def _here_in_job(facts: JobFacts, environ: Mapping[str, str]) -> tuple[Starter, Allocation]:
    """Return the same where this is a job's script: its scheduler still ends it, as it ends others."""
    starter, job = _here()
    try:
        its, whole = starters.find(facts, environ)
    except FactsError:  # no job, or not its script
        return starter, job
    here = whole._replace(hosts=job.hosts, slots=job.slots, own=job.own)
    return starter._replace(asked_end=its.asked_end), here


def _counts(options: Options, hosts: int) -> tuple[int, int]:
    """Return how many hosts an attempt needs, and takes at most. Raises UsageError."""
    spares = _whole(options.spares or "0", "--spares", 0, MOST_NODES)
    text = options.nodes or os.environ.get("MINGLE_NODES") or ""
    least, colon, most = text.partition(":")
    there = max(hosts - spares, 0)
    high = _whole(most if colon else least, "--nodes", 1, MOST_NODES) if text else there
    low = _whole(least, "--nodes", 1, MOST_NODES) if text else there
    if high < low:
        raise UsageError("--nodes A:B with B at least A", text, f"--nodes {high}:{low}")
    if not 1 <= low <= there:
        seen = f"{hosts} of them" + (f", {spares} of these spares" if spares else "")
        wanted = f"{low} hosts that train" if low else "a host that trains"
        raise UsageError(wanted, seen, "a smaller --nodes or --spares, or more hosts")
    if high == 1 < there:
        source = "--nodes" if options.nodes else "MINGLE_NODES"
        without = "no --nodes" if options.nodes else "unset MINGLE_NODES"
        remedy = f"{without}, --spares {hosts - 1}, or --alone to train on this host only"
        raise UsageError(f"a run on all {hosts} hosts", f"1 ({source})", remedy)
    return low, min(high, there)


def _of_job(options: Options, hosts: int) -> Options:
    """Return the options of one agent, for a launcher that reaches all hosts by itself. Raises UsageError."""
    if _counts(options, hosts) != (hosts, hosts):
        seen, remedy = "fewer of them, or --spares", "the launcher's own options for fewer hosts"
        raise UsageError(f"all {hosts} hosts for a launcher of the whole job", seen, remedy)
    return options._replace(nodes="1", spares=None)


def _plan(options: Options, loaded: Settings, starter: Starter, job: Allocation) -> Plan:
    least, most = _counts(options, len(job.hosts))
    limit_s = option_seconds(options.limit, "--limit", NEVER)
    warn_s = option_seconds(options.warn, "--warn", NEVER)
    if limit_s == NEVER != warn_s:
        if job.end is None:
            raise UsageError("a time limit to warn about", "none from the scheduler", "--limit 4h")
        limit_s = job.end - time.time()
    name = options.warn_signal.upper().removeprefix("SIG")
    if name not in _WARNINGS:
        raise UsageError(f"a signal: {', '.join(_WARNINGS)}", options.warn_signal, "--warn-signal USR1")
    return Plan(
        hosts=job.hosts,
        slots=job.agents,
        least=least,
        most=most,
        restarts=_whole(options.restarts or "0", "--restarts", 0, MOST_RESTARTS),
        grace_s=option_seconds(options.grace, "--grace", job.grace_s),
        join_s=loaded.timeout,
        window_s=option_seconds(options.window, "--window", 30.0),
        warn_at_s=NEVER if warn_s == NEVER else max(limit_s - warn_s, 0.0),
        limit_at_s=limit_s,
        stall_s=option_seconds(options.stall, "--stall", NEVER),
        warn_signal=int(getattr(signal, f"SIG{name}")),
        signals_reach_command=starter.signals_reach_command,
    )


_Value = TypeVar("_Value")


def option_seconds(text: str | None, option: str, default: float) -> float:
    """Return an option's time in seconds. Raises UsageError, which names the option."""
    return default if text is None else _read(values.seconds, text, option)


def _whole(text: str, option: str, least: int, most: int) -> int:
    return _read(partial(values.whole, least=least, most=most), text, option)


def _read(read: Callable[[object], _Value], text: str, option: str) -> _Value:
    """Return an option's value by its reader; an error names the option."""
    try:
        return read(text)
    except UsageError as wrong:
        raise UsageError(wrong.expected, f"{wrong.seen} ({option})", wrong.remedy) from None


def run(command: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Return the exit status of `mingle run`, by its options as they were typed.

    Raises UsageError and FactsError, and what `run_command` raises.
    """
    own_options = Options(**{name: value for name, value in options.items() if name in Options._fields})
    others = {name: value for name, value in options.items() if name not in Options._fields}
    settings = {name: value for name, value in others.items() if name not in ("explain", "verbatim", "keep_key")}
    return run_command(plan_request(command, own_options, settings, option_arguments(others)))


# Signals that the runner takes besides the warning; what is ignored stays ignored, as nohup(1) wants, but for the ends
# of children.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


def run_command(request: Request) -> int:
    """Return the exit status of a run.

    Raises what opening ports, files and directories raises, PlaceError without an output or a working directory,
    UsageError, and MissingError if --again is not to queue the job once more.
    """
    check_runner()
    with ExitStack() as stack:
        loop = stack.enter_context(Loop())
        launching = Launching(loop, request.starter, request.job, "agent", request.settings, request.agreed)
        stack.callback(launching.close)
        signals = processes.signal_pipe({*_SIGNALS, request.plan.warn_signal})
        launching.start(request.plan.hosts)
        from mingle_hooks.run import runner  # 10 ms, while the agents start

        active = runner.Runner(loop, request, launching)
        stack.callback(active.close)
        active.begin(signals)
        loop.run(lambda: active.is_over)
    return runner.run_again(request, active) if request.options.again else active.status


# `mingle exec --together`: rank 0's process is the runner, and starts its own host's agent; each other member becomes
# its host's agent. All derive the run's key, ports and id from the world and the members' key.

# The runner takes the first of so many ports that is free; agents dial all of them.
_TOGETHER_PORTS, _TOGETHER_ID_BYTES = 8, 8
# The platform starts each host's `mingle exec --together`; no program can be started there from here. Between TERM and
# KILL it waits as long as Kubernetes does by default (terminationGracePeriodSeconds).
_TOGETHER_STARTER = Starter("given", "the platform", lambda *_: (), kill_wait_s=30.0, environment="own")


def check_together(spec: MemberSpec, starts: str | None, *, no_wait: bool) -> None:
    """Raise UsageError for what --together cannot run: tasks, a COMMAND that reaches all nodes itself, no world."""
    if no_wait:
        raise UsageError("the other members for --together", "--no-wait", "one of the two")
    if spec.settings.scope == "task":
        raise UsageError("one member on each node for --together", "--scope task", "mingle run --scope task")
    if starts == "job":
        raise UsageError("a COMMAND that every node starts", "one that reaches the nodes itself", "mingle run")


def world_options(spec: MemberSpec, view: View) -> dict[str, object]:
    """Return the options by which members find their world again, besides their own: its id, and rank 0's address."""
    is_free = spec.settings.master is None and spec.settings.source("via") == "default"
    master = {"master": view.world.roster[0].address} if is_free and "MASTER_ADDR" not in spec.pinned else {}
    return {"id": spec.attempt.id, "nodes": None, "rank": None, **master}


def run_together(command: tuple[str, ...], spec: MemberSpec, view: View, exec_options: tuple[str, ...]) -> int:
    """Return rank 0's exit status once all have ended; the other members become agents.

    `exec_options` are those of the members' `mingle exec`. Raises what `run_command` raises.
    """
    hosts = _member_hosts(view)
    secret = Secret.derive(find_key(spec.facts, spec.settings, spec.user_environ).material, spec.attempt)
    world = view.world.digest.encode()
    agreed = Agreed(
        run=secret.mac(b"together id", world)[:_TOGETHER_ID_BYTES].hex(),
        key=secret.mac(b"together", world),
        ports=candidates(secret.mac(b"together ports", world), _TOGETHER_PORTS, spec.settings.port_range),
    )
    if rank := view.place.node_rank:
        addresses = ",".join(f"{view.world.roster[0].address} {port}" for port in agreed.ports)
        variables = {"MINGLE_RUN_ID": agreed.run, messages.KEY: agreed.key.hex(), messages.AT: addresses}
        from mingle_hooks.run import agent  # 5 ms, which the runner does not need

        agent.become_program("agent", agent.Options(host=hosts[rank], local="0"), {**os.environ, **variables})
    scheduler = next((row for row in starters.TABLE if row.name == spec.facts.scheduler), _TOGETHER_STARTER)
    wait_s = starters.kill_wait_s(scheduler, spec.user_environ)
    job = Allocation(hosts, (1,) * len(hosts), kill_wait_s=wait_s, own=hosts[0])
    return run_command(
        Request(
            plan=_plan(Options(nodes=str(len(hosts))), spec.settings, scheduler, job),
            starter=_TOGETHER_STARTER,
            job=job,
            command=command,
            exec_options=exec_options,
            settings=spec.settings,
            id=spec.attempt.id,
            agreed=agreed,
            keys=kill_keys(spec.facts, spec.settings, spec.user_environ, None),
        )
    )


def _member_hosts(view: View) -> tuple[str, ...]:
    """Return a name for each member in rank order: its host's, with a number where the host has several members."""
    names: dict[str, None] = {}
    for member in view.world.roster:
        numbered = (f"{member.host}.{number}" for number in itertools.count(2))
        names[next(name for name in itertools.chain([member.host], numbered) if name not in names)] = None
    return tuple(names)
