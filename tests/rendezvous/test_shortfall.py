"""What all members are told where the time is over: the likeliest cause first."""

from __future__ import annotations

from typing import Any

import pytest
from gathering import join_request

from mingle_hooks.errors import Shortage
from mingle_hooks.rendezvous import roster as shortfall
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.roster import AdvertisedAddress, RejectedPeers, Roster, Terms

TERMS = Terms((AdvertisedAddress("10.0.0.1"), AdvertisedAddress("10.1.0.1")), 29_500, 0)
SHORT = Shortage("files", "64 open files are all that are allowed")


def seen(nodes: int = 3, refused: tuple[str, ...] = (), **parts: Any) -> shortfall.SeenElsewhere:
    """Return what a leader knows that one other member has come to; some were refused."""
    roster = Roster(join_request(rank=0, nodes=nodes), ("node0", "node1", "node2")[:nodes])
    roster.add(join_request(rank=1, host="node1"), "10.0.0.2")
    peers = {why: RejectedPeers() for why in wire.REASONS}
    for why in refused:
        peers[why].add("10.0.0.9", f"by-{why}")
    return shortfall.SeenElsewhere(roster, TERMS, "node0", peers, **{"shortage": None, **parts})


def test_who_is_missing_is_named() -> None:
    """By its host, where the scheduler names that."""
    failure = shortfall.missing_members(seen(), 60, None)
    assert (failure.kind, failure.parts) == ("missing", ("3", "60", "2", "node2"))


@pytest.mark.parametrize(
    ("silent", "told"),
    [
        (["node1"], "saw 1 of 2 confirmed, missing node1;"),
        ([], "saw 2 of 2 confirmed, missing none, but some too late;"),
    ],
)
def test_who_has_not_confirmed_is_named(silent: list[str], told: str) -> None:
    """Where the world was about to form, whoever was refused before."""
    failure = shortfall.missing_members(seen(nodes=2, refused=(wire.KEY,)), 60, silent)
    assert told in str(failure.error())


def test_a_leader_without_descriptors_says_so_while_its_world_closes_too() -> None:
    """That is why nobody was heard."""
    failure = shortfall.missing_members(seen(nodes=2, shortage=SHORT), 60, ["node1"])
    assert failure.parts[2:] == (f"1 of 2 confirmed (on node0: {SHORT.seen})", "node1")


def test_members_that_reach_no_address_in_common_lack_a_network() -> None:
    """All are in; who has not reached which address is told."""
    failure = shortfall.missing_members(seen(nodes=2), 60, None)
    assert failure.kind == "network"
    assert "10.0.0.1 not reached by node1" in failure.parts[1]


def test_a_limit_that_was_met_comes_before_who_was_refused() -> None:
    """The leader could not take them all in."""
    failure = shortfall.missing_members(seen(refused=(wire.KEY,), shortage=SHORT), 60, None)
    assert failure.kind == "files"
    assert failure.parts[2] == f"2 (on node0: {SHORT.seen})"


def test_another_version_comes_before_another_run_and_another_key() -> None:
    """Each of them makes the next look wrong too."""
    kinds = [
        shortfall.missing_members(seen(refused=refused), 60, None).kind
        for refused in ((wire.KEY, wire.RUN, wire.VERSION), (wire.KEY, wire.RUN), (wire.KEY,))
    ]
    assert kinds == ["versions", "runs", "keys"]
