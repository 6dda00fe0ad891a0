"""The roster is packed once, and only what the answer tells is unpacked."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingle_hooks.rendezvous import messages as packed_roster
from mingle_hooks.rendezvous.wire import MOST_LEADER_BYTES, WireError

ROWS = [[rank, f"node{rank:05}", f"10.1.{rank // 256}.{rank % 256}", 8] for rank in range(16_384)]


def test_what_is_packed_is_unpacked() -> None:
    """Also the largest world's, in less than two megabytes."""
    packed = packed_roster.pack_roster(json.dumps(ROWS).encode())
    assert len(packed) < 2_000_000
    assert packed_roster.unpack_roster(packed) == ROWS


def test_another_roster_than_the_answers_is_refused() -> None:
    """Whoever can write into the connection has no key."""
    packed, other = (packed_roster.pack_roster(json.dumps(ROWS[:count]).encode()) for count in (3, 2))
    with pytest.raises(WireError, match="not the one"):
        packed_roster.check_roster(other, packed_roster.roster_digest(packed))


@pytest.mark.parametrize("text", [b"", b"[[1", b"{", b'"' + b"a" * 30])
def test_a_leader_that_packs_something_else_is_refused(text: bytes) -> None:
    """It holds the key, and lies."""
    for packed in (zlib.compress(text), text, zlib.compress(text)[:-3]):
        with pytest.raises(WireError):
            packed_roster.unpack_roster(packed)


def test_a_roster_that_would_fill_the_memory_is_refused() -> None:
    """A thousandth of it travels."""
    packed = zlib.compress(b" " * (MOST_LEADER_BYTES + 1))
    with pytest.raises(WireError, match="more than"):
        packed_roster.unpack_roster(packed)


@given(st.binary(max_size=200))
def test_whatever_is_unpacked_ends_in_a_value_or_a_refusal(packed: bytes) -> None:
    """Nothing else comes out."""
    try:
        packed_roster.unpack_roster(packed)
    except WireError:
        return
