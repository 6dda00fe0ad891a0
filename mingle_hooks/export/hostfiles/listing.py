"""Who is in the world, for programs that take a list of hosts: from the scheduler where it tells, else from all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.export.hostfiles import Addresses
from mingle_hooks.export.launchers.placement import is_first_host
from mingle_hooks.job import MemberSpec
from mingle_hooks.joining import join
from mingle_hooks.rendezvous.request import Observer
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import Settings
from mingle_hooks.world import Member


def named(hosts: Sequence[str], settings: Settings) -> tuple[Member, ...]:
    """Return hosts that a person named, each with as many slots as --slots says, or one. Raises UsageError."""
    slots = settings.slots if settings.slots is not None else 1
    if not isinstance(slots, int):
        raise UsageError("--slots N with --hosts", f"--slots {slots}, which each host counts for itself", "a number")
    return tuple(Member(rank, host, "", slots) for rank, host in enumerate(hosts))


class Listing(NamedTuple):
    """The members of a world in rank order, and the same under the names that they call themselves."""

    members: tuple[Member, ...]
    by_own_names: tuple[Member, ...] = ()


def members(spec: MemberSpec, observer: Observer, addresses: Addresses) -> Listing:
    """Return the members of this job's world, under the scheduler's names where it has some.

    Where the scheduler tells all that is asked nobody else is; an address that nobody was asked for is empty.
    Raises UsageError in a shell that cannot ask the others and would have to, and what join() raises.
    """
    told, is_batch = _told(spec), spec.facts.is_batch
    if told and (spec.nodes == 1 or addresses == "unused" or (is_batch and addresses == "shown")):
        return Listing(told)
    if is_batch:
        raise _cannot_ask(spec, is_known=bool(told))

    roster = join(spec, observer, wants_roster=True, command=None).world.roster
    hosts = _hosts(spec)
    return Listing(tuple(row._replace(host=hosts[row.node_rank]) for row in roster) if hosts else roster, roster)


def _cannot_ask(spec: MemberSpec, *, is_known: bool) -> UsageError:
    if is_known:
        on_every_node = f"{spec.facts.on_every_node} " if spec.facts.on_every_node else ""
        seen = "a shell that runs on one host only"
        return UsageError("an address from every host", seen, f"`{on_every_node}mingle hosts` on every host")
    expected, seen = "the slots of every host from the scheduler", f"{spec.slots} here ({spec.slots_from})"
    return UsageError(expected, seen, "--slots N, if all hosts have the same number")


def _told(spec: MemberSpec) -> tuple[Member, ...]:
    """Return the members as far as the scheduler knows them; nothing where it does not know all hosts and slots."""
    hosts, facts = _hosts(spec), spec.facts
    if spec.nodes == 1:
        from mingle_hooks.net.addresses import hostname

        return (Member(0, hosts[0] if hosts else hostname(), "", spec.slots),)
    if spec.slots_from in ("--slots", "LOCAL_WORLD_SIZE"):
        slots = (spec.slots,) * len(hosts)
    elif spec.slots_from == "tasks" and _is_on_a_node(facts):
        slots = facts.tasks_per_node
    else:
        slots = ()
    if len(slots) != len(hosts):
        return ()
    return tuple(Member(rank, host, "", slots[rank]) for rank, host in enumerate(hosts))


def _is_on_a_node(facts: JobFacts) -> bool:
    """Tell whether this host is one of the job's: only there it shows that there are no GPUs to count."""
    return not facts.is_batch or is_first_host(facts)


def _hosts(spec: MemberSpec) -> tuple[str, ...]:
    """Return the scheduler's names in the order of the ranks; nothing where it has none, or the ranks are others."""
    facts = spec.facts
    is_theirs = spec.rank == facts.node_rank and spec.settings.order == "scheduler"
    return facts.hosts if len(facts.hosts) == spec.nodes and is_theirs else ()
