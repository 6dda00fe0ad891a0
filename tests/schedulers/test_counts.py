from __future__ import annotations

import pytest

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers.counts import expand


@pytest.mark.parametrize(
    ("text", "counts"),
    [("2", (2,)), ("2(x3),1", (2, 2, 2, 1)), ("1,2(x2),4", (1, 2, 2, 4)), ("8(x1)", (8,))],
)
def test_expands_counts_for_each_node(text: str, counts: tuple[int, ...]) -> None:
    """`2(x3),1` is two tasks on each of three nodes, and one on the fourth."""
    assert expand(text) == counts


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "2,", "x", "-1", "2(x", "2(x3", "2(x0)", "2(3)", "2 (x3)", "+2", "\u0662", "$(id)", "2\n"),
        *("1(x65537)", "1(x9999999)", "9" * 100_000, "1," * 100_000, "1(x60000),1(x60000)"),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_refuses_anything_else(text: str) -> None:
    """Other text, and counts for more nodes than there can be, are errors of the facts."""
    with pytest.raises(FactsError):
        expand(text)
