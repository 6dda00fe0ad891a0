"""The world as one process can tell it without the network: one member, --no-wait, or a batch script."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.digest import sha256
from mingle_hooks.errors import UsageError
from mingle_hooks.export.view import View
from mingle_hooks.fabric import interfaces, ports
from mingle_hooks.world import Place, World

if TYPE_CHECKING:
    from mingle_hooks.job import Enquiry
    from mingle_hooks.rendezvous.wire import Body

LOOPBACK = "127.0.0.1"
# A free port is looked for among this many before the rest of the range.
PORTS = 16


def only_member(enquiry: Enquiry) -> Body:
    """Return the answer for a world of one member: loopback, and a port that is free now and kept."""
    size = str(enquiry.slots)
    if enquiry.given.get("WORLD_SIZE", size) != size:
        raise UsageError(
            f"WORLD_SIZE={enquiry.given['WORLD_SIZE']}, as it was exported",
            f"{size} slots",
            "unset WORLD_SIZE, or --slots",
        )
    address = enquiry.given.get("MASTER_ADDR", LOOPBACK)
    port = _named_port(enquiry) or _kept_port(enquiry, LOOPBACK)
    return {
        "nodes": 1,
        "size": enquiry.slots,
        "addr": address,
        "port": port,
        "digest": _digest(enquiry, 1, enquiry.slots, address, port, os.urandom(16)),
        "rank": 0,
        "offset": 0,
        "own": LOOPBACK,
        "roster": [[0, "localhost", LOOPBACK, enquiry.slots]],
    }


def without_waiting(enquiry: Enquiry) -> View:
    """Return what this process can tell by itself, for --no-wait and for the batch script of several nodes.

    A batch script runs on rank 0's host: there the address is this host's own and the port has been tried.
    Elsewhere, salloc's shell on a login node included, both follow from the job, alike on every node. What may
    differ between nodes is None.
    """
    facts = enquiry.facts
    if facts.is_batch:
        address, port = _own_address(enquiry)
    else:
        address, port = _named_address(enquiry), _named_port(enquiry) or _first_ports(enquiry)[0]
    slots, size = _same_everywhere(enquiry)
    digest = _digest(enquiry, enquiry.nodes, size, address, port)
    world = World(enquiry.attempt.id, enquiry.nodes, size, address, port, digest)
    if facts.is_batch:
        place = Place(node_rank=None, slots=slots, rank_offset=None)
    else:
        is_task = enquiry.settings.scope == "task"
        place = Place(
            node_rank=enquiry.rank,
            slots=enquiry.slots,
            rank_offset=None,
            local_rank=facts.local_rank if is_task else None,
            rank=facts.task_rank if is_task else None,
        )
    return View(world, place, enquiry.settings.scope, enquiry.own, frameworks=enquiry.settings.frameworks)


def _digest(enquiry: Enquiry, *shared: object) -> str:
    return sha256(repr((enquiry.attempt.name, *shared)).encode()).hexdigest()[:16]


def _named_port(enquiry: Enquiry) -> int | None:
    if "MASTER_PORT" in enquiry.given:
        return int(enquiry.given["MASTER_PORT"])
    return enquiry.settings.master[1] if enquiry.settings.master is not None else None


def _named_address(enquiry: Enquiry) -> str:
    if "MASTER_ADDR" in enquiry.given:
        return enquiry.given["MASTER_ADDR"]
    if enquiry.settings.master is not None:
        return enquiry.settings.master[0]
    if not enquiry.facts.leader_hosts:
        raise UsageError(
            "rank 0's host from the scheduler, for --no-wait",
            f"none ({enquiry.facts.scheduler})",
            "--master HOST, MASTER_ADDR, or the same without --no-wait",
        )
    return enquiry.facts.leader_hosts[0] + enquiry.settings.host_suffix


def _own_address(enquiry: Enquiry) -> tuple[str, int]:
    from mingle_hooks.launchers.placement import is_first_host  # noqa: PLC0415 - only in a batch script

    port = _named_port(enquiry)
    if "MASTER_ADDR" in enquiry.given or enquiry.settings.master is not None or not is_first_host(enquiry.facts):
        return _named_address(enquiry), port or _first_ports(enquiry)[0]
    best = interfaces.usable(interfaces.interfaces(), prefer=enquiry.settings.iface)[0].host
    return best, port or _kept_port(enquiry, best)


def _first_ports(enquiry: Enquiry) -> tuple[int, ...]:
    return ports.candidates(enquiry.attempt.seed(b"master"), PORTS, enquiry.settings.port_range)


def _kept_port(enquiry: Enquiry, address: str) -> int:
    listener = ports.listen(address, _first_ports(enquiry), enquiry.settings.port_range)
    port: int = listener.getsockname()[1]
    if enquiry.settings.port_hold:
        ports.keep(listener)
    else:
        listener.close()
    return port


def _same_everywhere(enquiry: Enquiry) -> tuple[int | None, int | None]:
    """Return slots per node and over all nodes, each None where it is not known to be the same on all nodes."""
    facts, nodes = enquiry.facts, enquiry.nodes
    given = enquiry.given.get("WORLD_SIZE")
    tasks = facts.tasks_per_node
    if enquiry.slots_from in ("--slots", "LOCAL_WORLD_SIZE"):
        return enquiry.slots, int(given) if given else enquiry.slots * nodes if nodes else None
    if enquiry.slots_from == "tasks" and len(tasks) == nodes:
        return tasks[0] if len(set(tasks)) == 1 else None, sum(tasks)
    return None, int(given) if given else None
