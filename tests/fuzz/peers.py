"""Targets that read what another host sends: frames and handshakes, messages, datagrams, greetings.

A line `NUMBER JSON` is a frame of this kind. A target seals it where only holders of the key may send it, so that what
is behind the proof is reached too.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from fuzz.doubles import Wire, deliver, documented, quiet_loop, rows
from mingle_hooks import values
from mingle_hooks.check import probes, report as check_report
from mingle_hooks.errors import MingleError
from mingle_hooks.rendezvous import discovery, local_tasks, member, messages, multicast, wire
from mingle_hooks.rendezvous.connection import Connection, Endpoint, boottime
from mingle_hooks.rendezvous.leader import Leader
from mingle_hooks.rendezvous.roster import AdvertisedAddress, Roster, Terms
from mingle_hooks.rendezvous.wire import HEADER, MOST_STRANGER_BYTES, Attempt, Material, Secret, WireError
from mingle_hooks.run import attempt, messages as run, status

ATTEMPT = Attempt("fuzz")
SECRET = Secret.derive(Material(b"the key of these tests"), ATTEMPT)
NONCE, LEADER = b"n" * wire.NONCE_BYTES, b"l" * messages.MEMBER_BYTES
END = "10.0.0.1 20000"


def frames(data: bytes) -> None:
    """Check that a connection hands over the same frames in whatever pieces they come, and keeps no more than one."""
    whole, pieces = _handed_over([data]), _handed_over(data[at : at + 7] for at in range(0, len(data), 7))
    assert whole == pieces == _split(data)


def _handed_over(pieces: Iterable[bytes]) -> tuple[list[tuple[int, bytes]], bool]:
    found: list[tuple[int, bytes]] = []
    ends: list[str] = []
    sock: Any = Wire()
    reader = Connection(quiet_loop(), sock, lambda kind, payload: found.append((kind, payload)), ends.append)
    for piece in pieces:
        deliver(reader, sock, piece)
        assert len(reader._in) <= 2 * (HEADER.size + MOST_STRANGER_BYTES)
    assert len(ends) <= 1
    return found, bool(ends)


def _split(data: bytes, most: int = MOST_STRANGER_BYTES) -> tuple[list[tuple[int, bytes]], bool]:
    """Return the whole frames of some data, and whether one follows that is too large."""
    found: list[tuple[int, bytes]] = []
    while len(data) >= HEADER.size:
        length, kind = HEADER.unpack_from(data)
        if length > most:
            return found, True
        if len(data) < HEADER.size + length:
            break
        found.append((kind, data[HEADER.size : HEADER.size + length]))
        data = data[HEADER.size + length :]
    return found, False


def stranger(data: bytes) -> None:
    """Check that nobody without a proof of the key gets in, or another answer than those for strangers."""
    leader, loop = _leader()
    for kind, text in rows(data):
        at: Any = Wire()
        leader.acceptor._take(at, "10.0.0.2")
        (session,) = [its for its in leader.acceptor.connected if its.connection._sock is at]
        deliver(session.connection, at, wire.frame(kind, text))
        assert session._sealer is None or _is_proof(text)
        assert session in leader.acceptor.strangers or session.connection.closed
        for answered, _ in _answers(at):
            assert answered in (wire.CHALLENGE, wire.REFUSED, wire.VERIFIED)
    assert len(leader.roster) == 1
    assert loop.shortage is None
    leader.close()


def _is_proof(text: bytes) -> bool:
    body = wire.decode(text)
    nonce = wire.hexadecimal(body, "nonce", wire.NONCE_BYTES)
    return body["at"] == END and SECRET.mac(b"hello", nonce, END.encode()).hex() == body["proof"].lower()


def _answers(at: Wire) -> list[tuple[int, bytes]]:
    """Return the frames that were sent, all of them whole."""
    found, _ = _split(bytes(at.sent), most=wire.MOST_LEADER_BYTES)
    assert sum(HEADER.size + len(payload) for _, payload in found) == len(at.sent)
    return found


def _leader(nodes: int = 3) -> tuple[Leader, Any]:
    loop: Any = quiet_loop()
    me = messages.JoinRequest(LEADER, "node0", 0, nodes, 1, "there")
    terms = Terms((AdvertisedAddress("10.0.0.1"), AdvertisedAddress("fd00::1")), 20_001, 0)
    return Leader(loop, ATTEMPT, SECRET, Roster(me), terms, [], lambda: None, 1000), loop


def members(data: bytes) -> None:
    """Check that a leader answers in its form, or ends a connection or the world, whatever two members say.

    Of the numbers, kinds from 100 on are the second member's, and 99 lets seconds pass.
    """
    leader, loop = _leader()
    calls = [_Caller(leader, bytes([number]) * wire.NONCE_BYTES) for number in (1, 2)]
    for kind, text in rows(data):
        if kind == 99:
            loop.ahead(5.0)
            loop.turn(0.0)
        else:
            calls[kind >= 100].send(kind % 100, text)
            loop.turn(0.0)
    assert leader.state in ("gathering", "closing", "formed", "failed", "withdrawn")
    if leader.failure is not None:
        documented(lambda: _raise(leader.failure), 64, 65, 69, 71, 73, 76, 126, 127)
    for call in calls:
        for kind, body in call.answers():
            if kind == wire.ANSWER:
                messages.parse_answer({**body, "roster": messages.unpack_roster(call.roster)} if call.roster else body)
            elif kind == wire.FAILED:
                messages.Failure.parse(body)
            elif kind == wire.PROGRESS:
                wire.parse(member.Progress, body)
    leader.close()


def _raise(failure: messages.Failure | None) -> None:
    if failure is not None:
        raise failure.error()


class _Caller:
    """A member whose greeting was answered."""

    def __init__(self, leader: Leader, nonce: bytes) -> None:
        sock: Any = Wire()
        self.wire, self.roster = sock, b""
        leader.acceptor._take(sock, "10.0.0.2")
        self.session = next(its for its in leader.acceptor.connected if its.connection._sock is sock)
        deliver(self.session.connection, sock, wire.hello(SECRET, ATTEMPT.tag.hex(), nonce, "node1", END))
        ((_, challenge),) = _answers(self.wire)
        self.wire.sent.clear()
        theirs = wire.hexadecimal(wire.decode(challenge), "nonce", wire.NONCE_BYTES)
        self._sealer = wire.Sealer(SECRET, nonce, theirs, b"member", b"leader")

    def send(self, kind: int, text: bytes) -> None:
        """Send a sealed frame."""
        if not self.session.connection.closed:
            deliver(self.session.connection, self.wire, self._sealer.seal(kind, text))

    def answers(self) -> Iterator[tuple[int, wire.Body]]:
        """Yield what the leader has said."""
        for kind, payload in _answers(self.wire):
            if kind == wire.ROSTER:
                self.roster = payload
            else:
                yield kind, self._sealer.open(kind, payload)


class _Still(member.Membership):
    """A membership that dials no address."""

    def _try_next(self) -> None:
        pass


def leaders(data: bytes) -> None:
    """Check that a member ends in one of its states, whatever a leader says that holds the key.

    Kind 32 is a roster: its text is packed.
    """
    loop, sock = quiet_loop(), Wire()
    link = Connection(loop, sock, lambda _kind, _payload: None, lambda _reason: None)  # type: ignore[arg-type]
    ours, theirs = (
        wire.Sealer(SECRET, NONCE, NONCE, *ends) for ends in ((b"member", b"leader"), (b"leader", b"member"))
    )
    proven = discovery.ProvenLeader(Endpoint("10.0.0.1", 20_000, "fuzz"), link, ours, LEADER, 0, "node0")
    me = messages.JoinRequest(b"m" * messages.MEMBER_BYTES, "node1", None, None, 1, "here", wants_roster=True)
    its = _Still(loop, ATTEMPT, SECRET, proven, me, lambda _own: True, lambda: 60.0, lambda: None)
    packed = b""
    for kind, text in rows(data):
        if kind == wire.ROSTER:
            packed = messages.pack_roster(text)
            deliver(link, sock, wire.frame(kind, packed))
            continue
        if not link.closed:
            sealed = theirs.seal(kind, text.replace(b"DIGEST", messages.roster_digest(packed).encode()))
            deliver(link, sock, sealed)
    assert its.state in ("waiting", "ready", "formed", "failed", "moved", "lost")
    assert (its.state == "failed") == (its.failure is not None)
    documented(lambda: _raise(its.failure), 64, 65, 69, 71, 73, 76, 126, 127)
    if its.answer is not None:
        again = messages.parse_answer(json.loads(values.to_json(its.answer)))
        assert again == its.answer
        assert 0 <= again["rank"] < again["nodes"] <= again["size"]
    its.close()


def answers_to_a_call(data: bytes) -> None:
    """Check that an answer to HELLO without a proof of the key leads to nothing but a message."""
    proven: list[object] = []
    loop = quiet_loop()
    its = discovery.Dialer(loop, ATTEMPT, SECRET, proven.append, _told, lambda *ends: _told(*map(str, ends)), "node1")
    for kind, text in rows(data):
        sock: Any = Wire()
        call = discovery._Call(its, Endpoint("10.0.0.1", 20_000, "fuzz"), sock)
        deliver(call._connection, sock, wire.frame(kind, text))
    assert not proven
    its.close()


def _told(*texts: str) -> None:
    assert all(text.isprintable() and len(text) <= 300 for text in texts)


# The records of all messages: by name, so that each is reached at once.

_OF_MEMBERS = (messages.JoinRequest, messages.Failure, messages.Row, messages.Durations)
_OF_LEADERS = (member.Progress, member._Welcome, member._Moved, discovery._Notice)
_OF_RUNS = (run.Join, run.Welcome, *run.AGENT_MESSAGES.values(), *run.RUNNER_MESSAGES.values())
_OF_CHECKS = ("ProbeOrder", "SendOrder", "Found", "Counted", "_Facts")
RECORDS: dict[str, type[Any]] = {
    **{record.__name__: record for record in (*_OF_MEMBERS, *_OF_LEADERS)},
    **{f"run.{record.__name__}": record for record in _OF_RUNS},
    "run.Status": status.RunStatus,
    "run.Cause": attempt.Cause,
    **{f"check.{name}": getattr(check_report, name) for name in _OF_CHECKS},
}


def records(data: bytes) -> None:
    """Check that a record is the same once it is written and read again, and execve(2) takes what it is to take."""
    name, _, text = data.partition(b" ")
    kind = RECORDS.get(name.decode("ascii", "replace"))
    if kind is None:
        return
    try:
        body = wire.decode(text)
        record: Any = messages.Failure.parse(body) if kind is messages.Failure else wire.parse(kind, body)
    except WireError:
        return
    written = record.body() if hasattr(record, "body") else wire.body_of(record)
    if isinstance(record, member.Progress) and record.nodes is None:
        written = {**written, "of": 0}  # as a leader says that it does not know it
    again = wire.parse(kind, wire.decode(wire.encode(written)))
    if isinstance(
        record, messages.JoinRequest
    ):  # it has the time of sending, and is not compared without a fingerprint
        record = record._replace(clock_ms=None, addresses=record.addresses if record.fingerprint else "")
    assert again == record
    if isinstance(record, run.Start):
        for word in itertools.chain(record.command, record.options, *record.environ.items(), [record.directory]):
            os.fsencode(word)
        assert all(name and "=" not in name for name in record.environ)


# Datagrams.


def datagrams(data: bytes) -> None:
    """Read a beacon, a heartbeat or a probe's packet, by the first byte; sealed by the key if that is upper case."""
    kind, rest = data[:1], data[1:]
    if (read := _DATAGRAMS.get(kind.lower())) is not None:
        read(rest, is_sealed=kind.isupper())


def _beacon(data: bytes, *, is_sealed: bool) -> None:
    data = SECRET.sealed(data, multicast.MAC_BYTES, b"beacon") if is_sealed else data
    beacon = multicast.unpack_beacon(data, ATTEMPT.tag, SECRET)
    if beacon is None:
        return
    assert beacon.genuine or not is_sealed
    assert len(beacon.addresses) <= multicast.MOST_ADDRESSES
    assert len(beacon.nonces) <= multicast.MOST_NONCES + 2 * multicast.MOST_ADDRESSES
    for address in beacon.addresses:
        assert wire.address({"a": address}, "a") == address
    again = multicast.unpack_beacon(multicast.pack_beacon(beacon, SECRET), ATTEMPT.tag, SECRET)
    assert again == beacon._replace(genuine=True, nonces=beacon.nonces[: multicast.MOST_NONCES])


def _heartbeat(data: bytes, *, is_sealed: bool) -> None:
    sock: Any = Wire()
    sock.arrived += SECRET.sealed(data, run._MAC_BYTES, b"life", run.AGENT) if is_sealed else data
    for beat, _, _ in run.heartbeats(sock, SECRET, run.AGENT):
        assert run.pack_heartbeat(SECRET, run.AGENT, beat)[: len(data)] == data


def _packet(data: bytes, *, is_sealed: bool) -> None:
    data = SECRET.sealed(data, probes._MAC_BYTES, b"check") if is_sealed else data
    packet = probes.unpack_packet(SECRET, data)
    if packet is not None:
        assert data.startswith(probes.pack_packet(SECRET, packet))


_DATAGRAMS: dict[bytes, Callable[..., None]] = {b"b": _beacon, b"h": _heartbeat, b"p": _packet}


# The tasks of one host, and an agent's link to its runner.


def local(data: bytes) -> None:
    """Check that a task's greeting is numbers, and what a task gets from the first one is an object."""
    sock: Any = Wire()
    sock.arrived += data
    if (greeting := local_tasks._greeting(sock)) is not None:
        rank, wait_s, obstacle = greeting
        assert rank >= 0
        assert wait_s >= 0
        _shown(obstacle)
    sock = Wire()
    sock.arrived += data
    assert isinstance(local_tasks._Reader(sock, boottime() + 1).read_message(), dict)


def _shown(failure: messages.Failure | None) -> None:
    with suppress(MingleError):
        _raise(failure)


def links(data: bytes) -> None:
    """Check that agent and runner take anything from each other after a proof; other frames end the link."""
    for is_runner, known in ((True, run.AGENT_MESSAGES), (False, run.RUNNER_MESSAGES)):
        loop, sock = quiet_loop(), Wire()
        got: list[tuple[int, Any]] = []
        link = run.Link(loop, sock, SECRET, is_runner=is_runner, on_end=lambda _reason: None)  # type: ignore[arg-type]
        link.on_message = lambda kind, body: got.append((kind, body))  # noqa: B023 - it is called in this turn only
        theirs, (ours, other) = b"t" * wire.NONCE_BYTES, (link._nonce, b"t" * wire.NONCE_BYTES)
        nonces = (other, ours) if is_runner else (ours, other)
        sealer = wire.Sealer(SECRET, *nonces, *((run.AGENT, run.RUNNER) if is_runner else (run.RUNNER, run.AGENT)))
        first = run.HELLO if is_runner else run.CHALLENGE
        for number, (kind, text) in enumerate(rows(data)):
            if not number and kind != first:
                deliver(link, sock, wire.frame(first, wire.encode({"nonce": theirs.hex()})))
            if link.closed:
                break
            deliver(link, sock, sealer.seal(kind, text) if link._sealer else wire.frame(kind, text))
        for kind, body in got:
            with suppress(WireError, KeyError):
                wire.parse(known[kind], body)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "frames": frames,
    "stranger": stranger,
    "members": members,
    "leaders": leaders,
    "calls": answers_to_a_call,
    "records": records,
    "datagrams": datagrams,
    "local": local,
    "links": links,
}
# The names of all fields.
WORDS = sorted({key for kind in RECORDS.values() for key, *_ in wire._fields(kind)})  # type: ignore[arg-type]
