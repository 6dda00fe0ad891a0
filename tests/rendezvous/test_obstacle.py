"""A member that cannot start the command says so when it checks in, and the leader tells all once all are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gathering import join_request

from mingle_hooks.errors import by_exit_code
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.messages import LONGEST_PART, OBSTACLES, Failure, JoinRequest
from mingle_hooks.rendezvous.roster import LONGEST_HOSTS, Roster
from mingle_hooks.rendezvous.wire import WireError, decode, encode, parse

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.messages import Kind

GONE = "train: No such file or directory"


def unable(host: str, seen: str = GONE, **parts: Any) -> JoinRequest:
    """Return the check-in of a member that cannot start the command."""
    return join_request(host=host, obstacle=Failure("command", (host, seen)), **parts)


@pytest.mark.parametrize("kind", OBSTACLES)
def test_it_travels_and_is_the_same_error_everywhere(kind: Kind) -> None:
    """With the status that a shell would have given on that node alone."""
    said = join_request(host="node1", obstacle=Failure(kind, ("node1", GONE)))
    assert parse(JoinRequest, decode(encode(said.body()))) == said
    assert said.obstacle is not None
    error = said.obstacle.error()
    assert error.seen == f"node1: {GONE}"
    assert by_exit_code(error.exit_code) is type(error)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "command",
        {"kind": "command"},
        {"kind": "command", "parts": []},
        {"kind": "command", "parts": ["node1"]},
        {"kind": "command", "parts": ["node1", 7]},
        {"kind": "command", "parts": ["node1", "x" * (LONGEST_PART + 1)]},
        {"kind": "rank", "parts": ["0", "node1", "node2"]},
        {"kind": "none", "parts": ["node1", GONE]},
    ],
)
def test_anything_else_is_no_check_in(wrong: object) -> None:
    with pytest.raises(WireError):
        parse(JoinRequest, {**join_request().body(), "obstacle": wrong})


def test_a_member_speaks_for_its_own_host_only() -> None:
    """What it says of another's is taken for its own."""
    body = join_request(host="node1").body() | {"obstacle": Failure("command", ("node9", GONE)).body()}
    assert parse(JoinRequest, body).obstacle == Failure("command", ("node1", GONE))


def test_the_longest_check_in_fits() -> None:
    """Every text as long as may be, and of letters for which JSON writes twelve."""
    wide = "\U0001d538"
    said = join_request(host="n" * 253, obstacle=Failure("command", ("n" * 253, wide * LONGEST_PART)))
    said = said._replace(topology="t" * 255, fingerprint="f" * 1024, addresses="a" * 1024, clock_ms=0)
    assert len(wire.encode(said.body(1))) < wire.MOST_MEMBER_BYTES - 512


def test_it_is_told_once_all_are_in_with_all_hosts_that_it_is_on() -> None:
    """The first rank's where they differ; it may be the leader's own."""
    roster = Roster(unable("node1", "another", rank=0, nodes=4))
    assert roster.obstacle() is None
    for member in (unable("node4", rank=3), join_request(host="node3", rank=2)):
        assert roster.add(member, "10.0.0.9") is None
        assert roster.obstacle() is None
    last = unable("node2", rank=1)
    assert roster.add(last, "10.0.0.9") is None
    assert roster.obstacle() == Failure("command", ("node1", "another"))
    roster.remove(last.member)
    assert roster.obstacle() is None
    same = Roster(join_request(host="node1", rank=0, nodes=3))
    for rank in (2, 1):
        same.add(unable(f"node{rank + 1}", rank=rank), "10.0.0.9")
    assert same.obstacle() == Failure("command", ("node[2-3]", GONE))


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (("unwritable", None, "unwritable"), ("unwritable", "node[1,3]")),
        (("unwritable", "unwritable", "unwritable"), None),
        (("unwritable", "command", None), ("command", "node2")),
        (("unwritable", "unwritable", "command"), ("command", "node3")),
    ],
)
def test_a_directory_that_cannot_be_written_counts_where_others_can(
    kinds: tuple[Kind | None, ...], told: tuple[Kind, str] | None
) -> None:
    """And less than what keeps a member from starting the command."""
    hosts = [f"node{number}" for number in range(1, 4)]
    first, *others = (
        join_request(host=host, rank=rank, nodes=3, obstacle=Failure(kind, (host, GONE)) if kind else None)
        for rank, (host, kind) in enumerate(zip(hosts, kinds, strict=True))
    )
    roster = Roster(first)
    for member in others:
        roster.add(member, "10.0.0.9")
    assert roster.obstacle() == (told and Failure(told[0], (told[1], GONE)))


def test_many_hosts_leave_room_for_what_they_lack() -> None:
    roster = Roster(join_request(host="node1", rank=0, nodes=100))
    for rank in range(1, 100):
        roster.add(unable(f"host-{rank}-{'x' * rank}", rank=rank), "10.0.0.9")
    found = roster.obstacle()
    assert found is not None
    assert len(found.parts[0]) == LONGEST_HOSTS
    assert GONE in found.error().seen
