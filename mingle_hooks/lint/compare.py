"""Which members are not like the others. Pure: no files, no clock, no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.lint import kinds, rdma, text, thresholds
from mingle_hooks.lint.finding import Group
from mingle_hooks.lint.majority import differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mingle_hooks.lint.finding import Compared, Finding


def compare(
    members: Sequence[Compared], *, asks_rdma: bool = False, unreached: Iterable[tuple[str, Sequence[str]]] = ()
) -> list[Finding]:
    """Return what differs; a member without a fingerprint is not compared.

    `asks_rdma`: everyone has to have RDMA. `unreached`: better addresses of rank 0 than the world's, with the hosts
    that did not reach them.
    """
    members = [member for member in members if member.fingerprint]
    found = [*thresholds.clocks(members), *thresholds.addresses(members), *thresholds.reach(unreached, len(members))]
    groups = _groups(members)
    if len(groups) == 1 and not asks_rdma:
        return [*found, *thresholds.space(groups)]
    groups = rdma.marked(groups, asked=asks_rdma)
    by_kind = kinds.split(groups)
    return [
        *kinds.finding(by_kind),
        *rdma.findings(groups),
        *found,
        *thresholds.space(groups),
        *(finding for kind in by_kind.values() for finding in differences(kind)),
    ]


def _groups(members: Sequence[Compared]) -> list[Group]:
    """Put members together whose text is the same, and read each text once: of thousands, few are different."""
    hosts: dict[str, list[str]] = {}
    for member in members:
        hosts.setdefault(member.fingerprint, []).append(member.host)
    return [Group(text.loads(its), names) for its, names in hosts.items()]
