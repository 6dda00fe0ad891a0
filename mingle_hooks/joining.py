"""From what is asked to this member's view of the world."""

from __future__ import annotations

from mingle_hooks import runtime
from mingle_hooks.errors import UsageError
from mingle_hooks.export.frameworks import CPU_ONLY, HCAS, IFACE, MEMORY, ROSTER, needs
from mingle_hooks.export.view import View
from mingle_hooks.rendezvous.attempt import Secret
from mingle_hooks.typed import TYPE_CHECKING
from mingle_hooks.world import Place, Seat, World

if TYPE_CHECKING:
    from mingle_hooks.job import Enquiry
    from mingle_hooks.rendezvous.keys import Key
    from mingle_hooks.rendezvous.request import Request
    from mingle_hooks.rendezvous.siblings import Siblings
    from mingle_hooks.rendezvous.watcher import Watcher
    from mingle_hooks.rendezvous.wire import Body


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

    def ask(timeout_s: float, siblings: Siblings | None = None) -> Body:
        if enquiry.nodes == 1:
            from mingle_hooks.alone import only_member  # noqa: PLC0415 - as above

            return only_member(enquiry)
        return meet(_request(enquiry, key, timeout_s)._replace(siblings=siblings), watcher)

    if not enquiry.is_shared or facts.local_rank is None or facts.local_count is None:
        if MEMORY in needs(settings.frameworks):
            from mingle_hooks.rejoin import with_memory  # noqa: PLC0415 - few ask for it

            return with_memory(enquiry, key.material, watcher, lambda: ask(settings.timeout))
        return ask(settings.timeout)
    from mingle_hooks.rendezvous.meetingpoint import names  # noqa: PLC0415 - only where tasks share a node

    secret = Secret.derive(key.material, enquiry.attempt)
    directories = [runtime.path(enquiry.own, facts.job_id, name) for name in names(secret)]
    if facts.local_rank:
        from mingle_hooks.rendezvous.follower import follow  # noqa: PLC0415 - as above

        return follow(directories, facts.local_rank, settings.timeout)
    from mingle_hooks.fabric.machine import hostname  # noqa: PLC0415 - as above
    from mingle_hooks.rendezvous.siblings import first  # noqa: PLC0415 - as above

    return first(directories, hostname(), facts.local_count, settings.timeout, ask)


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
        port_hold=settings.port_hold,
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
    return View(world, place, enquiry.settings.scope, enquiry.own, hcas, is_cpu_only, enquiry.settings.frameworks)
