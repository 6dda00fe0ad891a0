"""A leader and others that lead as well, and who comes back to it or comes too late."""

from __future__ import annotations

from gathering import Room, join_request

from mingle_hooks.rendezvous.leader import Answers, Place
from mingle_hooks.rendezvous.messages import Failure
from mingle_hooks.rendezvous.roster import Roster


def test_a_leader_is_not_its_own_rival() -> None:
    """A member that has met it by two addresses may say so; the world forms."""
    with Room(3) as room:
        first = room.member(rank=1).come()
        room.until(lambda: first.state == "waiting")
        assert first.membership is not None
        first.membership.accuse("node0", room.me.member)
        second = room.member(rank=2).come()
        room.until(lambda: first.state == second.state == "formed")


def test_two_leaders_are_told_alike_by_both() -> None:
    """Each names the two hosts in the same order, so that everybody reads the same words."""
    said = set()
    for other in ("node00", "node9"):
        with Room(2) as room:
            room.leader.me = room.me._replace(host="node00" if other == "node9" else "node9")
            room.leader.met_rival(other)
            assert room.leader.failure is not None
            said.add(room.leader.failure)
    assert len(said) == 1


def test_a_leader_that_was_elected_has_no_rivals() -> None:
    """Of two candidates the better one leads, and the other one's members go over to it."""
    with Room(2) as room:
        room.leader.terms = room.terms._replace(ticket=7)
        room.leader.met_rival("node9")
        assert room.leader.state == "gathering"


def test_who_was_one_too_many_is_waited_for_like_a_member() -> None:
    """Where the failure is of another kind there are as many to be told as the world has nodes."""
    for kind, parts, is_told in (("full", ("2", "node9"), False), ("size", ("8", "4"), True)):
        with Room(2) as room:
            room.leader.choice.listen_for(30.0)
            first = room.member(rank=1).come()
            room.until(lambda first=first: first.state == "waiting")
            room.leader.fail(Failure(kind, parts))
            room.until(lambda first=first: first.state == "failed")
            assert room.leader.everybody_told is is_told
            room.member().come()
            room.until(lambda room=room: room.leader.everybody_told)


def test_a_connection_that_was_replaced_does_not_take_its_member_along() -> None:
    """The end of the one that a member has given up may be noticed after the member is back."""
    with Room(3) as room:
        member = room.member(rank=1).come()
        room.until(lambda: len(room.leader.roster) == 2)
        earlier = room.leader._sessions[member.me.member]
        member.leave()
        member.come()
        room.until(lambda: room.leader._sessions.get(member.me.member) not in (None, earlier))
        room.leader.lost(earlier)
        assert len(room.leader.roster) == 2


def test_two_worlds_at_the_same_place_are_not_the_same() -> None:
    """One after the other, at the same address and port with the same hosts: the digest tells them apart."""
    digests = set()
    for _ in range(2):
        me = join_request(rank=0, nodes=1)
        place = Place(b"a-test", me.member, 1, "10.0.0.1", "10.0.0.1", 20_000)
        answer = Answers(place, Roster(me).members(None)).of(me.member)
        assert answer is not None
        digests.add(answer["digest"])
    assert len(digests) == 2
