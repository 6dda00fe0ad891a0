"""`mingle exec --together`: the members of a world, whoever started them, run COMMAND as one.

Rank 0's process is the runner, and starts its own host's agent; each other member becomes its host's agent. All
derive the run's key, ports and id from the world and the members' key.
"""

from __future__ import annotations

import os
from typing import NoReturn

from mingle_hooks import keys
from mingle_hooks.errors import UsageError
from mingle_hooks.files import own_program_argv
from mingle_hooks.net import ports
from mingle_hooks.rendezvous.member import MemberSpec
from mingle_hooks.rendezvous.wire import Secret
from mingle_hooks.run.agent import Options
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.hub import Agreed
from mingle_hooks.run.messages import AT, KEY
from mingle_hooks.run.runner import Request, run_command, status_keys
from mingle_hooks.run.starters import TABLE, Allocation, Starter
from mingle_hooks.world import View

# The runner takes the first that is free of so many ports; agents dial all of them.
PORTS = 8
_ID_BYTES = 8
# Somebody else starts each host's `mingle exec --together`; from here no program can be started there.
STARTER = Starter(
    "given",
    "the platform",
    lambda *_: (),
    kill_wait_s=30.0,  # Kubernetes' terminationGracePeriodSeconds
    carries_environment=True,
)


def together(command: tuple[str, ...], spec: MemberSpec, view: View, words: tuple[str, ...]) -> int:
    """Return rank 0's exit status once all have ended; the other members become agents.

    `words` are the options of the members' own `mingle exec`. Raises what a run raises.
    """
    hosts, agreed = names(view), _agreed(spec, view)
    if view.place.node_rank:
        _supervise(view, hosts[view.place.node_rank], agreed)
    return run_command(
        Request(
            plan=_plan(spec, hosts),
            starter=STARTER,
            job=Allocation(STARTER.name, hosts, (1,) * len(hosts), own=hosts[0]),
            command=command,
            exec_options=words,
            settings=spec.settings,
            id=spec.attempt.id,
            keys=status_keys(spec.facts, spec.settings, spec.user_environ, None),
            agreed=agreed,
        )
    )


def known(spec: MemberSpec, view: View) -> dict[str, object]:
    """Return the options that the members' own world needs beside their own, as its rank 0 is known by now."""
    is_free = spec.settings.master is None and spec.settings.source("via") == "default"
    where = {"master": view.world.roster[0].address} if is_free and "MASTER_ADDR" not in spec.pinned else {}
    return {"id": spec.attempt.id, "nodes": None, "rank": None, **where}


def _plan(spec: MemberSpec, hosts: tuple[str, ...]) -> Plan:
    scheduler = next((row for row in TABLE if row.name == spec.facts.scheduler), STARTER)
    return Plan(
        hosts=hosts,
        slots=(1,) * len(hosts),
        least=len(hosts),
        most=len(hosts),
        grace_s=Allocation(scheduler.name, hosts, (), kill_wait_s=scheduler.kill_wait_s).grace_s,
        join_s=spec.settings.timeout,
        signals_reach_command=scheduler.signals_reach_command,
    )


def names(view: View) -> tuple[str, ...]:
    """Return a name for each member in rank order: its host's, with a number where that is not the first."""
    seen: dict[str, int] = {}
    found = []
    for member in view.world.roster:
        count = seen[member.host] = seen.get(member.host, 0) + 1
        found.append(member.host if count == 1 else f"{member.host}.{count}")
    return tuple(found)


def _agreed(spec: MemberSpec, view: View) -> Agreed:
    """Return what all members compute alike."""
    key = keys.find(spec.facts, spec.settings, spec.user_environ)
    secret = Secret.derive(key.material, spec.attempt)
    of_world = view.world.digest.encode()
    seed = secret.mac(b"together ports", of_world)
    return Agreed(
        run=secret.mac(b"together id", of_world)[:_ID_BYTES].hex(),
        key=secret.mac(b"together", of_world),
        ports=ports.candidates(seed, PORTS, spec.settings.port_range),
    )


def _supervise(view: View, name: str, agreed: Agreed) -> NoReturn:
    """Become this host's agent."""
    address = view.world.roster[0].address
    environ = {
        **os.environ,
        "MINGLE_RUN_ID": agreed.run,
        KEY: agreed.key.hex(),
        AT: ",".join(f"{address} {port}" for port in agreed.ports),
    }
    argv = [*own_program_argv("agent"), *Options(host=name, local="0").words()]
    os.execve(argv[0], argv, environ)  # noqa: S606 - mingle itself


def check(spec: MemberSpec, starts: str | None, *, no_wait: bool) -> None:
    """Raise UsageError for what this cannot run: tasks, a COMMAND that reaches all nodes itself, no world."""
    if no_wait:
        raise UsageError("the other members for --together", "--no-wait", "one of the two")
    if spec.settings.scope == "task":
        raise UsageError("one member on each node for --together", "--scope task", "mingle run --scope task")
    if starts == "job":
        raise UsageError("a COMMAND that every node starts", "one that reaches the nodes itself", "mingle run")
