"""Which member has which rank, what contradicts, who is missing, and which address is chosen."""

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import Clock, join_request

from mingle_hooks.errors import Shortage
from mingle_hooks.rendezvous import roster as rosters, wire
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.leader import missing_members
from mingle_hooks.rendezvous.messages import JoinRequest
from mingle_hooks.rendezvous.roster import AddressChoice, AdvertisedAddress, RejectedPeers, Roster, Terms

# Who has which rank, who contradicts whom, who is missing.


OWN = "10.0.0.9"


def gathered(me: dict[str, Any], *others: dict[str, Any] | JoinRequest, hosts: tuple[str, ...] = ()) -> Roster:
    """Return the roster of a leader to which these members have come."""
    roster = Roster(join_request(**me), hosts)
    for other in others:
        assert roster.add(other if isinstance(other, JoinRequest) else join_request(**other), OWN) is None
    return roster


@pytest.mark.parametrize(
    ("leader", "others", "hosts"),
    [
        (("n0", 0), [("n2", 2), ("n1", 1)], ["n0", "n1", "n2"]),
        (("node7", None), [("node10", None), ("node2", None), ("ctl", None)], ["node7", "ctl", "node2", "node10"]),
        (("n0", 0), [("a", None), ("b", 1), ("c", None)], ["n0", "b", "a", "c"]),
    ],
    ids=["given", "by name", "those without a rank take what is left"],
)
def test_ranks_are_the_same_in_any_order_of_arrival(
    leader: tuple[str, int | None], others: list[tuple[str, int | None]], hosts: list[str]
) -> None:
    """Given ones are kept, and the leader is 0; the roster is in rank order, and node2 comes before node10."""
    for order in itertools.permutations(others):
        me, *members = ({"host": host, "rank": rank} for host, rank in (leader, *order))
        assert not gathered({**me, "nodes": len(hosts)}, *members[1:]).complete
        roster = gathered({**me, "nodes": len(hosts)}, *members)
        assert roster.complete
        assert [(row.host, row.node_rank) for _, row in roster.members(None)] == [*zip(hosts, range(9), strict=False)]


OF_TWO = {"rank": 0, "nodes": 2}


def exporting(**variables: str) -> dict[str, Any]:
    """Return what a member says whose user has exported these."""
    return {"pinned": variables}


@pytest.mark.parametrize(
    ("me", "others", "kind", "parts"),
    [
        ({"rank": 0, "nodes": 4}, [{"rank": 1}, {"rank": 1, "host": "twin"}], "rank", ("1", "twin")),
        (OF_TWO, [{"rank": 2}], "beyond", ("2",)),
        ({"rank": 0}, [{"rank": 5}, {"nodes": 3}], "beyond", ("3", "5")),
        (OF_TWO, [{"nodes": 3}], "nodes", ("2", "3")),
        (OF_TWO, [{}, {"host": "third"}], "full", ("2", "third")),
        (OF_TWO, [exporting(MASTER_PORT="1234")], "given", ("MASTER_PORT", "not exported")),
        (OF_TWO | exporting(MASTER_ADDR="a"), [exporting(MASTER_ADDR="b")], "given", ("MASTER_ADDR", "a on", "b on")),
        ({"rank": 0}, [exporting(WORLD_SIZE=size) for size in "89"], "given", ("WORLD_SIZE", "8 on", "9 on")),
    ],
)
def test_a_contradiction_names_the_values_and_the_members(
    me: dict[str, object], others: list[dict[str, object]], kind: str, parts: tuple[str, ...]
) -> None:
    """The last of the others is the one that cannot be taken."""
    *fine, last = others
    roster = gathered(me, *fine)
    before = len(roster)
    failure = roster.add(join_request(**last), OWN)
    assert (failure.kind, len(roster)) == (kind, before)
    assert all(any(part in whole for whole in failure.parts) for part in parts)
    assert str(failure.error())


def test_a_member_and_an_address_that_it_reaches_count_once() -> None:
    """A repeated check-in or report does not count."""
    members = [join_request(rank=rank) for rank in (1, 2)]
    roster = gathered({"rank": 0, "nodes": 3}, *members, members[0])
    assert len(roster) == 3
    for _ in range(2):
        roster.reach(members[0].member, 0, OWN)
        assert not roster.reached_by_all(0)
    roster.reach(members[1].member, 0, OWN)
    assert roster.reached_by_all(0)


def test_a_member_that_left_takes_its_rank_its_values_and_its_reach_with_it() -> None:
    """It, or another member, may check in with other values."""
    gone = join_request(rank=1, nodes=3, machine="there", pinned={"WORLD_SIZE": "8"})
    roster = gathered({"rank": 0}, gone, {"nodes": 3})
    roster.remove(gone.member)
    assert (roster.nodes, roster.pinned("WORLD_SIZE")) == (3, None)  # known as long as one member reports it
    roster = gathered({"rank": 0}, gone)
    roster.reach(gone.member, 0, OWN)
    assert (roster.nodes, roster.pinned("WORLD_SIZE"), roster.one_machine) == (3, "8", False)
    assert roster.reached_by_all(0)
    roster.remove(gone.member)
    assert (roster.nodes, roster.pinned("WORLD_SIZE"), roster.one_machine) == (None, None, True)
    assert roster.add(join_request(rank=1, nodes=2, pinned={"WORLD_SIZE": "9"}), OWN) is None
    assert (roster.nodes, roster.pinned("WORLD_SIZE")) == (2, "9")
    assert not roster.reached_by_all(0)


@pytest.mark.parametrize(
    ("me", "hosts", "others", "text"),
    [
        ({"rank": 0}, (), [], "any member that knows the number of nodes (--nodes)"),
        ({"rank": 0, "nodes": 4}, ("a1", "a2", "a3", "b"), [{"rank": 2}], "a2,b"),
        ({"rank": 0, "nodes": 4}, (), [{"rank": 2}], "rank [1,3]"),
        ({"rank": 0, "nodes": 65_536}, (), [], "rank [1-64] and more"),
        ({"nodes": 4}, (), [{}], "2 more"),
        ({"rank": 0, "nodes": 2}, (), [{"rank": 1}], "an address that all can reach"),
    ],
)
def test_missing_members_are_hosts_else_ranks_else_a_number(
    me: dict[str, object], hosts: tuple[str, ...], others: list[dict[str, object]], text: str
) -> None:
    """They are hosts if the scheduler names them; a message lists only so many."""
    assert set(gathered(me, *others, hosts=hosts).missing().split(",")) == set(text.split(","))


def test_an_address_that_not_all_reach_is_reported_with_the_others() -> None:
    """The failure of a world without a common address has this text."""
    roster = gathered({"rank": 0, "nodes": 3}, *({"rank": rank, "host": f"n{rank}"} for rank in (1, 2)))
    roster.entries()[0].reached = {0: "10.0.0.1"}
    assert roster.unreached_text(["10.0.0.1"]) == "10.0.0.1 not reached by n[1-2]"
    for entry in roster.entries():
        entry.reached = {0: "10.0.0.1"}
    assert roster.unreached_text(["10.0.0.1"]) == "10.0.0.1 reached too late"


# Ranks by switch.


@pytest.mark.parametrize(
    ("paths", "places", "crossings"),
    [
        (["a", "b", "a", "b"], [0, 2, 1, 3], 1),
        (["s1/a", "s2/c", "s1/b", "s2/d", "s1/a", "s2/c"], [0, 4, 2, 1, 5, 3], 3),
        (["a", "", "a", ""], [0, 2, 1, 3], 1),
        (["", "a", "", "a"], [0, 2, 1, 3], 1),
        (["a/b", "a", "c", "a/b"], [0, 1, 3, 2], 3),
        (["", "", ""], [0, 1, 2], 0),
        (["a", "a", "b"], [0, 1, 2], 1),
        (["a"], [0], 0),
        ([], [], 0),
    ],
)
def test_members_below_one_switch_have_neighbouring_ranks(paths: list[str], places: list[int], crossings: int) -> None:
    """This holds at each level; the first stays, and what is in order stays as it is."""
    assert rosters.order_by_switch(paths) == places
    assert rosters.crossings([paths[place] for place in places]) == crossings


def test_a_leader_gives_ranks_by_switch_on_request() -> None:
    """Claimed ranks are where it begins, and each member keeps its slots; another leader leaves them."""
    members = [join_request(host=f"n{rank}", rank=rank, slots=rank + 1, topology="ab"[rank % 2]) for rank in (1, 2, 3)]
    for is_asked, order in (True, "n0 n2 n1 n3"), (False, "n0 n1 n2 n3"):
        roster = Roster(join_request(host="n0", rank=0, nodes=4, topology="a"), by_switch=is_asked)
        for member in members:
            assert roster.add(member, "10.0.0.9") is None
        rows = [row for _, row in roster.members(None)]
        assert [row.host for row in rows] == order.split()
        assert [row.node_rank for row in rows] == [0, 1, 2, 3]
        assert [row.slots for row in rows] == [int(row.host[1:]) + 1 for row in rows]
        assert [entry.join_request.host for entry in roster.in_usual_order()] == ["n0", "n1", "n2", "n3"]


# What a leader offers to whom.


ON_LOOPBACK = AdvertisedAddress("127.0.0.1", loopback=True)


def test_loopback_is_offered_within_the_machine_only() -> None:
    """On another machine it would be another host's; the other offers keep their index."""
    terms = Terms((ON_LOOPBACK, AdvertisedAddress("10.0.0.1")), 20_000, 0)
    assert terms.offers(same_machine=True) == [[0, "127.0.0.1"], [1, "10.0.0.1"]]
    assert terms.offers(same_machine=False) == [[1, "10.0.0.1"]]
    assert not terms.is_loopback
    assert Terms((ON_LOOPBACK,), 20_000, 0).is_loopback


# A rejected peer is noted once, and their number is bounded.


def test_an_address_is_news_once_and_only_so_many_are_kept() -> None:
    """They are listed in the order of their first try."""
    rejected = RejectedPeers()
    assert [rejected.add("10.0.0.1") for _ in range(2)] == [True, False]
    for number in range(100):
        rejected.add(f"10.0.1.{number}")
    assert rejected.list()[:2] == ["10.0.0.1", "10.0.1.0"]
    assert len(rejected.list()) == rosters.MOST_ADDRESSES


def test_a_host_with_several_addresses_is_listed_once() -> None:
    """It has its first address and the name that it gives itself, here with its second try."""
    rejected = RejectedPeers()
    assert [rejected.add("10.0.0.1", *name) for name in ((), ("node2",), (), ("node3",))] == [True, True, False, False]
    rejected.add("fd77::2", "node2")
    rejected.add("10.0.0.9")
    assert rejected.list() == ["10.0.0.1 (node2)", "10.0.0.9"]


@pytest.mark.parametrize("name", ["", "a\x1b[2J", "node1) and (node2", "n\u0430me", "x" * 300])
def test_a_name_that_a_stranger_gives_itself_is_a_host_name_or_left_out(name: str) -> None:
    """Its label fits into a leader's frame."""
    shown = rosters.peer_label("10.0.0.1", name)
    assert shown.startswith("10.0.0.1")
    assert len(shown) <= rosters.LONGEST_LABEL
    assert shown == "10.0.0.1" or set(shown.removeprefix("10.0.0.1 (")) <= {"x", "…"}


# When a leader's world may close, and on which of its addresses: no sockets, and a clock of the test's own.


BEST, SECOND = AdvertisedAddress("10.0.0.1"), AdvertisedAddress("10.1.0.1")


class Leading:
    """A leader of two that only gathers and chooses."""

    def __init__(self, loop: Loop, clock: Clock, advertised: tuple[AdvertisedAddress, ...]) -> None:
        self.loop, self.clock = loop, clock
        self.roster = Roster(join_request(rank=0, nodes=2))
        self.closed: list[int] = []
        self.gathers = True
        terms = Terms(advertised, 29_500, 0)
        self.choice = AddressChoice(loop, self.roster, terms, lambda: self.gathers, self.closed.append)

    def comes(self, *reached: int, machine: str = "there") -> bytes:
        """Have the other member come, and reach these addresses."""
        other = join_request(rank=1, machine=machine)
        self.roster.add(other, "10.0.0.2")
        for offer in reached:
            self.roster.reach(other.member, offer, "10.0.0.2")
            self.choice.consider()
        return other.member

    def later(self, seconds: float) -> list[int]:
        """Let time pass, and return the addresses that were chosen by then."""
        self.clock.ahead += seconds
        self.loop.turn(0.0)
        return self.closed


@pytest.fixture
def leading(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Leading]:
    """Return a leader that offers two addresses, or those of the parameter."""
    with Loop(clock) as loop:
        yield Leading(loop, clock, getattr(request, "param", (BEST, SECOND)))


def test_the_next_best_address_is_chosen_after_the_best_ones_time(leading: Leading) -> None:
    """It is not chosen earlier."""
    leading.comes(1)
    assert leading.later(rosters.SETTLE_S - 0.01) == []
    assert leading.later(0.02) == [1]


def test_the_time_of_the_best_address_begins_anew_after_a_member_has_left(leading: Leading) -> None:
    """It counts from when all are in again."""
    member = leading.comes(1)
    leading.later(rosters.SETTLE_S - 0.5)
    leading.roster.remove(member)
    leading.choice.start_over()
    leading.comes(1)
    assert leading.later(1.0) == []
    assert leading.later(rosters.SETTLE_S) == [1]


@pytest.mark.parametrize("leading", [(ON_LOOPBACK, BEST)], indirect=True)
@pytest.mark.parametrize(("machine", "chosen"), [("here", 0), ("there", 1)])
def test_loopback_serves_the_members_of_one_machine_only(leading: Leading, machine: str, chosen: int) -> None:
    """It is not used if a member is on another machine."""
    leading.comes(0, 1, machine=machine)
    assert leading.closed[:1] == [chosen]


def test_no_address_is_chosen_while_others_of_the_id_can_still_check_in(leading: Leading) -> None:
    """This holds even if all have checked in."""
    leading.choice.listen_for(30.0)
    leading.comes(0)
    assert leading.later(29.9) == []
    assert leading.later(0.2) == [0]


def test_no_address_is_chosen_while_another_leader_is_being_dialled(leading: Leading) -> None:
    """The leader checks again soon, and once each time, though two addresses were reached."""
    answers = iter([False, False, False, True])
    leading.choice.is_alone = lambda: next(answers)
    leading.comes(0, 1)
    assert leading.closed == []
    assert leading.later(1.1 * rosters.RECHECK_S) == []
    assert leading.later(1.1 * rosters.RECHECK_S) == [0]


@pytest.mark.parametrize("how", ["has failed", "has stopped"])
def test_a_leader_that_no_longer_gathers_chooses_no_address(leading: Leading, how: str) -> None:
    """It leaves no timer."""
    leading.gathers = how != "has failed"
    leading.comes(1)
    if how == "has stopped":
        leading.choice.stop()
    assert leading.later(2 * rosters.SETTLE_S) == []


# What all members are told where the time is over: the likeliest cause first.


TERMS = Terms((AdvertisedAddress("10.0.0.1"), AdvertisedAddress("10.1.0.1")), 29_500, 0)
SHORT = Shortage("files", "64 open files are all that are allowed")


def short_of_members(nodes: int, refused: tuple[str, ...]) -> Any:
    """Return a leader that one other member has come to; some were refused."""
    roster = Roster(join_request(rank=0, nodes=nodes), ("node0", "node1", "node2")[:nodes])
    roster.add(join_request(rank=1, host="node1"), "10.0.0.2")
    peers = {why: RejectedPeers() for why in wire.REASONS}
    for why in refused:
        peers[why].add("10.0.0.9", f"by-{why}")
    me = SimpleNamespace(host="node0")
    return SimpleNamespace(roster=roster, terms=TERMS, me=me, refused=peers, one_way=tuple)


KEYS, RUNS = ("key",), ("key", "run")
SHORT_OF = f" (on node0: {SHORT.seen})"


@pytest.mark.parametrize(
    ("nodes", "silent", "parts", "kind", "told"),
    [
        (3, None, {}, "missing", "saw 2, missing node2;"),
        (2, ["node1"], {"refused": KEYS}, "unconfirmed", "saw 1 of 2 confirmed, missing node1;"),
        (2, [], {"refused": KEYS}, "unconfirmed", "saw 2 of 2 confirmed, missing none, but some too late;"),
        (2, ["node1"], {"shortage": SHORT}, "files", f"saw 1 of 2 confirmed{SHORT_OF}, missing node1;"),
        (2, None, {}, "network", "10.0.0.1 not reached by node1"),
        (3, None, {"refused": KEYS, "shortage": SHORT}, "files", f"saw 2{SHORT_OF}, missing node2;"),
        (3, None, {"refused": (*RUNS, "version")}, "versions", "another version at 10.0.0.9 (by-version)"),
        (3, None, {"refused": RUNS}, "runs", "at 10.0.0.9 (by-run)"),
        (3, None, {"refused": KEYS}, "keys", "another key at 10.0.0.9 (by-key)"),
    ],
)
def test_the_likeliest_cause_of_a_missing_member_comes_first(
    nodes: int, silent: list[str] | None, parts: dict[str, Any], kind: str, told: str
) -> None:
    """It is a limit of the leader, then versions, runs and keys; hosts that did not confirm or reach it are named."""
    failure = missing_members(short_of_members(nodes, parts.get("refused", ())), parts.get("shortage"), 60, silent)
    assert failure.kind == kind
    assert told in str(failure.error())
