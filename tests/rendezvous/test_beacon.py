"""Datagrams are read strictly, for anybody can send them."""

from __future__ import annotations

import random

import pytest
from gathering import ATTEMPT, OTHER, SECRET
from hypothesis import given
from hypothesis import strategies as st

from mingle_hooks.rendezvous import beacon
from mingle_hooks.rendezvous.attempt import Attempt
from mingle_hooks.rendezvous.beacon import BEACON, QUESTION, Packet, pack, unpack

WHOLE = Packet(BEACON, ATTEMPT.tag, b"L" * 16, 2**63, 20_000, ("10.0.0.1", "fd00::1", "255.255.255.255"))


@pytest.mark.parametrize("packet", [WHOLE, Packet(QUESTION, ATTEMPT.tag, bytes(16))])
def test_what_is_packed_is_unpacked(packet: Packet) -> None:
    """A packet arrives as it was sent, IPv4 addresses as such."""
    assert unpack(pack(packet, SECRET), ATTEMPT.tag, SECRET) == packet


def test_no_packet_is_larger_than_what_is_read() -> None:
    """Only so many addresses are sent."""
    packet = WHOLE._replace(addresses=("fd00::1",) * 20)
    data = pack(packet, SECRET)
    assert len(data) == beacon.MOST_BYTES
    found = unpack(data, ATTEMPT.tag, SECRET)
    assert found is not None
    assert found.addresses == ("fd00::1",) * beacon.MOST_ADDRESSES


def test_a_packet_of_another_world_is_nothing() -> None:
    """Several worlds may share a group and a port."""
    assert unpack(pack(WHOLE, SECRET), Attempt("another").tag, SECRET) is None


def test_a_packet_under_another_key_is_not_genuine() -> None:
    """It is told from none, so that somebody can say so."""
    found = unpack(pack(WHOLE, OTHER), ATTEMPT.tag, SECRET)
    assert found == WHOLE._replace(genuine=False)


def test_no_changed_bit_and_no_missing_byte_stays_genuine() -> None:
    """The proof covers every byte."""
    data = pack(WHOLE, SECRET)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << random.Random(at).randrange(8)  # noqa: S311 - a test's choice
        for hostile in (bytes(changed), data[:at], data + data[:at] if at else data[:1]):
            found = unpack(hostile, ATTEMPT.tag, SECRET)
            assert found is None or not found.genuine


@given(st.binary(max_size=beacon.MOST_BYTES + 1), st.booleans())
def test_any_bytes_are_a_packet_that_is_not_genuine_or_nothing(data: bytes, begins: bool) -> None:  # noqa: FBT001
    """No datagram raises."""
    head = beacon.MAGIC + bytes([BEACON]) + ATTEMPT.tag if begins else b""
    found = unpack(head + data, ATTEMPT.tag, SECRET)
    assert found is None or not found.genuine
