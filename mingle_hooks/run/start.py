"""The start of a run: its agents first, which take the longest; then what the runner needs, while they start.

Also `mingle exec --together`: the members of a world, whoever started them, run COMMAND as one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from mingle_hooks import keys
from mingle_hooks.errors import UsageError
from mingle_hooks.job import check_runner
from mingle_hooks.net import ports
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.member import MemberSpec
from mingle_hooks.rendezvous.wire import Secret
from mingle_hooks.run import messages, processes, starters
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.launching import Agreed, Launching
from mingle_hooks.run.request import Options, Request, kill_keys, plan_request
from mingle_hooks.run.starters import Allocation, Starter
from mingle_hooks.settings import option_arguments
from mingle_hooks.view import View


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
    secret = Secret.derive(keys.find(spec.facts, spec.settings, spec.user_environ).material, spec.attempt)
    world = view.world.digest.encode()
    agreed = Agreed(
        run=secret.mac(b"together id", world)[:_TOGETHER_ID_BYTES].hex(),
        key=secret.mac(b"together", world),
        ports=ports.candidates(secret.mac(b"together ports", world), _TOGETHER_PORTS, spec.settings.port_range),
    )
    if rank := view.place.node_rank:
        addresses = ",".join(f"{view.world.roster[0].address} {port}" for port in agreed.ports)
        variables = {"MINGLE_RUN_ID": agreed.run, messages.KEY: agreed.key.hex(), messages.AT: addresses}
        from mingle_hooks.run import agent  # 5 ms, which the runner does not need

        agent.become_program("agent", agent.Options(host=hosts[rank], local="0"), {**os.environ, **variables})
    scheduler = next((row for row in starters.TABLE if row.name == spec.facts.scheduler), _TOGETHER_STARTER)
    slots = (1,) * len(hosts)
    plan = Plan(
        hosts=hosts,
        slots=slots,
        least=len(hosts),
        most=len(hosts),
        grace_s=Allocation(hosts, (), kill_wait_s=scheduler.kill_wait_s).grace_s,
        join_s=spec.settings.timeout,
        signals_reach_command=scheduler.signals_reach_command,
    )
    return run_command(
        Request(
            plan=plan,
            starter=_TOGETHER_STARTER,
            job=Allocation(hosts, slots, own=hosts[0]),
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
    counts: dict[str, int] = {}
    names = []
    for member in view.world.roster:
        count = counts[member.host] = counts.get(member.host, 0) + 1
        names.append(member.host if count == 1 else f"{member.host}.{count}")
    return tuple(names)
