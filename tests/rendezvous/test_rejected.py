"""A rejected peer is noted once, and their number is bounded."""

from __future__ import annotations

import pytest

from mingle_hooks.rendezvous.roster import LONGEST_LABEL, MOST_ADDRESSES, RejectedPeers
from mingle_hooks.rendezvous.roster import peer_label as label


def test_an_address_is_news_once_and_only_so_many_are_kept() -> None:
    """In the order of their first try."""
    rejected = RejectedPeers()
    assert rejected.add("10.0.0.1")
    assert not rejected.add("10.0.0.1")
    for number in range(100):
        rejected.add(f"10.0.1.{number}")
    assert rejected.list()[:2] == ["10.0.0.1", "10.0.1.0"]
    assert len(rejected.list()) == MOST_ADDRESSES


def test_a_host_that_comes_by_several_addresses_is_told_once() -> None:
    """By its first address and the name that it gives itself, which comes with its second try here."""
    rejected = RejectedPeers()
    assert rejected.add("10.0.0.1")
    assert rejected.add("10.0.0.1", "node2")
    assert not rejected.add("10.0.0.1")
    assert not rejected.add("10.0.0.1", "node3")
    rejected.add("fd77::2", "node2")
    rejected.add("10.0.0.9")
    assert rejected.list() == ["10.0.0.1 (node2)", "10.0.0.9"]


@pytest.mark.parametrize("name", ["", "a\x1b[2J", "node1) and (node2", "n\u0430me", "x" * 300])
def test_a_name_that_a_stranger_gives_itself_is_a_host_name_or_left_out(name: str) -> None:
    """What is told of it fits into a leader's frame."""
    shown = label("10.0.0.1", name)
    assert shown.startswith("10.0.0.1")
    assert len(shown) <= LONGEST_LABEL
    assert shown == "10.0.0.1" or set(shown.removeprefix("10.0.0.1 (")) <= {"x", "…"}
