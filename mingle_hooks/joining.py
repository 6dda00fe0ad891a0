"""From what is asked to this member's view of the world."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mingle_hooks import runtime
from mingle_hooks.errors import UsageError
from mingle_hooks.export.frameworks import CPU_ONLY, HCAS, IFACE, MEMORY, NAMES, ROSTER, SITE, needs
from mingle_hooks.export.view import View
from mingle_hooks.rendezvous.protocol.attempt import Secret
from mingle_hooks.world import Assignment, Member, World

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from mingle_hooks.fabric.nccl_conf import Setting
    from mingle_hooks.job import MemberSpec
    from mingle_hooks.keys import Key
    from mingle_hooks.rendezvous.local_peers.first_task import LocalPeers
    from mingle_hooks.rendezvous.observer import Observer
    from mingle_hooks.rendezvous.protocol.answer import Answer
    from mingle_hooks.rendezvous.protocol.failure import Failure
    from mingle_hooks.rendezvous.request import Request

# How long name servers may take for all names of a roster together, before the rest stand there by address.
NAMES_S = 2.0


def join(
    spec: MemberSpec,
    observer: Observer,
    *,
    no_wait: bool = False,
    wants_roster: bool = False,
    command: tuple[str, ...] | None = (),
    obstacle: Failure | None = None,
    held: list[socket.socket] | None = None,
) -> View:
    """Return this member's view of the world: with the others, or without them where there is no need.

    Its roster is there where a framework, or the caller, wants it, and there are others to ask. `command` is what this
    process will become, where it is known; with None nodes are not compared. Where there is an `obstacle` to it, all
    members end with that error. `held` gets the sockets that keep MASTER_PORT from everybody until the caller closes
    them, or becomes the command; without it the port is released.
    Raises UsageError, SecretError and PlaceError, and with the others MissingError, NetworkError and ConflictError.
    """
    for name in spec.settings.left_out:
        observer.note(f"ignored {name}, which only a later mingle knows")
    if spec.binding and spec.binding.note:
        observer.note(spec.binding.note)
    is_one = spec.nodes == 1
    if (is_one or no_wait) and "NODE_RANK" in spec.pinned:  # else the leader says it, to all
        exported = f"NODE_RANK={spec.pinned['NODE_RANK']}, as exported"
        raise UsageError(f"node rank {spec.rank}, as {spec.facts.scheduler} says", exported, "unset NODE_RANK")
    if no_wait and not is_one and spec.settings.order != "scheduler" and not spec.facts.is_batch:
        raise UsageError("members that contact each other, for --order", "--no-wait", "leaving out one of them")
    asks_nobody = (no_wait or spec.facts.is_batch) if not is_one else not spec.is_shared
    certain = obstacle if obstacle is not None and obstacle.is_certain else None
    if asks_nobody and certain is not None:
        raise certain.error()
    if not is_one and asks_nobody:
        from mingle_hooks.alone import without_waiting

        if spec.facts.is_batch:
            observer.note(_of_batch_shell(spec))
        return without_waiting(spec, held)
    if asks_nobody:
        from mingle_hooks.alone import only_member

        return _view(spec, only_member(spec, held))
    wants_roster = wants_roster or ROSTER in needs(spec.settings.frameworks)
    view = _view(spec, _answer(spec, observer, command, obstacle, held, wants_roster=wants_roster))
    if certain is not None:  # it has come back to a world that goes on
        raise certain.error()
    return view


def _of_batch_shell(spec: MemberSpec) -> str:
    """Return what the user of a batch shell should know: commands started here are on one node."""
    from mingle_hooks.launchers import placement

    where, line = placement.here(spec.facts), placement.everywhere(spec.facts, ("torchrun", "train.py"))
    alone = "a program that reads neither RANK nor torchrun's variables would train alone here"
    return f"this shell runs on {where} only, so NODE_RANK is not set and {alone}; to train on all nodes, try {line}"


def _answer(
    spec: MemberSpec,
    observer: Observer,
    command: tuple[str, ...] | None,
    obstacle: Failure | None,
    held: list[socket.socket] | None,
    *,
    wants_roster: bool,
) -> Answer:
    """Return the answer of the members' rendezvous, or of this node's first task where several share it."""
    from mingle_hooks import keys
    from mingle_hooks.rendezvous.rendezvous import meet

    settings, facts = spec.settings, spec.facts
    key = keys.find(facts, settings, spec.user_environ)
    if settings.insecure:
        observer.note("--insecure: anyone on this network can join or break this world")

    runtime.record(facts.job_id)

    def ask(timeout_s: float, local_peers: LocalPeers | None = None) -> Answer:
        its = obstacle
        if local_peers is not None and (its is None or not its.is_certain):
            its = local_peers.obstacle or its
        if spec.nodes == 1:
            if its is not None and its.is_certain:
                raise its.error()
            from mingle_hooks.alone import only_member

            return only_member(spec, held)
        asked = _request(spec, key, timeout_s)
        asked = asked._replace(local_peers=local_peers, wants_roster=wants_roster, obstacle=its, held=held)
        if command is not None:
            asked = asked._replace(tells=_teller(spec, command))
        return meet(asked, observer)

    if not spec.is_shared or facts.local_rank is None or facts.local_count is None:
        if MEMORY in needs(settings.frameworks):
            from mingle_hooks.rejoin import with_memory

            return with_memory(spec, key.material, observer, lambda: ask(settings.timeout))
        return ask(settings.timeout)
    from mingle_hooks.rendezvous.local_peers.meeting_point import names

    secret = Secret.derive(key.material, spec.attempt)
    directories = [runtime.path(spec.user_environ, facts.job_id, name) for name in names(secret, spec.node)]
    if facts.local_rank:
        from mingle_hooks.rendezvous.local_peers.follower import follow

        return follow(directories, facts.local_rank, settings.timeout, obstacle)
    from mingle_hooks.fabric.machine import hostname
    from mingle_hooks.rendezvous.local_peers.first_task import first

    return first(directories, hostname(), facts.local_count, settings.timeout, ask)


def _request(spec: MemberSpec, key: Key, timeout_s: float) -> Request:
    from mingle_hooks.fabric.machine import hostname, identity
    from mingle_hooks.rendezvous.discovery import chosen
    from mingle_hooks.rendezvous.protocol.spent import process_age_s
    from mingle_hooks.rendezvous.request import Request

    settings, facts = spec.settings, spec.facts
    hosts = facts.hosts if len(facts.hosts) == spec.nodes else ()
    return Request(
        attempt=spec.attempt,
        key=key.material,
        key_from=key.source,
        host=hostname(),
        machine=identity(),
        slots=spec.slots,
        rank=spec.rank,
        rank_source=spec.rank_source,
        nodes=spec.nodes,
        timeout_s=timeout_s,
        pinned=spec.pinned,
        trusts_addr=settings.master is not None or bool(spec.user_environ.get("KUBERNETES_SERVICE_HOST")),
        age_s=process_age_s(),
        orders_by_switch=settings.order != "scheduler",
        topology=_switches(spec),
        hosts=hosts,
        leader_hosts=facts.leader_hosts,
        host_suffix=settings.host_suffix,
        master=settings.master,
        directory=settings.directory,
        via=chosen(settings.via),
        prefer=settings.iface,
        environ=spec.user_environ,
        port_range=settings.port_range,
        port_hold=settings.port_hold,
        ttl=settings.multicast_ttl,
        strict=settings.strict,
        asks_rdma=settings.rdma,
    )


def _switches(spec: MemberSpec) -> str:
    """Return the switches above this node, where ranks are to follow them."""
    if spec.settings.order == "scheduler":
        return ""
    from mingle_hooks import topology

    return topology.above(spec.settings.order, spec.user_environ)


def _teller(spec: MemberSpec, command: tuple[str, ...]) -> Callable[[], tuple[str, str]]:
    """Return what tells this node's fingerprint and its addresses, for the leader to compare."""
    from mingle_hooks.lint.asked import Asked, limits

    own = limits()  # now, as a leader raises its own

    def tells() -> tuple[str, str]:
        from mingle_hooks.lint.fingerprint import fingerprint

        try:
            directory = os.getcwd()
        except OSError:  # it has been removed
            directory = "/"
        return fingerprint(Asked(spec.user_environ, command, directory, limits=own))

    return tells


def _view(spec: MemberSpec, answer: Answer) -> View:
    facts, settings = spec.facts, spec.settings
    world = World(
        id=spec.attempt.id,
        nodes=answer["nodes"],
        size=answer["size"],
        master_addr=answer["addr"],
        master_port=answer["port"],
        digest=answer["digest"],
        roster=tuple(Member(*row) for row in answer.get("roster", ())),
    )
    place = Assignment(answer["rank"], spec.slots, answer["offset"], address=answer["own"])
    if settings.scope == "task" and facts.local_rank is not None:
        rank = facts.task_rank if facts.task_rank is not None else answer["offset"] + facts.local_rank
        place = place._replace(local_rank=facts.local_rank, rank=rank)
    return _with_network(spec, world, place)._replace(spent=tuple(answer.get("spent", ())))


def _with_network(spec: MemberSpec, world: World, place: Assignment) -> View:
    """Add the interface, the InfiniBand ports and what else a framework asks for."""
    asked = needs(spec.settings.frameworks)
    is_named = True
    if NAMES in asked and world.nodes != 1:
        from mingle_hooks.fabric.machine import hostname

        if spec.facts.hosts:  # a scheduler starts processes on its own hosts, by its own names for them
            is_named = bool(named([hostname()]))
        else:
            world = world._replace(roster=reachable(world.roster))
    hcas: tuple[str, ...] | None = ()
    site: dict[str, Setting] = {}
    if IFACE in asked and place.address is not None:
        from mingle_hooks.fabric.interfaces import name_of

        place = place._replace(iface=name_of(place.address))
    if HCAS in asked:
        from mingle_hooks.fabric.infiniband import active_ports

        ports = active_ports()
        hcas = None if ports is None else tuple(port for port, _ in ports)
    if SITE in asked:
        from mingle_hooks.fabric.nccl_conf import settings

        site = settings(spec.user_environ)
    is_cpu_only = False
    if CPU_ONLY in asked:
        from mingle_hooks.fabric.gpus import has_accelerator

        is_cpu_only = not has_accelerator(spec.user_environ)
    bound = spec.binding.variables if spec.binding else {}
    users, names = spec.user_environ, spec.settings.frameworks
    view = View(world, place, spec.settings.scope, users, hcas, is_cpu_only, names, site, bound=bound)
    return view._replace(is_named=is_named)


def reachable(roster: tuple[Member, ...]) -> tuple[Member, ...]:
    """Return the roster with the IPv4 address in place of each name by which this node does not know that host.

    Launchers reach the other nodes by what stands there. An IPv6 address cannot stand in all of their files, where a
    colon ends a host, so a name is left.
    """
    known = named([member.host for member in roster])
    return tuple(its if its.host in known or ":" in its.address else its._replace(host=its.address) for its in roster)


def named(hosts: Sequence[str], timeout_s: float = NAMES_S) -> set[str]:
    """Return those of the names that lead to a host: 127.0.1.1, as Debian's installer writes it, leads to none."""
    from mingle_hooks.rendezvous.discovery.resolver import resolve

    deadline = time.monotonic() + timeout_s
    found = set()
    for host in dict.fromkeys(hosts):
        left_s = deadline - time.monotonic()
        addresses = resolve(host, left_s) if left_s > 0 else []
        if any(address != "::1" and not address.startswith("127.") for address in addresses):
            found.add(host)
    return found
