"""Ranks by switch."""

from __future__ import annotations

import random

import pytest
from gathering import join_request

from mingle_hooks.rendezvous.messages import JoinRequest
from mingle_hooks.rendezvous.roster import Roster, crossings
from mingle_hooks.rendezvous.roster import order_by_switch as by_switch
from mingle_hooks.rendezvous.wire import WireError, decode, encode, parse


@pytest.mark.parametrize(
    ("paths", "places"),
    [
        (["a", "b", "a", "b"], [0, 2, 1, 3]),
        (["b", "a", "b", "a"], [0, 2, 1, 3]),
        (["s1/a", "s2/c", "s1/b", "s2/d", "s1/a", "s2/c"], [0, 4, 2, 1, 5, 3]),
        (["a", "", "a", ""], [0, 2, 1, 3]),
        (["", "a", "", "a"], [0, 2, 1, 3]),
        (["a/b", "a", "c", "a/b"], [0, 1, 3, 2]),
        (["", "", ""], [0, 1, 2]),
        (["a", "a", "b"], [0, 1, 2]),
        (["a"], [0]),
        ([], []),
    ],
)
def test_who_is_below_one_switch_has_neighbouring_ranks(paths: list[str], places: list[int]) -> None:
    """At each level; the first stays, and what is in order stays as it is."""
    assert by_switch(paths) == places


def test_no_order_has_fewer_crossings() -> None:
    """As many as there are switches at the bottom, less one; whatever the usual order is."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    chance = random.Random(seed)
    for _ in range(50):
        paths = [f"{chance.randrange(3)}/{chance.randrange(4)}" for _ in range(chance.randrange(1, 40))]
        places = by_switch(paths)
        assert sorted(places) == list(range(len(paths)))
        assert places[0] == 0
        assert crossings([paths[place] for place in places]) == len(set(paths)) - 1
        tops = [paths[place].partition("/")[0] for place in places]
        assert crossings(tops) == len(set(tops)) - 1


def test_a_leader_that_is_asked_to_gives_ranks_by_switch() -> None:
    """Claimed ranks are where it begins, and each member keeps its slots; another leader leaves them."""
    members = [join_request(host=f"n{rank}", rank=rank, slots=rank + 1, topology="ab"[rank % 2]) for rank in (1, 2, 3)]
    for is_asked, order in (True, "n0 n2 n1 n3"), (False, "n0 n1 n2 n3"):
        me = join_request(host="n0", rank=0, nodes=4, topology="a")
        roster = Roster(me, by_switch=is_asked)
        for member in members:
            assert roster.add(member, "10.0.0.9") is None
        rows = [row for _, row in roster.members(None)]
        assert [row.host for row in rows] == order.split()
        assert [row.node_rank for row in rows] == [0, 1, 2, 3]
        assert [row.slots for row in rows] == [int(row.host[1:]) + 1 for row in rows]
        assert [entry.join_request.host for entry in roster.in_usual_order()] == ["n0", "n1", "n2", "n3"]


def test_switches_travel_with_the_check_in_where_there_are_some() -> None:
    """A member of yesterday says nothing of them, and is understood."""
    for switches in ("", "spine/leaf1"):
        said = join_request(topology=switches)
        assert parse(JoinRequest, decode(encode(said.body()))) == said
    assert "topology" not in join_request().body()


@pytest.mark.parametrize("switches", ["a" * 256, "a\nb", 7, None])
def test_other_switches_are_refused(switches: object) -> None:
    """They are shown to people."""
    with pytest.raises(WireError, match="topology"):
        parse(JoinRequest, {**join_request().body(), "topology": switches})
