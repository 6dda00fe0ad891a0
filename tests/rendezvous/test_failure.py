"""A failure says the same on every member."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mingle_hooks.errors import MingleError
from mingle_hooks.rendezvous.messages import _KINDS, LONGEST_PART, MOST_PARTS, Failure
from mingle_hooks.rendezvous.wire import WireError, decode, encode

KINDS = sorted(_KINDS)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)  # of each of the kinds, which read their parts alike
@given(parts=st.lists(st.text(max_size=2 * LONGEST_PART), min_size=MOST_PARTS, max_size=MOST_PARTS))
def test_every_kind_travels_and_says_the_same_there(kind: str, parts: list[str]) -> None:
    """Whatever its parts are: hostile text in them never makes it unreadable, nor a second line."""
    failure = Failure(kind, tuple(parts))
    there = Failure.parse(decode(encode(failure.body())))
    assert str(there.error()) == str(failure.error())
    assert str(there.error()).isprintable()
    assert type(there.error()) is _KINDS[kind][0]
    assert isinstance(there.error(), MingleError)


def test_braces_in_a_part_are_only_text() -> None:
    """Nothing in a part is looked up."""
    failure = Failure("rank", ("{0.__class__}", "{1}", "{9}"))
    assert "{0.__class__}" in str(failure.error())


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "nonsense", "parts": []},
        {"kind": "rank", "parts": ["1"]},
        {"kind": "rank", "parts": "123"},
        {"kind": "rank", "parts": ["1"] * (MOST_PARTS + 1)},
        {"kind": "rank", "parts": ["1", "2", 3]},
        {"kind": "rank", "parts": ["1", "2", "\x1b[2J"]},
        {"kind": "rank", "parts": ["1", "2", "x" * (LONGEST_PART + 1)]},
        {"kind": ["rank"], "parts": ["1", "2", "3"]},
    ],
)
def test_what_is_no_failure_is_refused(body: dict[str, object]) -> None:
    """WireError, and nothing else."""
    with pytest.raises(WireError):
        Failure.parse(body)
