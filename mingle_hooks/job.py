"""What one call asks: from the environment, the settings and the options to one record, without the network."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.frameworks import added, profiles
from mingle_hooks.export.variables import own
from mingle_hooks.net import devices
from mingle_hooks.net.addresses import is_hostname_or_address
from mingle_hooks.net.devices import GpuBinding, visible_gpus
from mingle_hooks.rendezvous.request import MemberSpec, SlotsFrom
from mingle_hooks.rendezvous.wire import Attempt, run_material
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS, JobFacts
from mingle_hooks.settings import Settings, load
from mingle_hooks.values import Counted, number


def member_spec(environ: Mapping[str, str], options: Mapping[str, object]) -> MemberSpec:
    """Return what is asked. Raises what settings and schedulers raise, and UsageError where they clash."""
    users = own(environ)
    settings = load(users, options)
    settings = settings._replace(frameworks=profiles(settings.frameworks))
    if added():  # by name only now it is known what an earlier mingle exported for a plugin
        users = own(environ)
    facts = detect(users, socket.gethostname(), asks_plugins=settings.id is None)
    facts = _placed(facts.by_itself() if settings.alone else facts, settings)
    _check_scope(settings, facts)
    _check_order(settings, users)
    nodes, nodes_source = _nodes(settings, facts, users)
    slots, slots_from = _slots(settings, facts, users)
    rank, rank_source = _rank(settings, facts, users, nodes)
    return MemberSpec(
        settings=settings,
        facts=facts,
        user_environ=users,
        attempt=Attempt(_id(settings, facts, nodes), facts.step, facts.restarts, run_material(facts.cookie)),
        nodes=nodes,
        nodes_source=nodes_source,
        rank=rank,
        rank_source=rank_source,
        slots=slots,
        slots_from=slots_from,
        pinned=_pinned(settings, users, rank),
        binding=_binding(settings, facts, users, rank),
    )


def _placed(facts: JobFacts, settings: Settings) -> JobFacts:
    """Take the slot for the local rank where the user says that every task asks; one slot means one task."""
    if settings.scope != "task" or facts.local_rank is not None:
        return facts
    if facts.slot is None:
        if settings.slots != 1 or facts.is_batch:
            return facts
        return facts._replace(local_rank=0, local_count=1, sources={**facts.sources, "local_rank": "--slots 1"})
    return facts._replace(local_rank=facts.slot, sources={**facts.sources, "local_rank": facts.sources["slot"]})


def _check_scope(settings: Settings, facts: JobFacts) -> None:
    """Refuse, on every task alike, what could give some tasks of a step a world and others none."""
    if settings.scope == "task" and facts.local_rank is None:
        raise UsageError(
            "a task's number on its node from the scheduler, for --scope task",
            f"none ({facts.scheduler})",
            "--scope node, --slots 1 with one task on each node, or srun, mpirun or pbsdsh to start the tasks",
        )
    if settings.source("scope") != "default":
        return
    tasks = max((facts.local_count or 1, *facts.tasks_per_node))
    if tasks > 1 and facts.local_rank is not None:
        raise UsageError(
            "one task on each node",
            f"{tasks} ({facts.scheduler})",
            "--ntasks-per-node=1, --scope task if every task calls mingle, or --scope node if one per node does",
        )
    # PBS lists slots where Slurm lists tasks. Who says how many slots a member has means a node by it.
    if tasks > 1 and facts.slot is not None and settings.source("slots") == "default":
        raise UsageError(
            "one slot on each host, or --scope",
            f"{tasks} slots ({facts.scheduler})",
            "--scope task if pbsdsh starts every task, or --scope node if pbs_tmrsh starts one on each host",
        )


def _check_order(settings: Settings, users: Mapping[str, str]) -> None:
    """Refuse what names a place in another order than the one that is asked for."""
    if settings.order == "scheduler":
        return
    asked = f"--order {settings.order}, which assigns the ranks"
    if settings.scope == "task":
        raise UsageError("--scope node", asked, "--scope node, with a launcher that starts the node's tasks")
    if settings.rank is not None or users.get("NODE_RANK"):
        source = settings.source("rank") if settings.rank is not None else "NODE_RANK"
        raise UsageError(f"no rank from {source}", asked, f"either {source} or --order")


def world_id(settings: Settings, facts: JobFacts) -> str:
    """Return the id that all members share. Raises UsageError where nobody says one."""
    found = settings.id or facts.job_id
    if found is None:
        seen = "no job here" if facts.scheduler == "none" else f"none (scheduler: {facts.scheduler})"
        raise UsageError("an id that all members share", seen, "--id NAME")
    return found


def _id(settings: Settings, facts: JobFacts, nodes: int | None) -> str:
    """Return the id that all members share; one that is alone shares it with nobody."""
    return settings.id or facts.job_id or "alone" if nodes == 1 else world_id(settings, facts)


def _nodes(settings: Settings, facts: JobFacts, users: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the number of nodes and where it comes from."""
    nodes, source = settings.nodes, settings.source("nodes")
    if nodes is None and users.get("NNODES"):
        nodes, source = _number(users, "NNODES", least=1, most=MOST_NODES), "NNODES"
    if settings.alone and nodes not in (None, 1):
        raise UsageError("one node, for --alone", f"{nodes} ({source})", "leaving out one of them")
    if source == "NNODES" and facts.nodes not in (None, nodes):
        seen = f"NNODES={nodes}, as exported"
        raise UsageError(f"{facts.nodes} nodes, as {facts.scheduler} says", seen, "unset NNODES, or --nodes N")
    if nodes is None:
        nodes, source = facts.nodes, facts.sources.get("nodes", facts.scheduler)
    elif facts.nodes is not None and nodes > facts.nodes:
        raise UsageError(
            f"at most {facts.nodes} nodes, as {facts.scheduler} says",
            f"{nodes} ({source})",
            "a smaller --nodes",
        )
    if nodes is None and facts.without_nodes:
        raise UsageError(*facts.without_nodes)
    _check_nobody_left_out(nodes, source, settings, facts)
    return nodes, source


def _check_nobody_left_out(nodes: int | None, source: str, settings: Settings, facts: JobFacts) -> None:
    """Refuse, on every node alike, a world without some of the nodes: it would train while the others fail, or alone.

    A job's script may name fewer nodes than the job has for a step that it starts; in a step all nodes take part.
    """
    if nodes == 1 and source == "NNODES" and facts.scheduler == "none":
        raise UsageError("a job, or --nodes N", "NNODES=1 alone, as exported", "unset NNODES, or --alone")
    there = max(facts.nodes or 1, facts.nodes_of_job or 1)
    is_of_step = bool(facts.step and facts.hosts) and settings.rank is None
    if nodes is None or nodes >= there or (nodes > 1 and not is_of_step):
        return
    remedies = {"--nodes": "leaving out --nodes", "MINGLE_NODES": "unset MINGLE_NODES"}
    remedy = remedies.get(source, "starting a process on every node")
    alone = ", or --alone to train on this node only" if nodes == 1 else ""
    raise UsageError(f"all {there} nodes of the job ({facts.scheduler})", f"{nodes} ({source})", f"{remedy}{alone}")


def _rank(settings: Settings, facts: JobFacts, users: Mapping[str, str], nodes: int | None) -> tuple[int | None, str]:
    """Return the node rank and where it comes from."""
    rank, source = settings.rank, settings.source("rank")
    is_told = facts.node_rank is not None and bool(facts.hosts)  # and then NODE_RANK has to be the same
    if rank is None and users.get("NODE_RANK") and not is_told:
        rank, source = _number(users, "NODE_RANK", most=MOST_NODES - 1), "NODE_RANK"
    if rank is None:
        rank, source = facts.node_rank, facts.sources.get("node_rank", facts.scheduler)
        if settings.scope == "task" and len(facts.leader_hosts) > 1:
            # Tasks were placed by hand (srun -m arbitrary): MASTER_ADDR has to be where task 0 is.
            rank, source = 0 if facts.task_rank == 0 else None, facts.sources.get("task_rank", source)
    if rank is not None and nodes is not None and rank >= nodes:
        raise UsageError(f"a node rank from 0 to {nodes - 1}", f"{rank} ({source})", "--rank below --nodes")
    return rank, source


def _slots(settings: Settings, facts: JobFacts, users: Mapping[str, str]) -> tuple[int, SlotsFrom]:
    """Return the slots on this node and where that number comes from."""
    if settings.scope == "task":
        return facts.local_count or 1, "tasks"
    asked = settings.slots
    if isinstance(asked, int):
        return asked, "--slots"
    if asked is None and users.get("LOCAL_WORLD_SIZE"):
        return _number(users, "LOCAL_WORLD_SIZE", least=1, most=MOST_SLOTS), "LOCAL_WORLD_SIZE"
    counts: dict[Counted, int | None] = {
        "gpus": _gpus(facts, users),
        "tasks": facts.local_count,
        "cpus": facts.cpus,
    }
    if asked is not None:
        count = counts[asked]
        if not count:
            raise UsageError(f"a count of {asked} on this node", f"none ({facts.scheduler})", "--slots N")
        return count, asked
    if gpus := counts["gpus"]:
        return gpus, "gpus"
    return (facts.local_count, "tasks") if facts.local_count else (1, "default")


def _binding(settings: Settings, facts: JobFacts, users: Mapping[str, str], rank: int | None) -> GpuBinding | None:
    """Return what is to be done about the GPUs that a task sees; one task of a node, or of the job, tells of it."""
    if settings.scope != "task" or facts.local_rank is None or (facts.local_count or 1) == 1:
        return None

    is_asked = settings.bind == "gpu"
    found = devices.gpu_binding(users, facts.local_rank, facts.local_count or 1, facts.gpus, asked=is_asked)
    tells = facts.local_rank == 1 and (is_asked or rank == 0)
    return found if tells else found._replace(note="")


def _gpus(facts: JobFacts, users: Mapping[str, str]) -> int | None:

    visible = visible_gpus(users)
    return facts.gpus if visible is None else visible


def _pinned(settings: Settings, users: Mapping[str, str], rank: int | None) -> dict[str, str]:
    """Return what the user exported of the world itself; UsageError where it cannot be what it is called.

    NODE_RANK is there only where it contradicts the scheduler: the leader then tells all members.
    """
    pinned = {name: users[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE") if users.get(name)}
    if users.get("NODE_RANK") and settings.rank is None:
        exported = _number(users, "NODE_RANK", most=MOST_NODES - 1)
        pinned |= {"NODE_RANK": str(exported)} if exported != rank else {}
    if "MASTER_PORT" in pinned:
        pinned["MASTER_PORT"] = str(_number(users, "MASTER_PORT", least=1, most=65535))
    if "WORLD_SIZE" in pinned:
        pinned["WORLD_SIZE"] = str(_number(users, "WORLD_SIZE", least=1, most=10**8 - 1))
    addr = pinned.get("MASTER_ADDR", "")
    if addr and not is_hostname_or_address(addr):
        raise UsageError("a host name or an address in MASTER_ADDR", printable(addr, 60), "unset MASTER_ADDR")
    return pinned


def _number(users: Mapping[str, str], name: str, *, least: int = 0, most: int) -> int:
    found = number(users[name], least=least, most=most)
    if found is None:
        seen = f"{name}={printable(users[name], 60)}, as exported"
        raise UsageError(f"a number from {least} to {most} in {name}", seen, f"unset {name}")
    return found
