"""The request of one call: a MemberSpec from environment, settings and options."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.frameworks import plugin_variables, profiles
from mingle_hooks.export.variables import own
from mingle_hooks.net.addresses import is_hostname_or_address
from mingle_hooks.net.devices import GpuBinding, gpu_binding, visible_gpus
from mingle_hooks.rendezvous.member import MemberSpec, SlotsFrom
from mingle_hooks.rendezvous.wire import Attempt, run_material
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS, JobFacts
from mingle_hooks.settings import Settings, load
from mingle_hooks.values import Counted, number


def member_spec(environ: Mapping[str, str], options: Mapping[str, object]) -> MemberSpec:
    """Return the spec of this call. Raises what settings and schedulers raise, and UsageError if they conflict."""
    user_environ = own(environ)
    settings = load(user_environ, options)
    settings = settings._replace(frameworks=profiles(settings.frameworks))
    if plugin_variables():  # an earlier mingle may have exported the variables of a plugin, which is loaded only now
        user_environ = own(environ)
    facts = detect(user_environ, socket.gethostname(), asks_plugins=settings.id is None)
    facts = _placed(facts.by_itself() if settings.alone else facts, settings)
    _check_scope(settings, facts)
    _check_order(settings, user_environ)
    nodes, nodes_source = _nodes(settings, facts, user_environ)
    slots, slots_from = _slots(settings, facts, user_environ)
    rank, rank_source = _rank(settings, facts, user_environ, nodes)
    return MemberSpec(
        settings=settings,
        facts=facts,
        user_environ=user_environ,
        attempt=Attempt(_id(settings, facts, nodes), facts.step, facts.restarts, run_material(facts.cookie)),
        nodes=nodes,
        nodes_source=nodes_source,
        rank=rank,
        rank_source=rank_source,
        slots=slots,
        slots_from=slots_from,
        pinned=_pinned(settings, user_environ, rank),
        binding=_binding(settings, facts, user_environ, rank),
    )


def _placed(facts: JobFacts, settings: Settings) -> JobFacts:
    """Take the slot as the local rank for --scope task; one slot means one task."""
    if settings.scope != "task" or facts.local_rank is not None:
        return facts
    if facts.slot is None:
        if settings.slots != 1 or facts.is_batch:
            return facts
        return facts._replace(local_rank=0, local_count=1, sources={**facts.sources, "local_rank": "--slots 1"})
    return facts._replace(local_rank=facts.slot, sources={**facts.sources, "local_rank": facts.sources["slot"]})


def _check_scope(settings: Settings, facts: JobFacts) -> None:
    """Raise UsageError, on every task alike, if only some tasks of a step might get a world."""
    if settings.scope == "task" and facts.local_rank is None:
        remedy = "--scope node, --slots 1 with one task on each node, or srun, mpirun or pbsdsh to start the tasks"
        expected = "a task's number on its node from the scheduler, for --scope task"
        raise UsageError(expected, f"none ({facts.scheduler})", remedy)
    if settings.source("scope") != "default":
        return
    tasks = max((facts.local_count or 1, *facts.tasks_per_node))
    if tasks > 1 and facts.local_rank is not None:
        remedy = "--ntasks-per-node=1, --scope task if every task calls mingle, or --scope node if one per node does"
        raise UsageError("one task on each node", f"{tasks} ({facts.scheduler})", remedy)
    # PBS lists slots where Slurm lists tasks. With --slots a member is a node.
    if tasks > 1 and facts.slot is not None and settings.source("slots") == "default":
        remedy = "--scope task if pbsdsh starts every task, or --scope node if pbs_tmrsh starts one on each host"
        raise UsageError("one slot on each host, or --scope", f"{tasks} slots ({facts.scheduler})", remedy)


def _check_order(settings: Settings, user_environ: Mapping[str, str]) -> None:
    """Raise UsageError for a rank, or a scope, that contradicts --order."""
    if settings.order == "scheduler":
        return
    seen = f"--order {settings.order}, which assigns the ranks"
    if settings.scope == "task":
        raise UsageError("--scope node", seen, "--scope node, with a launcher that starts the node's tasks")
    if settings.rank is not None or user_environ.get("NODE_RANK"):
        source = settings.source("rank") if settings.rank is not None else "NODE_RANK"
        raise UsageError(f"no rank from {source}", seen, f"either {source} or --order")


def world_id(settings: Settings, facts: JobFacts) -> str:
    """Return the id that all members share. Raises UsageError if there is none."""
    found = settings.id or facts.job_id
    if found is None:
        seen = "no job here" if facts.scheduler == "none" else f"none (scheduler: {facts.scheduler})"
        raise UsageError("an id that all members share", seen, "--id NAME")
    return found


def _id(settings: Settings, facts: JobFacts, nodes: int | None) -> str:
    """Return the id that all members share; a single member needs none."""
    return settings.id or facts.job_id or "alone" if nodes == 1 else world_id(settings, facts)


def _nodes(settings: Settings, facts: JobFacts, user_environ: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the number of nodes and where it comes from."""
    nodes, source = settings.nodes, settings.source("nodes")
    if nodes is None and user_environ.get("NNODES"):
        nodes, source = _number(user_environ, "NNODES", least=1, most=MOST_NODES), "NNODES"
    if settings.alone and nodes not in (None, 1):
        raise UsageError("one node, for --alone", f"{nodes} ({source})", "leaving out one of them")
    if source == "NNODES" and facts.nodes not in (None, nodes):
        seen = f"NNODES={nodes}, as exported"
        raise UsageError(f"{facts.nodes} nodes, as {facts.scheduler} says", seen, "unset NNODES, or --nodes N")
    if nodes is None:
        nodes, source = facts.nodes, facts.sources.get("nodes", facts.scheduler)
    elif facts.nodes is not None and nodes > facts.nodes:
        expected = f"at most {facts.nodes} nodes, as {facts.scheduler} says"
        raise UsageError(expected, f"{nodes} ({source})", "a smaller --nodes")
    if nodes is None and facts.without_nodes:
        raise UsageError(*facts.without_nodes)
    _check_nobody_left_out(nodes, source, settings, facts)
    return nodes, source


def _check_nobody_left_out(nodes: int | None, source: str, settings: Settings, facts: JobFacts) -> None:
    """Raise UsageError, on every node alike, if some nodes would be left out and fail, or train alone.

    A job script may name fewer nodes than the job has, for a step that it starts; in a step all nodes take part.
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


def _rank(
    settings: Settings, facts: JobFacts, user_environ: Mapping[str, str], nodes: int | None
) -> tuple[int | None, str]:
    """Return the node rank and where it comes from."""
    rank, source = settings.rank, settings.source("rank")
    is_from_scheduler = facts.node_rank is not None and bool(facts.hosts)  # then NODE_RANK must be the same
    if rank is None and user_environ.get("NODE_RANK") and not is_from_scheduler:
        rank, source = _number(user_environ, "NODE_RANK", most=MOST_NODES - 1), "NODE_RANK"
    if rank is None:
        rank, source = facts.node_rank, facts.sources.get("node_rank", facts.scheduler)
        if settings.scope == "task" and len(facts.leader_hosts) > 1:
            # Tasks were placed by hand (srun -m arbitrary): MASTER_ADDR has to be where task 0 is.
            rank, source = 0 if facts.task_rank == 0 else None, facts.sources.get("task_rank", source)
    if rank is not None and nodes is not None and rank >= nodes:
        raise UsageError(f"a node rank from 0 to {nodes - 1}", f"{rank} ({source})", "--rank below --nodes")
    return rank, source


def _slots(settings: Settings, facts: JobFacts, user_environ: Mapping[str, str]) -> tuple[int, SlotsFrom]:
    """Return the slots on this node and where that number comes from."""
    if settings.scope == "task":
        return facts.local_count or 1, "tasks"
    requested = settings.slots
    if isinstance(requested, int):
        return requested, "--slots"
    if requested is None and user_environ.get("LOCAL_WORLD_SIZE"):
        return _number(user_environ, "LOCAL_WORLD_SIZE", least=1, most=MOST_SLOTS), "LOCAL_WORLD_SIZE"
    visible = visible_gpus(user_environ)
    gpus = facts.gpus if visible is None else visible
    counts: dict[Counted, int | None] = {"gpus": gpus, "tasks": facts.local_count, "cpus": facts.cpus}
    if requested is not None:
        count = counts[requested]
        if not count:
            raise UsageError(f"a count of {requested} on this node", f"none ({facts.scheduler})", "--slots N")
        return count, requested
    if gpus:
        return gpus, "gpus"
    return (facts.local_count, "tasks") if facts.local_count else (1, "default")


def _binding(
    settings: Settings, facts: JobFacts, user_environ: Mapping[str, str], rank: int | None
) -> GpuBinding | None:
    """Return which GPUs a task is to see; its note is left to one task of a node, or of the job."""
    if settings.scope != "task" or facts.local_rank is None or (facts.local_count or 1) == 1:
        return None
    is_requested = settings.bind == "gpu"
    found = gpu_binding(user_environ, facts.local_rank, facts.local_count or 1, facts.gpus, is_requested=is_requested)
    shows_note = facts.local_rank == 1 and (is_requested or rank == 0)
    return found if shows_note else found._replace(note="")


def _pinned(settings: Settings, user_environ: Mapping[str, str], rank: int | None) -> dict[str, str]:
    """Return the variables of the world that the user exported. Raises UsageError for an invalid value.

    NODE_RANK is included only if it contradicts the scheduler, so that the leader can report it to all members.
    """
    pinned = {
        name: user_environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE") if user_environ.get(name)
    }
    if user_environ.get("NODE_RANK") and settings.rank is None:
        exported = _number(user_environ, "NODE_RANK", most=MOST_NODES - 1)
        pinned |= {"NODE_RANK": str(exported)} if exported != rank else {}
    if "MASTER_PORT" in pinned:
        pinned["MASTER_PORT"] = str(_number(user_environ, "MASTER_PORT", least=1, most=65535))
    if "WORLD_SIZE" in pinned:
        pinned["WORLD_SIZE"] = str(_number(user_environ, "WORLD_SIZE", least=1, most=10**8 - 1))
    addr = pinned.get("MASTER_ADDR", "")
    if addr and not is_hostname_or_address(addr):
        raise UsageError("a host name or an address in MASTER_ADDR", printable(addr, 60), "unset MASTER_ADDR")
    return pinned


def _number(user_environ: Mapping[str, str], name: str, *, least: int = 0, most: int) -> int:
    found = number(user_environ[name], least=least, most=most)
    if found is None:
        seen = f"{name}={printable(user_environ[name], 60)}, as exported"
        raise UsageError(f"a number from {least} to {most} in {name}", seen, f"unset {name}")
    return found
