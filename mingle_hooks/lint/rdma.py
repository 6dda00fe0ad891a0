"""Who cannot use RDMA where most others can: NCCL would fall back to TCP there, for all, and say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.lint import words
from mingle_hooks.lint.finding import Finding
from mingle_hooks.lint.text import DOWN, NO_DEVICE, NOTHING, SILENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.lint.finding import Group

_WHY = {
    NOTHING: "no RDMA device",
    DOWN: "no active RDMA port",
    NO_DEVICE: "RDMA ports, but no /dev/infiniband",
    SILENT: "an RDMA device that does not answer",
}
MEMLOCK = "memlock"
# Below that NCCL cannot register its buffers, some ten megabytes for each peer; sites set it to unlimited.
_LOW = ("K", *(f"{size}M" for size in (1, 2, 4, 8, 16, 32)))


def marked(groups: Sequence[Group], *, asked: bool) -> list[Group]:
    """Return the groups with what those lack that cannot use RDMA, though it is asked for or most of their like can."""
    whys = [_lack(group.parts) for group in groups]
    like: dict[tuple[str, ...], int] = {}  # members whose nodes should all have it, or all not
    able: dict[tuple[str, ...], int] = {}
    for group, why in zip(groups, whys, strict=True):
        base = _base(group.parts)
        like[base] = like.get(base, 0) + len(group.hosts)
        able[base] = able.get(base, 0) + (0 if why else len(group.hosts))
    odd = {base for base, count in like.items() if asked or 2 * able[base] > count}
    return [
        group._replace(lack=why if _base(group.parts) in odd else "") for group, why in zip(groups, whys, strict=True)
    ]


def findings(groups: Sequence[Group]) -> list[Finding]:
    """Name who lacks it, a line for each reason."""
    able = sum(len(group.hosts) for group in groups if not _lack(group.parts))
    hosts: dict[str, list[str]] = {}
    for group in groups:
        if group.lack:
            why = f"memlock {group.parts['limits.memlock']}, too low for RDMA" if group.lack == MEMLOCK else ""
            hosts.setdefault(why or _WHY[group.lack], []).extend(group.hosts)
    expected = f"RDMA on {words.others(able)}" if able else "RDMA is asked for (rdma = true)"
    return [Finding("rdma", tuple(its), f"{words.some(its)}: {why}; {expected}") for why, its in sorted(hosts.items())]


def _lack(parts: Mapping[str, str]) -> str:
    """Return why a member cannot use RDMA, "" where it can."""
    ports = parts.get("rdma", NOTHING)
    if ports in _WHY:
        return ports
    return MEMLOCK if parts.get("limits.memlock", "").endswith(_LOW) else ""


def _base(parts: Mapping[str, str]) -> tuple[str, ...]:
    """Return what is alike in nodes that should all have it: a loader of data without GPUs need not."""
    return parts.get("gpus", NOTHING).partition(" ")[2], parts.get("kernel.machine", NOTHING)
