"""Who differs from three quarters of the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.lint.majority import MAJORITY

if TYPE_CHECKING:
    from collections.abc import Mapping


class Split(NamedTuple):
    """What most say, and each other value with who says it."""

    usual: str
    agreed: int
    odd: dict[str, tuple[str, ...]]


def split(said: Mapping[str, str]) -> Split | None:
    """Return how hosts differ in one thing; None where they agree. `usual` is "" where there is no majority."""
    groups: dict[str, tuple[str, ...]] = {}
    for host, value in said.items():
        groups[value] = (*groups.get(value, ()), host)
    if len(groups) < 2:  # noqa: PLR2004 - they agree
        return None
    ((usual, count),) = Counter({value: len(hosts) for value, hosts in groups.items()}).most_common(1)
    if count < len(said) * MAJORITY:
        return Split("", 0, groups)
    return Split(usual, count, {value: hosts for value, hosts in groups.items() if value != usual})
