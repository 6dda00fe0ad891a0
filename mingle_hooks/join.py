"""One call of mingle: from the environment and the options to this member's place in the world."""

from __future__ import annotations

import socket

from mingle_hooks import runtime
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.frameworks import CPU_ONLY, HCAS, IFACE, ROSTER, needs, profiles
from mingle_hooks.export.variables import own
from mingle_hooks.export.view import View
from mingle_hooks.rendezvous.attempt import Attempt, Secret, run_of
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS
from mingle_hooks.schedulers.table import detect
from mingle_hooks.settings import load
from mingle_hooks.typed import TYPE_CHECKING, NamedTuple
from mingle_hooks.values import number
from mingle_hooks.world import Place, Seat, World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.rendezvous.keys import Key
    from mingle_hooks.rendezvous.request import Request
    from mingle_hooks.rendezvous.watcher import Watcher
    from mingle_hooks.rendezvous.wire import Body
    from mingle_hooks.schedulers.facts import JobFacts
    from mingle_hooks.settings import Settings


class Enquiry(NamedTuple):
    """What one call asks: the facts, completed by what the user said."""

    settings: Settings
    facts: JobFacts
    own: Mapping[str, str]  # the user's environment
    attempt: Attempt
    nodes: int | None
    nodes_source: str
    rank: int | None
    rank_source: str
    slots: int
    slots_from: str
    given: Mapping[str, str]

    @property
    def is_shared(self) -> bool:
        """Whether several tasks on this node get one member's answer."""
        return self.settings.scope == "task" and (self.facts.local_count or 1) > 1


def enquire(environ: Mapping[str, str], options: Mapping[str, object]) -> Enquiry:
    """Return what is asked. Raises what settings and schedulers raise, and UsageError where they clash."""
    users = own(environ)
    settings = load(users, options)
    settings = settings._replace(frameworks=profiles(settings.frameworks))
    facts = _placed(detect(users, socket.gethostname()), settings)
    _check_scope(settings, facts)
    nodes, nodes_source = _nodes(settings, facts, users)
    slots, slots_from = _slots(settings, facts, users)
    rank, rank_source = _rank(settings, facts, users, nodes)
    return Enquiry(
        settings=settings,
        facts=facts,
        own=users,
        attempt=Attempt(_id(settings, facts), facts.step, facts.restarts, run_of(facts.cookie)),
        nodes=nodes,
        nodes_source=nodes_source,
        rank=rank,
        rank_source=rank_source,
        slots=slots,
        slots_from=slots_from,
        given=_given(settings, users, rank),
    )


def join(enquiry: Enquiry, watcher: Watcher, *, no_wait: bool = False) -> View:
    """Return this member's view of the world: with the others, or without them where there is no need."""
    is_one = enquiry.nodes == 1
    if (is_one or no_wait) and "NODE_RANK" in enquiry.given:  # else the leader says it, to all
        exported = f"NODE_RANK={enquiry.given['NODE_RANK']}, as it was exported"
        raise UsageError(f"node rank {enquiry.rank}, as {enquiry.facts.scheduler} says", exported, "unset NODE_RANK")
    if not is_one and (no_wait or enquiry.facts.is_batch):
        from mingle_hooks.alone import without_waiting  # noqa: PLC0415 - a member that waits needs none of it

        if enquiry.facts.is_batch:
            from mingle_hooks.launchers import placement  # noqa: PLC0415 - as above

            where, line = placement.here(enquiry.facts), placement.everywhere(enquiry.facts, ("torchrun", "train.py"))
            watcher.note(f"this shell runs on {where} only, so no NODE_RANK here; to train on all nodes: {line}")
        return without_waiting(enquiry)
    if is_one and not enquiry.is_shared:
        from mingle_hooks.alone import only_member  # noqa: PLC0415 - as above

        return _view(enquiry, only_member(enquiry))
    return _view(enquiry, _answer(enquiry, watcher))


def _answer(enquiry: Enquiry, watcher: Watcher) -> Body:
    """Return the answer of the members' meeting, or of this node's first task where several share it."""
    from mingle_hooks.rendezvous import keys  # noqa: PLC0415 - one member alone needs no key
    from mingle_hooks.rendezvous.meeting import meet  # noqa: PLC0415 - nor a meeting

    settings, facts = enquiry.settings, enquiry.facts
    key = keys.find(facts, settings, enquiry.own)
    if settings.insecure:
        watcher.note("--insecure: anybody on this network can join this world or break it")

    runtime.record(facts.job_id)

    def ask(timeout_s: float) -> Body:
        if enquiry.nodes == 1:
            from mingle_hooks.alone import only_member  # noqa: PLC0415 - as above

            return only_member(enquiry)
        return meet(_request(enquiry, key, timeout_s), watcher)

    if not enquiry.is_shared or facts.local_rank is None or facts.local_count is None:
        if "torchrun-elastic" in settings.frameworks:
            from mingle_hooks.rejoin import with_memory  # noqa: PLC0415 - few ask for it

            return with_memory(enquiry, key.material, watcher, lambda: ask(settings.timeout))
        return ask(settings.timeout)
    from mingle_hooks.rendezvous import siblings  # noqa: PLC0415 - only where tasks share a node

    name = Secret.derive(key.material, enquiry.attempt).mac(b"siblings").hex()[:16]
    directory = runtime.path(enquiry.own, facts.job_id, name)
    if facts.local_rank:
        return siblings.other(directory, facts.local_rank, settings.timeout)
    return siblings.first(directory, facts.local_count, settings.timeout, ask)


def _request(enquiry: Enquiry, key: Key, timeout_s: float) -> Request:
    from mingle_hooks.fabric.machine import hostname, identity  # noqa: PLC0415
    from mingle_hooks.rendezvous.request import Request  # noqa: PLC0415
    from mingle_hooks.rendezvous.ways import chosen  # noqa: PLC0415

    settings, facts = enquiry.settings, enquiry.facts
    hosts = facts.hosts if len(facts.hosts) == enquiry.nodes else ()
    return Request(
        attempt=enquiry.attempt,
        key=key.material,
        key_from=key.source,
        host=hostname(),
        machine=identity(),
        slots=enquiry.slots,
        rank=enquiry.rank,
        rank_source=enquiry.rank_source,
        nodes=enquiry.nodes,
        timeout_s=timeout_s,
        given=enquiry.given,
        trusts_addr=settings.master is not None or bool(enquiry.own.get("KUBERNETES_SERVICE_HOST")),
        wants_roster=ROSTER in needs(settings.frameworks),
        hosts=hosts,
        leader_hosts=facts.leader_hosts,
        host_suffix=settings.host_suffix,
        master=settings.master,
        directory=settings.directory,
        via=chosen(settings.via),
        prefer=settings.iface,
        port_range=settings.port_range,
        ttl=settings.multicast_ttl,
    )


def _view(enquiry: Enquiry, answer: Body) -> View:
    facts, settings = enquiry.facts, enquiry.settings
    world = World(
        id=enquiry.attempt.id,
        nodes=answer["nodes"],
        size=answer["size"],
        master_addr=answer["addr"],
        master_port=answer["port"],
        digest=answer["digest"],
        roster=tuple(Seat(*row) for row in answer.get("roster", ())),
    )
    place = Place(answer["rank"], enquiry.slots, answer["offset"], address=answer["own"])
    if settings.scope == "task" and facts.local_rank is not None:
        rank = facts.task_rank if facts.task_rank is not None else answer["offset"] + facts.local_rank
        place = place._replace(local_rank=facts.local_rank, rank=rank)
    return _with_network(enquiry, world, place)


def _with_network(enquiry: Enquiry, world: World, place: Place) -> View:
    """Add the interface and the InfiniBand ports where a framework asks for them."""
    asked = needs(enquiry.settings.frameworks)
    hcas: tuple[str, ...] = ()
    if IFACE in asked and place.address is not None:
        from mingle_hooks.fabric.interfaces import name_of  # noqa: PLC0415 - only then

        place = place._replace(iface=name_of(place.address))
    if HCAS in asked:
        from mingle_hooks.fabric.infiniband import active_ports  # noqa: PLC0415 - only then

        hcas = tuple(port for port, _ in active_ports())
    is_cpu_only = False
    if CPU_ONLY in asked:
        from mingle_hooks.fabric.gpus import has_accelerator  # noqa: PLC0415 - only then

        is_cpu_only = not has_accelerator(enquiry.own)
    return View(world, place, enquiry.settings.scope, enquiry.own, hcas, is_cpu_only)


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
            "--scope task where every task asks, --ntasks-per-node=1, or --scope node where one on each node does",
        )
    # PBS lists slots where Slurm lists tasks. Who says how many slots a member has means a node by it.
    if tasks > 1 and facts.slot is not None and settings.source("slots") == "default":
        raise UsageError(
            "one slot on each host, or --scope",
            f"{tasks} slots ({facts.scheduler})",
            "--scope task where every task of pbsdsh asks, --scope node where pbs_tmrsh starts one on each host",
        )


def _id(settings: Settings, facts: JobFacts) -> str:
    found = settings.id or facts.job_id
    if found is None:
        seen = "no job here that has one" if facts.scheduler == "none" else f"none (scheduler: {facts.scheduler})"
        raise UsageError("an id that all members share", seen, "--id NAME")
    return found


def _nodes(settings: Settings, facts: JobFacts, users: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the number of nodes and where it comes from."""
    nodes, source = settings.nodes, settings.source("nodes")
    if nodes is None and users.get("NNODES"):
        nodes, source = _number(users, "NNODES", least=1, most=MOST_NODES), "NNODES"
        if facts.nodes not in (None, nodes):
            seen = f"NNODES={nodes}, as it was exported"
            raise UsageError(f"{facts.nodes} nodes, as {facts.scheduler} says", seen, "unset NNODES, or --nodes")
    if nodes is None:
        nodes, source = facts.nodes, facts.sources.get("nodes", facts.scheduler)
    elif facts.nodes is not None and nodes > facts.nodes:
        raise UsageError(
            f"at most {facts.nodes} nodes, as {facts.scheduler} says",
            f"{nodes} ({source})",
            "a smaller --nodes",
        )
    if nodes is None and facts.scheduler == "slurm":  # a shell of ssh, where somebody set SLURM_JOB_ID
        seen = f"SLURM_JOB_ID={facts.job_id} alone, as in a shell of ssh"
        raise UsageError("a step of the job", seen, f"srun --jobid={facts.job_id} --overlap in front, or --nodes N")
    if nodes is None and facts.scheduler == "none":
        raise UsageError("a job, or --nodes N", "no job here", "to run it inside srun, or give --nodes N")
    if nodes is None and facts.scheduler in ("kubernetes", "given"):
        raise UsageError("the number of members", "none", "--nodes N, MINGLE_NODES or NNODES")
    return nodes, source


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


def _slots(settings: Settings, facts: JobFacts, users: Mapping[str, str]) -> tuple[int, str]:
    """Return the slots on this node and where that number comes from."""
    if settings.scope == "task":
        return facts.local_count or 1, "tasks"
    asked = settings.slots
    if isinstance(asked, int):
        return asked, "--slots"
    if asked is None and users.get("LOCAL_WORLD_SIZE"):
        return _number(users, "LOCAL_WORLD_SIZE", least=1, most=MOST_SLOTS), "LOCAL_WORLD_SIZE"
    counts = {"gpus": _gpus(facts, users), "tasks": facts.local_count, "cpus": facts.cpus}
    if asked is not None:
        count = counts[asked]
        if not count:
            raise UsageError(f"a number of {asked} on this node", f"none ({facts.scheduler})", "--slots N")
        return count, asked
    return next(((counts[kind], kind) for kind in ("gpus", "tasks") if counts[kind]), (1, "default"))  # type: ignore[return-value]


def _gpus(facts: JobFacts, users: Mapping[str, str]) -> int | None:
    from mingle_hooks.fabric.gpus import visible_gpus  # noqa: PLC0415 - not needed where --slots says it

    visible = visible_gpus(users)
    return facts.gpus if visible is None else visible


def _given(settings: Settings, users: Mapping[str, str], rank: int | None) -> dict[str, str]:
    """Return what the user exported of the world itself; UsageError where it cannot be what it is called.

    NODE_RANK is there only where it contradicts the scheduler: the leader then tells all members.
    """
    given = {name: users[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE") if users.get(name)}
    if users.get("NODE_RANK") and settings.rank is None:
        exported = _number(users, "NODE_RANK", most=MOST_NODES - 1)
        given |= {"NODE_RANK": str(exported)} if exported != rank else {}
    if "MASTER_PORT" in given:
        given["MASTER_PORT"] = str(_number(users, "MASTER_PORT", least=1, most=65535))
    if "WORLD_SIZE" in given:
        given["WORLD_SIZE"] = str(_number(users, "WORLD_SIZE", least=1, most=10**8 - 1))
    addr = given.get("MASTER_ADDR", "")
    if len(addr) > 253 or not all(c.isascii() and (c.isalnum() or c in "-_.:%") for c in addr):  # noqa: PLR2004 - DNS
        raise UsageError("a host name or an address in MASTER_ADDR", printable(addr, 60), "unset MASTER_ADDR")
    return given


def _number(users: Mapping[str, str], name: str, *, least: int = 0, most: int) -> int:
    found = number(users[name], least=least, most=most)
    if found is None:
        seen = f"{name}={printable(users[name], 60)}, as it was exported"
        raise UsageError(f"a number from {least} to {most} in {name}", seen, f"unset {name}")
    return found
