from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers.hostlist import _pair
from mingle_hooks.schedulers.hostlist import expand_counts as expand

COUNT = re.compile(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?")


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


@given(st.text(alphabet="0127(x)² ", max_size=8) | st.from_regex(COUNT, fullmatch=True))
@example("2(x3)")
@example("2(x3")
@example("2(x)")
@example("12345678")
def test_a_count_is_one_with_or_without_a_number_of_nodes(part: str) -> None:
    """As the expression says."""
    match = COUNT.fullmatch(part)
    assert _pair(part) == ((int(match[1]), int(match[2] or 1)) if match else None)
