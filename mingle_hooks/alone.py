"""The world as one process can tell it without the network: one member, --no-wait, or a batch script."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from mingle_hooks.errors import UsageError
from mingle_hooks.export.view import Batch, View
from mingle_hooks.fabric import interfaces, ports
from mingle_hooks.rendezvous.protocol.attempt import MASTER_PORTS, Secret
from mingle_hooks.world import Assignment, World

if TYPE_CHECKING:
    import socket

    from mingle_hooks.job import MemberSpec
    from mingle_hooks.rendezvous.protocol.answer import Answer
    from mingle_hooks.schedulers.facts import JobFacts

LOOPBACK = "127.0.0.1"


def only_member(spec: MemberSpec, held: list[socket.socket] | None) -> Answer:
    """Return the answer for a world of one member: loopback, and a port that is free now and kept.

    `held` gets what keeps it. Raises UsageError, and NetworkError where no port is free.
    """
    size = str(spec.slots)
    if spec.pinned.get("WORLD_SIZE", size) != size:
        raise UsageError(
            f"WORLD_SIZE={spec.pinned['WORLD_SIZE']}, as exported",
            f"{size} slots",
            "unset WORLD_SIZE, or --slots N",
        )
    address = spec.pinned.get("MASTER_ADDR", LOOPBACK)
    port = _named_port(spec) or _kept_port(spec, LOOPBACK, os.urandom(16), held)
    return {
        "nodes": 1,
        "size": spec.slots,
        "addr": address,
        "port": port,
        "digest": _digest(spec, 1, spec.slots, address, port, os.urandom(16)),
        "rank": 0,
        "offset": 0,
        "own": LOOPBACK,
        "roster": [[0, "localhost", LOOPBACK, spec.slots]],
    }


def without_waiting(spec: MemberSpec, held: list[socket.socket] | None) -> View:
    """Return what this process can tell by itself, for --no-wait and for the batch script of several nodes.

    A batch script runs on rank 0's host: there the address is this host's own and the port has been tried.
    Elsewhere, salloc's shell on a login node included, both follow from the job and the key, alike on every node. What
    may differ between nodes is None. Raises UsageError, SecretError for a key that is unfit, and NetworkError where
    there is no address or port.
    """
    facts = spec.facts
    if facts.is_batch:
        address, port = _own_address(spec, held)
    else:
        address, port = _named_address(spec), _named_port(spec) or _first_port(spec)
    slots, size = _same_everywhere(spec)
    digest = _digest(spec, spec.nodes, size, address, port)
    world = World(spec.attempt.id, spec.nodes, size, address, port, digest)
    leads_here, leads_there = _names_lead(facts) if facts.is_batch else (True, True)
    if facts.is_batch:
        iface = None if leads_here else interfaces.name_of(address)
        place = Assignment(
            node_rank=None, slots=slots, rank_offset=None, iface=iface, local_rank=_local_rank_of_all(spec)
        )
    else:
        is_task = spec.settings.scope == "task"
        place = Assignment(
            node_rank=spec.rank,
            slots=spec.slots,
            rank_offset=None,
            local_rank=facts.local_rank if is_task else None,
            rank=facts.task_rank if is_task else None,
        )
    bound = spec.binding.variables if spec.binding else {}
    view = View(world, place, spec.settings.scope, spec.user_environ, frameworks=spec.settings.frameworks, bound=bound)
    return view._replace(batch=_batch(spec, slots)) if facts.is_batch and leads_there else view


def _local_rank_of_all(spec: MemberSpec) -> int | None:
    """Return the local rank of every task of the job, None where they have several.

    A script for accelerate or transformers without it trains alone; with it, it asks for RANK, and ends at once.
    Lightning without a scheduler's tasks would not start its node's processes.
    """
    is_one = set(spec.facts.tasks_per_node) <= {1} and "lightning" not in spec.settings.frameworks
    return 0 if is_one else None


def _batch(spec: MemberSpec, slots: int | None) -> Batch:
    if slots is None and spec.slots_from == "gpus":
        return Batch(max(1, int(spec.settings.timeout)), "gpu")  # torchrun counts them, on each node by itself
    return Batch(max(1, int(spec.settings.timeout)), "" if slots is None else str(slots))


def _names_lead(facts: JobFacts) -> tuple[bool, bool]:
    """Tell whether the other nodes reach this host by what its name says here, and torchruns reach each other.

    Gloo binds to the address of its host's name: where that is not the first node's own, all nodes get the first
    one's interface, without which Gloo would fail. torchruns announce nothing but their hosts' full names. One other
    host stands for all, as their names come from the same place. A host that is 127.0.0.1 may call itself localhost;
    Debian's 127.0.1.1 is nothing but what it calls itself.
    """
    from mingle_hooks.launchers.placement import here, is_first_host
    from mingle_hooks.rendezvous.discovery.resolver import RESOLVE_S, resolve

    own = resolve(here(facts), RESOLVE_S) if is_first_host(facts) else []
    leads_here = not is_first_host(facts) or any(map(_is_elsewhere, own))
    if {"127.0.0.1", "::1"}.intersection(own):
        return leads_here, False
    found = resolve(facts.hosts[-1], RESOLVE_S) if facts.hosts else []
    return leads_here, bool(found) and all(map(_is_elsewhere, found))


def _is_elsewhere(address: str) -> bool:
    return not address.startswith("127.") and address != "::1"


def _digest(spec: MemberSpec, *shared: object) -> str:
    return sha256(repr((spec.attempt.name, *shared)).encode()).hexdigest()[:16]


def _named_port(spec: MemberSpec) -> int | None:
    if "MASTER_PORT" in spec.pinned:
        return int(spec.pinned["MASTER_PORT"])
    return spec.settings.master[1] if spec.settings.master is not None else None


def _named_address(spec: MemberSpec) -> str:
    if "MASTER_ADDR" in spec.pinned:
        return spec.pinned["MASTER_ADDR"]
    if spec.settings.master is not None:
        return spec.settings.master[0]
    if not spec.facts.leader_hosts:
        raise UsageError(
            "rank 0's host from the scheduler, for --no-wait",
            f"none ({spec.facts.scheduler})",
            "--master HOST, MASTER_ADDR, or leaving out --no-wait",
        )
    return spec.facts.leader_hosts[0] + spec.settings.host_suffix


def _own_address(spec: MemberSpec, held: list[socket.socket] | None) -> tuple[str, int]:
    from mingle_hooks.launchers.placement import is_first_host

    port = _named_port(spec)
    if "MASTER_ADDR" in spec.pinned or spec.settings.master is not None or not is_first_host(spec.facts):
        return _named_address(spec), port or _first_port(spec)
    best = interfaces.usable(interfaces.interfaces(), prefer=spec.settings.iface, environ=spec.user_environ)[0].host
    return best, port or _kept_port(spec, best, _seed(spec), held)


def _seed(spec: MemberSpec) -> bytes:
    """Return what chooses the port: the members' key, if there is one, so that nobody else can; else the id alone."""
    from mingle_hooks import keys

    found = () if spec.settings.insecure else keys.held(spec.facts, spec.settings, spec.user_environ)
    return Secret.derive(found[0].material if found else keys.PUBLIC, spec.attempt).master_seed


def _first_port(spec: MemberSpec) -> int:
    return ports.candidates(_seed(spec), 1, spec.settings.port_range)[0]


def _kept_port(spec: MemberSpec, address: str, seed: bytes, held: list[socket.socket] | None) -> int:
    port_range = spec.settings.port_range
    listener = ports.listen(address, ports.candidates(seed, MASTER_PORTS, port_range), port_range)
    try:
        port: int = listener.getsockname()[1]
        if spec.settings.port_hold:
            ports.keep(listener)
        else:
            ports.hold(listener)
    except BaseException:
        listener.close()
        raise
    if held is None:
        listener.close()
    else:
        held.append(listener)
    return port


def _same_everywhere(spec: MemberSpec) -> tuple[int | None, int | None]:
    """Return slots per node and over all nodes, each None where it is not known to be the same on all nodes."""
    facts, nodes = spec.facts, spec.nodes
    pinned = spec.pinned.get("WORLD_SIZE")
    tasks = facts.tasks_per_node
    if spec.slots_from in ("--slots", "LOCAL_WORLD_SIZE"):
        return spec.slots, int(pinned) if pinned else spec.slots * nodes if nodes else None
    if spec.slots_from == "tasks" and len(tasks) == nodes:
        return tasks[0] if len(set(tasks)) == 1 else None, sum(tasks)
    return None, int(pinned) if pinned else None
