"""Who differs from nearly all: three of four that agree name the fourth, and below that nobody is blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.lint import words
from mingle_hooks.lint.finding import Finding
from mingle_hooks.lint.text import FULL, MORE, is_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mingle_hooks.lint.finding import Group

MAJORITY = 0.75
MOST_VALUES = 4  # in a line without a majority
# Variables that the same hosts have otherwise, beyond which one line tells of all.
MOST_VARIABLES = 2
MOST_NAMES = 3  # of these in that line
# So many different values of one variable, at least as many as half of the members: each node has its own by nature.
FEWEST_OF_NATURE = 3
# The ports tell of it.
_NOT_COMPARED = "rdma.link"


def differences(groups: Sequence[Group]) -> list[Finding]:
    """Return how members of one kind differ, in the order of their parts."""
    keys = {key for group in groups for key in group.parts} - {_NOT_COMPARED, MORE}
    found = [finding for key in sorted(keys) for finding in _of(key, groups)]
    fields, variables = [f for f in found if f.field != "environment"], [f for f in found if f.field == "environment"]
    if not variables:
        variables = _of(MORE, groups)
    return [*fields, *_together(variables)]


def _of(key: str, groups: Sequence[Group]) -> list[Finding]:
    values: dict[str, list[str]] = {}
    for group in groups:
        value = _value(key, group)
        if value is not None:
            values.setdefault(value, []).extend(group.hosts)
    total = sum(len(hosts) for hosts in values.values())
    if len(values) < 2 or (is_variable(key) and FEWEST_OF_NATURE <= len(values) >= total / 2):  # noqa: PLR2004 - all agree
        return []
    ordered = sorted(values, key=lambda value: (-len(values[value]), value))
    field = "environment" if key == MORE else words.field(key)
    label = "other variables" if key == MORE else words.label(key)
    most = len(values[ordered[0]])
    if most < MAJORITY * total:
        told = [f"{words.some(values[value])} {words.value(value)}" for value in ordered[:MOST_VALUES]]
        told += [f"{len(ordered) - MOST_VALUES} more values"] if ordered[MOST_VALUES:] else []
        return [Finding(field, (), f"no majority for {label}: {'; '.join(told)}")]
    expected = f"{words.others(most)} {words.value(ordered[0])}"
    return [
        Finding(field, tuple(values[value]), f"{words.some(values[value])}: {label} {words.value(value)}, {expected}")
        for value in ordered[1:]
    ]


def _value(key: str, group: Group) -> str | None:
    """Return what a group says, None where it says nothing, or what is told in another way."""
    if is_variable(key):
        is_known = MORE not in group.parts or key < max(group.parts, key=_variable)
        return group.parts.get(key, words.UNSET if is_known else None)
    value = group.parts.get(key)
    is_told = value == FULL or (group.lack and words.field(key) == "rdma") or key == f"limits.{group.lack}"
    return None if is_told else value


def _variable(name: str) -> str:
    return name if is_variable(name) else ""


def _together(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding where the same hosts differ in many variables: somebody's profile was not read there."""
    by_hosts: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        by_hosts.setdefault(finding.hosts, []).append(finding)
    found = []
    for hosts, its in by_hosts.items():
        if len(its) <= MOST_VARIABLES or not hosts:
            found += its
            continue
        names = [finding.text.partition(": ")[2].partition(" ")[0] for finding in its]
        rest = f" and {len(its) - MOST_NAMES} more" if its[MOST_NAMES:] else ""
        found.append(Finding("environment", hosts, f"{words.some(hosts)}: other {', '.join(names[:MOST_NAMES])}{rest}"))
    return found
