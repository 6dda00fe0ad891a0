"""What members and leaders say to each other: requests, answers, failures, deadlines."""

import json
import zlib
from typing import Any

import pytest
from support.gathering import ANSWER, Clock, join_request

from mingle_hooks.errors import ConflictError, MissingError, by_exit_code
from mingle_hooks.rendezvous import messages, wire
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.messages import Assignment, Durations, Failure, JoinRequest, Kind, Outcome, View, World
from mingle_hooks.rendezvous.roster import LONGEST_HOSTS, Roster
from mingle_hooks.rendezvous.wire import MOST_LEADER_BYTES, WireError, decode, encode, parse

# What a leader answers is read strictly: it ends up in shells, files and frameworks of every member.


ROWS: list[list[Any]] = ANSWER["roster"]


NO_HOSTS: list[object] = ["a;b", "$(reboot)", "`id`", "a b", "-oProxyCommand=x", ".a", "", "a\nb", "a" * 254, 7]


def changed(place: int, row: int, value: object) -> list[list[Any]]:
    """Return the roster with another value in a row."""
    return [[*its[:place], value, *its[place + 1 :]] if rank == row else its for rank, its in enumerate(ROWS)]


def test_an_answer_is_read_as_it_is() -> None:
    """Unknown parts are left out."""
    assert messages.parse_answer({**ANSWER, "more": "$(reboot)"}) == ANSWER
    assert "roster" not in messages.parse_answer({name: value for name, value in ANSWER.items() if name != "roster"})


@pytest.mark.parametrize(
    "rows",
    [
        *([], ROWS[:1], [*ROWS, [2, "node3", "10.0.0.3", 1]], [ROWS[1], ROWS[0]], [ROWS[0], ROWS[0]]),
        *([ROWS[0], ROWS[1][:3]], [ROWS[0], [*ROWS[1], 1]]),
        *(changed(2, 1, "node2"), changed(3, 1, 0), changed(0, 1, "1")),
        # A host becomes a word of a hostfile, and of `ssh` for some launchers.
        *(changed(1, rank, host) for rank in (0, 1) for host in NO_HOSTS),
        *({"0": ROWS[0], "1": ROWS[1]}, "0123456789abcdef", None),
    ],
)
def test_a_roster_has_a_row_for_each_node(rows: object) -> None:
    """The rows are in rank order, each with a rank, a host, an address and slots."""
    with pytest.raises(WireError):
        messages.parse_answer({**ANSWER, "roster": rows})


@pytest.mark.parametrize(
    "change",
    [
        *({"addr": addr} for addr in ("a;b", "$(id)", "a b", "-x", "", "a" * 254, 7, None)),
        *({"nodes": nodes} for nodes in (0, 65_537, True, "2")),
        *({"size": size} for size in (1, 2 * 4096 + 1, 6.0)),
        *({"rank": rank} for rank in (-1, 2, "1")),
        *({"offset": offset} for offset in (-1, 6)),
        *({"port": port} for port in (0, 65_536)),
        *({"epoch": epoch} for epoch in (0, 2**31 + 1)),
        *({"digest": digest} for digest in ("0123", "x" * 16)),
        {"own": "node2"},
    ],
    ids=str,
)
def test_an_invalid_part_of_an_answer_is_refused(change: dict[str, Any]) -> None:
    """Each number has to be within the bounds that the others set."""
    with pytest.raises(WireError):
        messages.parse_answer({**ANSWER, **change})


# The roster is packed once, and only what the answer tells is unpacked.


LARGE = [[rank, f"node{rank:05}", f"10.1.{rank // 256}.{rank % 256}", 8] for rank in range(16_384)]


def test_what_is_packed_is_unpacked() -> None:
    """The largest world's roster takes less than two megabytes."""
    packed = messages.pack_roster(json.dumps(LARGE).encode())
    assert len(packed) < 2_000_000
    assert messages.unpack_roster(packed) == LARGE


@pytest.mark.parametrize("text", [b"", b"[[1", b"{", b'"' + b"a" * 30, b" " * (MOST_LEADER_BYTES + 1)])
def test_a_leader_that_packs_something_else_is_refused(text: bytes) -> None:
    """It holds the key, and lies; a thousandth of what would fill the memory travels."""
    for packed in (zlib.compress(text), text[:999], zlib.compress(text)[:-3]):
        with pytest.raises(WireError):
            messages.unpack_roster(packed)


# A failure says the same on every member.


@pytest.mark.parametrize("part", ["{0.__class__}", "{9}", "a\nb", "\x1b[2J", "\ud800", "\u202e", "", "x" * 601])
def test_every_kind_of_failure_travels_with_the_same_text(part: str) -> None:
    """Hostile text in its parts never makes it unreadable, nor a second line; nothing in it is looked up."""
    for kind, (error, *_) in messages._KINDS.items():
        failure = Failure(kind, (part,) * messages.MOST_PARTS)
        body = decode(encode(failure.body(age_s=3.0)))
        there = Failure.parse(body).error()
        assert (messages.age_s(body), type(there), str(there)) == (3.0, error, str(failure.error()))
        assert str(there).isprintable()
        assert part in str(there) or not part.isprintable() or len(part) > messages.LONGEST_PART


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "nonsense", "parts": []},
        {"kind": ["rank"], "parts": ["1", "2", "3"]},
        *(
            {"kind": "rank", "parts": parts}
            for parts in (["1"], "123", ["1"] * (messages.MOST_PARTS + 1), ["1", "2", 3])
        ),
        *({"kind": "rank", "parts": ["1", "2", part]} for part in ("\x1b[2J", "x" * (messages.LONGEST_PART + 1))),
    ],
)
def test_an_invalid_failure_is_refused(body: dict[str, object]) -> None:
    """It raises WireError, and nothing else."""
    with pytest.raises(WireError):
        Failure.parse(body)


# A member that cannot start the command says so when it checks in, and the leader tells all once all are in.


GONE = "train: No such file or directory"


def unable(host: str, seen: str = GONE, **parts: Any) -> JoinRequest:
    """Return the check-in of a member that cannot start the command."""
    return join_request(host=host, obstacle=Failure("command", (host, seen)), **parts)


def test_a_check_in_travels_as_it_is_and_says_no_more_than_it_must() -> None:
    """An earlier version does not send all of it, and is accepted; an obstacle has a status that a shell gives too."""
    said = join_request(spent=Durations(1, 2, 3, 4), topology="spine/leaf1", pinned=dict.fromkeys(messages.PINNED, "8"))
    said = said._replace(fingerprint="gpus=8", addresses="10.0.0.1=25G")
    for kind in messages.OBSTACLES:
        said = said._replace(obstacle=Failure(kind, (said.host, GONE)))
        assert parse(JoinRequest, decode(encode(said.body(17)))) == said._replace(clock_ms=17)
        error = said.obstacle.error()
        assert (error.seen, by_exit_code(error.exit_code)) == (f"{said.host}: {GONE}", type(error))
    assert not {"spent", "topology", "obstacle", "fingerprint", "addresses", "clock_ms"} & join_request().body(9).keys()
    assert parse(JoinRequest, join_request().body()).fingerprint == ""


WRONG: dict[str, list[object]] = {
    "obstacle": [
        *(None, "command", {"kind": "command"}),
        *({"kind": "command", "parts": parts} for parts in ([], ["node1"], ["node1", 7])),
        {"kind": "command", "parts": ["node1", "x" * (messages.LONGEST_PART + 1)]},
        {"kind": "rank", "parts": ["0", "node1", "node2"]},
        {"kind": "none", "parts": ["node1", GONE]},
    ],
    "spent": [[1, 2, 3], [1, 2, 3, -1], [1, 2, 3, 1 << 40], [1, 2, 3, True], [1, 2, 3, 4.5], "1234", None],
    "topology": ["a" * 256, "a\nb", 7, None],
    "fingerprint": ["x" * (messages.LONGEST_FINGERPRINT + 1), "a\nb", 7],
    "addresses": ["\x1b"],
    "clock_ms": [-1, 1.5],
    "given": [{"PATH": "/"}, {"WORLD_SIZE": "\x1b[2J"}, {"WORLD_SIZE": 2}, [], None],
    "member": ["zz", "", "ab" * 17],
    "host": ["$(reboot)", "", "-a", "a" * 300, 5],
}


@pytest.mark.parametrize(("name", "wrong"), [(name, wrong) for name, values in WRONG.items() for wrong in values])
def test_an_invalid_part_of_a_check_in_is_refused(name: str, wrong: object) -> None:
    """Much of it is shown to people."""
    with pytest.raises(WireError):
        parse(JoinRequest, {**join_request().body(), name: wrong})


def test_an_obstacle_is_attributed_to_the_members_own_host() -> None:
    """A host name in the obstacle itself is ignored."""
    body = join_request(host="node1").body() | {"obstacle": Failure("command", ("node9", GONE)).body()}
    assert parse(JoinRequest, body).obstacle == Failure("command", ("node1", GONE))


def test_the_longest_check_in_fits() -> None:
    """Every text is as long as allowed, and each of its characters takes twelve bytes of JSON."""
    wide = "\U0001d538"
    said = join_request(host="n" * 253, obstacle=Failure("command", ("n" * 253, wide * messages.LONGEST_PART)))
    said = said._replace(topology="t" * 255, fingerprint="f" * 1024, addresses="a" * 1024, clock_ms=0)
    assert len(wire.encode(said.body(1))) < wire.MOST_MEMBER_BYTES - 512


def test_an_obstacle_is_reported_with_all_its_hosts_once_all_have_checked_in() -> None:
    """The first rank's is reported where they differ; it may be the leader's own. Many hosts leave it room."""
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
    same = Roster(join_request(host="node1", rank=0, nodes=100))
    for rank in range(1, 100):
        same.add(unable(f"host-{rank}-{'x' * rank}", rank=rank), "10.0.0.9")
    found = same.obstacle()
    assert (len(found.parts[0]), found.parts[1]) == (LONGEST_HOSTS, GONE)


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
    """An obstacle that keeps a member from starting the command counts more."""
    hosts = [f"node{number}" for number in range(1, 4)]
    first, *others = (
        join_request(host=host, rank=rank, nodes=3, obstacle=Failure(kind, (host, GONE)) if kind else None)
        for rank, (host, kind) in enumerate(zip(hosts, kinds, strict=True))
    )
    roster = Roster(first)
    for member in others:
        roster.add(member, "10.0.0.9")
    assert roster.obstacle() == (told and Failure(told[0], (told[1], GONE)))


# How a rendezvous ends for one member: once, and by when.


FIRST, SECOND = MissingError("rank 0", "nobody", "a look"), ConflictError("3 hosts", "2", "a look")


def test_the_first_error_stands_and_the_outcome_is_over_after_its_linger_time(clock: Clock) -> None:
    """Later errors, while the others are informed, are ignored; without others it is over at once."""
    with Loop(clock) as loop:
        outcome = Outcome(loop, 10.0)
        outcome.fail(FIRST, linger_s=5.0)
        clock.ahead = 4.9
        loop.turn(0.0)
        assert (outcome.is_known, outcome.is_over) == (True, False)
        clock.ahead = 5.1
        loop.turn(0.0)
        assert outcome.is_over
        outcome.fail(SECOND)
        with pytest.raises(MissingError):
            outcome.result()
        alone = Outcome(loop, 10.0)
        alone.fail(FIRST)
        assert alone.is_over


def test_a_deadline_counts_from_its_beginning(clock: Clock) -> None:
    """It counts by the loop's clock; a world that closes then has a little more time."""
    with Loop(clock) as loop:
        deadline = Outcome(loop, 10.0)
        clock.ahead = 4.0
        assert deadline.waited_s() == 4
        assert deadline.left_s() == pytest.approx(6.0 + messages.CLOSING_S)
        assert (deadline.is_before(3.9), deadline.is_before(4.1)) == (False, True)


def test_a_process_is_a_node_or_a_task() -> None:
    """What nobody asked for is not there, and others can resolve this host's name."""
    view = View(World("a", 2, 8, "fd00::1", 29500, "0" * 16), Assignment(1, 4, 4, rank=5), "node", {})
    assert (view.processes, view.process, view.is_cpu_only, view.has_known_name) == (2, 1, False, True)
    assert (view._replace(scope="task").processes, view._replace(scope="task").process) == (8, 5)
    assert repr(view) == "<world a: node 1 of 2, 8 slots, rank 0 at [fd00::1]:29500>"
    view = view._replace(
        world=view.world._replace(nodes=None, size=None, master_addr="n1"), place=Assignment(*[None] * 3)
    )
    assert repr(view) == "<world a: node ? of ?, ? slots, rank 0 at n1:29500>"
