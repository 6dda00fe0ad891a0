"""Who has which rank, who contradicts whom, who is missing."""

from __future__ import annotations

import random

import pytest
from gathering import join_request

from mingle_hooks.rendezvous.roster import Roster

OWN = "10.0.0.9"


def ranks(roster: Roster) -> dict[str, int]:
    """Return host -> rank."""
    return {row.host: row.node_rank for _, row in roster.members(None)}


def test_ranks_that_are_given_are_kept_in_any_order_of_arrival() -> None:
    """The roster is in rank order."""
    roster = Roster(join_request(host="n0", rank=0, nodes=3))
    assert roster.add(join_request(host="n2", rank=2), OWN) is None
    assert not roster.complete
    assert roster.add(join_request(host="n1", rank=1), OWN) is None
    assert roster.complete
    assert list(ranks(roster).items()) == [("n0", 0), ("n1", 1), ("n2", 2)]


def test_without_ranks_the_leader_is_0_and_the_others_follow_by_name() -> None:
    """node2 comes before node10."""
    roster = Roster(join_request(host="node7", nodes=4))
    for host in ("node10", "node2", "ctl"):
        assert roster.add(join_request(host=host), OWN) is None
    assert ranks(roster) == {"node7": 0, "node2": 2, "node10": 3, "ctl": 1} or ranks(roster)["node7"] == 0
    assert ranks(roster)["node2"] < ranks(roster)["node10"]
    assert sorted(ranks(roster).values()) == [0, 1, 2, 3]


def test_those_without_a_rank_take_what_is_left() -> None:
    """Given ranks win."""
    roster = Roster(join_request(host="n0", rank=0, nodes=4))
    for host, rank in (("a", None), ("b", 1), ("c", None)):
        assert roster.add(join_request(host=host, rank=rank), OWN) is None
    assert ranks(roster) == {"n0": 0, "b": 1, "a": 2, "c": 3}


def test_any_order_of_arrival_gives_the_same_ranks() -> None:
    """Ranks depend on who came, not on when."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    members = [join_request(host=f"n{i}") for i in range(1, 12)]
    me, found = join_request(host="n0", nodes=12), set()
    for turn in range(5):
        random.Random(seed + turn).shuffle(members)
        roster = Roster(me)
        for member in members:
            assert roster.add(member, OWN) is None
        found.add(tuple(ranks(roster).items()))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("me", "others", "kind", "parts"),
    [
        ({"rank": 0, "nodes": 4}, [{"rank": 1}, {"rank": 1, "host": "twin"}], "rank", ("1", "twin")),
        ({"rank": 0, "nodes": 2}, [{"rank": 2}], "beyond", ("2",)),
        ({"rank": 0}, [{"rank": 5}, {"nodes": 3}], "beyond", ("3", "5")),
        ({"rank": 0, "nodes": 2}, [{"nodes": 3}], "nodes", ("2", "3")),
        ({"rank": 0, "nodes": 2}, [{}, {"host": "third"}], "full", ("2", "third")),
        ({"rank": 0, "nodes": 2}, [{"pinned": {"MASTER_PORT": "1234"}}], "given", ("MASTER_PORT", "not exported")),
        (
            {"rank": 0, "nodes": 2, "pinned": {"MASTER_ADDR": "a"}},
            [{"pinned": {"MASTER_ADDR": "b"}}],
            "given",
            ("MASTER_ADDR", "a on", "b on"),
        ),
        (
            {"rank": 0, "nodes": 3},
            [{"pinned": {"WORLD_SIZE": "8"}}, {"pinned": {"WORLD_SIZE": "9"}}],
            "given",
            ("WORLD_SIZE", "8 on", "9 on"),
        ),
    ],
)
def test_a_contradiction_names_what_and_who(
    me: dict[str, object], others: list[dict[str, object]], kind: str, parts: tuple[str, ...]
) -> None:
    """The last of the others is the one that cannot be taken."""
    roster = Roster(join_request(**me))
    *fine, last = others
    for other in fine:
        assert roster.add(join_request(**other), OWN) is None
    before = len(roster)
    failure = roster.add(join_request(**last), OWN)
    assert failure is not None
    assert failure.kind == kind
    assert all(any(part in whole for whole in failure.parts) for part in parts)
    assert len(roster) == before
    assert str(failure.error())


def test_once_more_changes_nothing() -> None:
    """A check-in that comes twice is one member."""
    roster, member = Roster(join_request(rank=0, nodes=3)), join_request(rank=1)
    assert roster.add(member, OWN) is None
    assert roster.add(member, OWN) is None
    assert len(roster) == 2


def test_an_address_counts_once_for_each_member_that_reaches_it() -> None:
    """Who tells it twice is not two, and all are not all but one."""
    roster, members = Roster(join_request(rank=0, nodes=3)), [join_request(rank=rank) for rank in (1, 2)]
    for member in members:
        assert roster.add(member, OWN) is None
    for _ in range(2):
        roster.reach(members[0].member, 0, OWN)
        assert not roster.reached_by_all(0)
    roster.reach(members[1].member, 0, OWN)
    assert roster.reached_by_all(0)


def test_a_member_that_left_takes_its_rank_its_values_and_its_reach_with_it() -> None:
    """It, or another, may come again, and say something else."""
    roster = Roster(join_request(rank=0))
    gone = join_request(rank=1, nodes=3, machine="there", pinned={"WORLD_SIZE": "8"})
    assert roster.add(gone, OWN) is None
    roster.reach(gone.member, 0, OWN)
    assert (roster.nodes, roster.pinned("WORLD_SIZE"), roster.one_machine) == (3, "8", False)
    assert roster.reached_by_all(0)
    roster.remove(gone.member)
    assert (roster.nodes, roster.pinned("WORLD_SIZE"), roster.one_machine) == (None, None, True)
    assert roster.add(join_request(rank=1, nodes=2, pinned={"WORLD_SIZE": "9"}), OWN) is None
    assert (roster.nodes, roster.pinned("WORLD_SIZE")) == (2, "9")
    assert not roster.reached_by_all(0)


def test_what_two_said_stays_when_the_first_of_them_leaves() -> None:
    """N is known as long as one member that said it is in."""
    roster, first = Roster(join_request(rank=0)), join_request(nodes=3)
    assert roster.add(first, OWN) is None
    assert roster.add(join_request(nodes=3), OWN) is None
    roster.remove(first.member)
    assert roster.nodes == 3


@pytest.mark.parametrize(
    ("me", "hosts", "others", "text"),
    [
        ({"rank": 0}, (), [], "any member that knows the number of nodes (--nodes)"),
        ({"rank": 0, "nodes": 4}, ("a1", "a2", "a3", "b"), [{"rank": 2}], "a2,b"),
        ({"rank": 0, "nodes": 4}, (), [{"rank": 2}], "rank [1,3]"),
        ({"nodes": 4}, (), [{}], "2 more"),
        ({"rank": 0, "nodes": 2}, (), [{"rank": 1}], "an address that all can reach"),
    ],
)
def test_who_is_missing_is_said_as_well_as_it_is_known(
    me: dict[str, object], hosts: tuple[str, ...], others: list[dict[str, object]], text: str
) -> None:
    """Hosts where the scheduler names them, else ranks, else how many."""
    roster = Roster(join_request(**me), hosts)
    for other in others:
        assert roster.add(join_request(**other), OWN) is None
    assert set(roster.missing().split(",")) == set(text.split(","))


def test_a_great_many_missing_ranks_stay_one_short_text() -> None:
    """A message is for a person."""
    assert len(Roster(join_request(rank=0, nodes=65_536)).missing()) < 100


def test_offers_that_not_all_reach_say_who_does_not() -> None:
    """For the failure that no address is good for all."""
    me = join_request(rank=0, nodes=3, host="n0")
    roster = Roster(me)
    roster.entry(me.member).reached = {0: "10.0.0.1"}
    for rank in (1, 2):
        assert roster.add(join_request(rank=rank, host=f"n{rank}"), OWN) is None
    assert roster.short_of(["10.0.0.1"]) == "10.0.0.1 not reached by n[1-2]"
    for entry in roster.entries():
        entry.reached = {0: "10.0.0.1"}
    assert roster.short_of(["10.0.0.1"]) == "10.0.0.1 reached too late"
