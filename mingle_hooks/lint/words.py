"""How findings read: folded lists of hosts, names and values as people know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.differences import FIELDS
from mingle_hooks.lint.text import NOTHING, is_variable
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mingle_hooks.lint.finding import Finding

# Characters of a folded list, of which a line has up to four; and of the one that has to be whole to be of use.
LONGEST_LIST, LONGEST_EXCLUDE = 80, 300
FEW = 4  # hosts of a list that is too long
MOST_LINES = 10
UNSET = "not set"
EXCLUDE = "to leave out: "
_LABELS = {
    "shm": "/dev/shm",  # noqa: S108 - its name
    "tmp": "/tmp",  # noqa: S108
    "gpus": "GPUs",
    "rdma": "RDMA",
    "rdma.firmware": "RDMA firmware",
    "kernel.machine": "machine",
}
_VALUES = {NOTHING: "none", "ok": "in order", "silent": "that does not answer"}


def label(key: str) -> str:
    """Return what a part is called."""
    return _LABELS.get(key, key.rpartition(".")[2])


def value(text: str) -> str:
    """Return a value as messages show it."""
    return _VALUES.get(text, text)


def some(hosts: Sequence[str]) -> str:
    """Return the folded list of these hosts, or of the first of them and how many more there are."""
    text = fold(list(hosts))
    if len(text) <= LONGEST_LIST:
        return text
    names = list(dict.fromkeys(hosts))
    return f"{fold(names[:FEW])} and {len(names) - FEW} more"


def others(count: int) -> str:
    """Return so many other members in words."""
    return "1 other" if count == 1 else f"{count} others"


def lines(findings: Iterable[Finding]) -> list[str]:
    """Return at most ten lines: a difference each, and the option that leaves out the nodes that are blamed."""
    order = {name: place for place, name in enumerate(FIELDS)}
    ordered = sorted(findings, key=lambda finding: order.get(finding.field, -1))
    last = exclude(ordered)
    room = MOST_LINES - len(last)
    if len(ordered) > room:
        rest = len(ordered) - room + 1
        last = [f"and {rest} more differences", *last]
        ordered = ordered[: room - 1]
    return [*(finding.text for finding in ordered), *last]


def exclude(findings: Iterable[Finding]) -> list[str]:
    """Return the line for sbatch that leaves out whose node itself is odd: none where no node is, or too many are."""
    hosts = fold([host for finding in findings if finding.field != "environment" for host in finding.hosts])
    return [f"{EXCLUDE}--exclude={hosts}"] if 0 < len(hosts) <= LONGEST_EXCLUDE else []


def field(key: str) -> str:
    """Return the field that a part belongs to."""
    return "environment" if is_variable(key) else key.partition(".")[0]
