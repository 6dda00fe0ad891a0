"""Kinds of node: a job may have several on purpose, and only nodes of one kind are compared with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.lint.finding import KINDS, Finding
from mingle_hooks.lint.text import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.lint.finding import Group

    Key = tuple[str, ...]

# What makes a kind, and how many of all members are one: fewer are nodes of another kind with something broken.
PARTS = ("gpus", "rdma.link", "kernel.machine")
FEWEST, FEWEST_SHARE = 2, 0.05


def split(groups: Sequence[Group]) -> dict[Key, list[Group]]:
    """Return kind -> its groups, the largest kind first; who is of none joins the one that is most like it."""
    links = _links(groups)
    keys = [_key(group, links) for group in groups]
    counts: dict[Key, int] = {}
    for key, group in zip(keys, groups, strict=True):
        counts[key] = counts.get(key, 0) + len(group.hosts)
    least = max(FEWEST, FEWEST_SHARE * sum(counts.values()))
    known = sorted((key for key, count in counts.items() if count >= least), key=lambda key: (-counts[key], key))
    if len(known) < 2:  # noqa: PLR2004 - one kind, or so few members that none is
        return {known[0] if known else (): list(groups)}
    kinds: dict[Key, list[Group]] = {key: [] for key in known}
    for key, group in zip(keys, groups, strict=True):
        kinds[key if key in kinds else max(known, key=lambda other: _alike(key, other))].append(group)
    return kinds


def finding(kinds: dict[Key, list[Group]]) -> list[Finding]:
    """Tell of the kinds where there are several."""
    if len(kinds) == 1:
        return []
    names = [_name(key, list(kinds)) for key in kinds]
    counts = [sum(len(group.hosts) for group in groups) for groups in kinds.values()]
    told = "; ".join(f"{count} × {name}" for count, name in zip(counts, names, strict=True))
    return [Finding(KINDS, (), f"{len(kinds)} kinds of node: {told}")]


def _key(group: Group, links: Mapping[Key, Mapping[str, int]]) -> Key:
    """Return a group's kind; a node whose RDMA device is gone is still of the kind that most like it are."""
    gpus, link, machine = (group.parts.get(part, NOTHING) for part in PARTS)
    if link == NOTHING:
        counts = links[gpus, machine]
        link = max(counts, key=lambda its: (counts[its], its))
    return gpus, link, machine


def _links(groups: Sequence[Group]) -> dict[Key, dict[str, int]]:
    """Return GPUs and machine -> RDMA link -> how many members have it."""
    links: dict[Key, dict[str, int]] = {}
    for group in groups:
        gpus, link, machine = (group.parts.get(part, NOTHING) for part in PARTS)
        counts = links.setdefault((gpus, machine), {})
        counts[link] = counts.get(link, 0) + len(group.hosts)
    return links


def _alike(key: Key, other: Key) -> int:
    return sum(mine == its for mine, its in zip(key, other, strict=True))


def _name(key: Key, kinds: Sequence[Key]) -> str:
    """Return a kind's GPUs, and what else tells it from another kind with the same ones."""
    gpus = "no GPUs" if key[0] == NOTHING else key[0]
    same = [other for other in kinds if other[0] == key[0]]
    differs = [key[place] for place in (1, 2) if len({other[place] for other in same}) > 1]
    return " ".join([gpus, *("no RDMA" if its == NOTHING else its for its in differs)])
