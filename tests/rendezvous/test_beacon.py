"""Datagrams are read strictly, for anybody can send them."""

from __future__ import annotations

import random

import pytest
from gathering import ATTEMPT, OTHER, SECRET
from hypothesis import given
from hypothesis import strategies as st

from mingle_hooks.rendezvous import multicast as beacon
from mingle_hooks.rendezvous.multicast import BEACON, QUESTION
from mingle_hooks.rendezvous.multicast import Beacon as Packet
from mingle_hooks.rendezvous.multicast import pack_beacon as pack
from mingle_hooks.rendezvous.multicast import unpack_beacon as unpack
from mingle_hooks.rendezvous.wire import Attempt

WHOLE = Packet(BEACON, ATTEMPT.tag, b"L" * 16, 2**63, 20_000, ("10.0.0.1", "fd00::1", "255.255.255.255"))


ASKING = Packet(QUESTION, ATTEMPT.tag, bytes(16), nonces=(b"12345678",))


@pytest.mark.parametrize("packet", [WHOLE, ASKING, WHOLE._replace(nonces=(b"12345678", b"23456789"))])
def test_what_is_packed_is_unpacked(packet: Packet) -> None:
    """A packet arrives as it was sent, IPv4 addresses as such."""
    assert unpack(pack(packet, SECRET), ATTEMPT.tag, SECRET) == packet


def test_no_packet_is_larger_than_what_is_read() -> None:
    """Only so many addresses and nonces are sent, which fit into the smallest MTU of IPv6 with its headers."""
    packet = WHOLE._replace(addresses=("fd00::1",) * 20, nonces=(b"12345678",) * 200)
    data = pack(packet, SECRET)
    assert len(data) == beacon.MOST_BYTES <= 1280 - 40 - 8
    found = unpack(data, ATTEMPT.tag, SECRET)
    assert found is not None
    assert found.addresses == ("fd00::1",) * beacon.MOST_ADDRESSES
    assert found.nonces == (b"12345678",) * beacon.MOST_NONCES


def test_a_beacon_that_answers_nobody_is_laid_out_as_in_every_version() -> None:
    """Members of another version find its port in it, dial, and are told that the versions differ."""
    data = pack(Packet(BEACON, b"the tag!", b"L" * 16, 7, 20_000, ("10.0.0.1",)), SECRET)
    head = b"MNGL\x01\x01the tag!" + b"L" * 16 + bytes(7) + b"\x07\x4e\x20\x01"
    assert data[:-16] == head + bytes(10) + b"\xff\xff\x0a\x00\x00\x01"
    foreign = unpack(data[:-16] + bytes(16), b"the tag!", OTHER)
    assert foreign is not None
    assert (foreign.kind, foreign.port, foreign.genuine) == (BEACON, 20_000, False)


def test_half_a_nonce_is_none() -> None:
    """Though the key fits: no member says so."""
    whole = pack(ASKING, SECRET)[: -beacon.MAC_BYTES]
    for more, is_whole in ((b"", True), (b"x", False), (b"x" * 8, True)):
        data = whole + more + SECRET.mac(b"beacon", whole + more)[: beacon.MAC_BYTES]
        assert (unpack(data, ATTEMPT.tag, SECRET) is not None) is is_whole


def test_a_packet_of_another_world_is_nothing() -> None:
    """Several worlds may share a group and a port."""
    assert unpack(pack(WHOLE, SECRET), Attempt("another").tag, SECRET) is None


def test_a_packet_under_another_key_is_not_genuine() -> None:
    """It is told from none, so that somebody can say so."""
    found = unpack(pack(WHOLE, OTHER), ATTEMPT.tag, SECRET)
    assert found == WHOLE._replace(genuine=False)


def test_no_changed_bit_and_no_missing_byte_stays_genuine() -> None:
    """The proof covers every byte."""
    data = pack(WHOLE._replace(nonces=(b"12345678",)), SECRET)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << random.Random(at).randrange(8)
        for hostile in (bytes(changed), data[:at], data + data[:at] if at else data[:1]):
            found = unpack(hostile, ATTEMPT.tag, SECRET)
            assert found is None or not found.genuine


@given(data=st.binary(max_size=beacon.MOST_BYTES + 1), begins=st.booleans())
def test_any_bytes_are_a_packet_that_is_not_genuine_or_nothing(data: bytes, *, begins: bool) -> None:
    """No datagram raises."""
    head = beacon.MAGIC + bytes([BEACON]) + ATTEMPT.tag if begins else b""
    found = unpack(head + data, ATTEMPT.tag, SECRET)
    assert found is None or not found.genuine
