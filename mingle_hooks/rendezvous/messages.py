"""The roster as it travels: encoded once, compressed, the same octets for every member that asks for it.

It goes before the answer, without a MAC of its own: the answer, which has one, holds its digest.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from mingle_hooks import values
from mingle_hooks.errors import (
    LIMITS,
    ConflictError,
    Limit,
    MingleError,
    MissingError,
    NetworkError,
    NotExecutableError,
    NotFoundError,
    PlaceError,
    printable,
)
from mingle_hooks.net.addresses import is_hostname, is_hostname_or_address
from mingle_hooks.rendezvous.timeline import Spent
from mingle_hooks.rendezvous.wire import (
    MOST_LEADER_BYTES,
    Body,
    WireError,
    address,
    hexadecimal,
    integer,
    optional_integer,
    text,
)
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS

if TYPE_CHECKING:
    from typing_extensions import NotRequired


# What a leader answers, read strictly: it ends up in shells, files and frameworks of every member.


class Shared(TypedDict):
    """The world, the same for all."""

    nodes: int
    size: int
    addr: str
    port: int
    digest: str
    epoch: NotRequired[int]  # not there where one member is alone
    spent: NotRequired[list[int]]  # no leader's word: this member's own Spent, once all is over
    at: NotRequired[str]  # not parsed: the leader's address that all reach
    roster: NotRequired[Any]  # rows of ROW, for those who ask; on its way to them, the digest of what was sent


class Answer(Shared):
    """And one member's own place in it."""

    rank: int
    offset: int
    own: str
    slots: NotRequired[int]  # not parsed


DIGEST_BYTES = 8
LAST_EPOCH = 2**31
ROW = ("rank", "host", "address", "slots")


def parse_answer(body: Body) -> Answer:
    """Return the answer, with nothing in it but what belongs there; WireError where a part is out of bounds."""
    nodes = integer(body, "nodes", 1, MOST_NODES)
    size = integer(body, "size", nodes, nodes * MOST_SLOTS)
    addr = text(body, "addr", 253)
    # An address, or the name that a user exported as MASTER_ADDR.
    if not is_hostname_or_address(addr):
        raise WireError("addr: neither an address nor a host name")
    found: Answer = {
        "epoch": integer(body, "epoch", 1, LAST_EPOCH),
        "nodes": nodes,
        "size": size,
        "addr": addr,
        "port": integer(body, "port", 1, 65535),
        "digest": hexadecimal(body, "digest", DIGEST_BYTES).hex(),
        "rank": integer(body, "rank", 0, nodes - 1),
        "offset": integer(body, "offset", 0, size - 1),
        "own": address(body, "own"),
    }
    if "roster" in body:
        found["roster"] = _roster(body["roster"], nodes)
    return found


def _roster(rows: object, nodes: int) -> list[list[Any]]:
    if not isinstance(rows, list) or len(rows) != nodes:
        raise WireError(f"roster: not {nodes} rows")
    return [_row(row, rank) for rank, row in enumerate(rows)]


def _row(row: object, rank: int) -> list[Any]:
    if not isinstance(row, list) or len(row) != len(ROW):
        raise WireError("roster: not a row")
    body = dict(zip(ROW, row, strict=True))
    host = text(body, "host", 253)
    if not is_hostname(host):
        raise WireError("roster: not a host name")
    return [integer(body, "rank", rank, rank), host, address(body, "address"), integer(body, "slots", 1, MOST_SLOTS)]


# Why a world did not form, in a shape that travels: every member says the same thing.

Kind = Limit | Literal[
    "missing", "unconfirmed", "keys", "versions", "runs", "rank", "beyond", "nodes", "leaders", "given", "size",
    "address", "task", "tasks", "node_rank", "network", "protocol", "full",
    "differs",
    "command", "permission", "output", "directory", "unwritable",
]  # fmt: skip

# Bounds of what travels: a few parties, each a host and an address, or a folded host list.
MOST_PARTS = 4
LONGEST_PART = 300
# Why a member cannot start the command, as it says at check-in; the parts are its host and what it saw. The last one
# counts only where other members can write theirs: a program may need none.
OBSTACLES: tuple[Kind, ...] = ("command", "permission", "output", "directory", "unwritable")
# A leader tells of its failure for seconds; this is only a bound.
LONGEST_AGE_MS = 10**9

# kind -> (error, expected, seen, remedy); {0}, {1}… are the failure's parts.
_KINDS: dict[Kind, tuple[type[MingleError], str, str, str]] = {
    "missing": (
        MissingError,
        "{0} members within {1} s",
        "{2}, missing {3}",
        "checking that host's log and firewall, or a longer --timeout",
    ),
    "unconfirmed": (
        MissingError,
        "{0} members to confirm the world within {1} s",
        "{2}, missing {3}",
        "checking whether that host stopped or lost its network, or a longer --timeout",
    ),
    **{
        kind: (MissingError, "{0} members within {1} s", "{2}, missing {3}", f"{remedy} on rank 0's host")
        for kind, (_, remedy) in LIMITS.items()
    },
    "keys": (
        MissingError,
        "{0} members with the same key within {1} s",
        "{2}, and another key at {3}",
        "the same --key-file or MINGLE_KEY on every member; if that host is not yours, check the missing ones",
    ),
    "versions": (
        MissingError,
        "{0} members with the same version of mingle within {1} s",
        "{2}, and another version at {3}",
        "the same version of mingle on every member",
    ),
    "runs": (
        MissingError,
        "{0} members of the same run of the job within {1} s",
        "{2}, and another PBS_JOBCOOKIE, or none, at {3}",
        "pbs_tmrsh or pbsdsh to start every member; if an earlier run left that one, check the missing ones",
    ),
    "rank": (
        ConflictError,
        "each node rank once",
        "rank {0} claimed by {1} and {2}",
        "one `mingle` per node (--ntasks-per-node=1), --scope task if every task calls it, or unset NODE_RANK",
    ),
    "beyond": (
        ConflictError,
        "node ranks below the number of nodes, {0}",
        "rank {1} claimed by {2}",
        "the same --nodes on every member, and ranks from 0",
    ),
    "nodes": (
        ConflictError,
        "the same number of nodes from every member",
        "{0} from {1}, {2} from {3}",
        "the same --nodes on every member",
    ),
    "leaders": (
        ConflictError,
        "one rank 0",
        "two leaders: {0} and {1}",
        "unset NODE_RANK if another job left it, --rank 0 on one member only, or another --id if these are two jobs",
    ),
    "given": (
        ConflictError,
        "the same {0} on every member that exports it",
        "{1} and {2}",
        "unset {0}, or exporting the same value everywhere",
    ),
    "size": (
        ConflictError,
        "WORLD_SIZE={0}, as exported",
        "{1} slots on all members",
        "unset WORLD_SIZE, or --slots N",
    ),
    "address": (
        NetworkError,
        "an address of rank 0, {1}, in MASTER_ADDR",
        "MASTER_ADDR={0}, as exported{2}",
        "unset MASTER_ADDR",
    ),
    "task": (
        MissingError,
        "all {1} tasks of {0} to stay until the world is formed",
        "local rank {2} {3}",
        "checking that task's output",
    ),
    "tasks": (
        ConflictError,
        "each local rank from 1 to {1} once on {0}",
        "local rank {2} twice or out of range",
        "one `mingle` per task at a time, each with its own local rank",
    ),
    "node_rank": (
        ConflictError,
        "node rank {1} on {2}, as its scheduler says",
        "NODE_RANK={0}, as exported",
        "unset NODE_RANK",
    ),
    "network": (
        NetworkError,
        "an address of rank 0, {0}, that every member can reach",
        "{1}",
        "--iface with a network that all share, or opening the --port-range in the firewall",
    ),
    "protocol": (
        ConflictError,
        "valid messages from rank 0, {0}",
        "{1}",
        "the same version of mingle on every member, and checking what listens there",
    ),
    "differs": (
        ConflictError,
        "{0} nodes that are alike, as --strict or the settings require",
        "{1}",
        "{2}",
    ),
    "command": (
        NotFoundError,
        "a command that every node can start",
        "{0}: {1}",
        "the same files and PATH on every node, or the full path",
    ),
    "permission": (
        NotExecutableError,
        "a command that every node can start",
        "{0}: {1}",
        "checking the file's permissions and its `#!` line there",
    ),
    "output": (
        PlaceError,
        "an open standard output on every node",
        "{0}: {1}",
        "leaving out `>&-`",
    ),
    "directory": (
        PlaceError,
        "a working directory that every node can enter",
        "{0}: {1}",
        "cd to one that exists on every node",
    ),
    "unwritable": (
        PlaceError,
        "a working directory that can be written on every node, or on none",
        "{0}: {1}",
        "checking its file system there",
    ),
    "full": (
        ConflictError,
        "{0} members",
        "one more: {1}",
        "a larger --nodes, or another --id if this is another job",
    ),
}


class Failure(NamedTuple):
    """A kind of failure and what belongs into its message, as text for a person."""

    kind: Kind
    parts: tuple[str, ...]

    @property
    def is_certain(self) -> bool:
        """Whether it keeps a member from starting the command, whatever the others say."""
        return self.kind != "unwritable"

    def error(self) -> MingleError:
        """Return the error that tells it, with the same words on every member."""
        kind, expected, seen, remedy = _KINDS[self.kind]
        return kind(*(line.format(*self._shown()) for line in (expected, seen, remedy)))

    def body(self, age_s: float = 0.0) -> Body:
        """Return what travels: the failure, and how many seconds ago it happened."""
        return {"kind": self.kind, "parts": self._shown(), "age_ms": min(int(age_s * 1000), LONGEST_AGE_MS)}

    def _shown(self) -> list[str]:
        return [printable(part, LONGEST_PART) for part in self.parts]

    @classmethod
    def parse(cls, body: Body) -> Failure:
        """Return the failure that a leader told of; WireError when it is none."""
        kind, parts = next((known for known in _KINDS if known == body.get("kind")), None), body.get("parts")
        if kind is None or not isinstance(parts, list) or len(parts) > MOST_PARTS:
            raise WireError("not a failure")
        failure = cls(kind, tuple(text({"part": part}, "part", LONGEST_PART) for part in parts))
        try:
            failure.error()
        except IndexError as error:
            raise WireError("a failure with parts missing") from error
        return failure


def age_s(body: Body) -> float:
    """Return how many seconds ago the failure of this body happened; WireError for what is no number of them."""
    return integer({"age_ms": 0, **body}, "age_ms", 0, LONGEST_AGE_MS) / 1000


# What a member says of itself when it checks in.

MEMBER_BYTES = 16
LONGEST_TOPOLOGY = 255
# What a user may have exported and every member must agree on, with the longest value that is taken.
LONGEST_FINGERPRINT = LONGEST_ADDRESSES = 1024
LAST_CLOCK_MS = 10**15  # in the year 33658
PINNED = {"MASTER_ADDR": 253, "MASTER_PORT": 5, "WORLD_SIZE": 8, "NODE_RANK": 5}


class JoinRequest(NamedTuple):
    """What a member says of itself."""

    member: bytes  # random, one per process
    host: str
    rank: int | None
    nodes: int | None
    slots: int
    machine: str  # equal for members that share a network stack
    pinned: Mapping[str, str] = MappingProxyType({})
    wants_roster: bool = False
    spent: Spent | None = None  # how it came to check in, for who asks who was last
    topology: str = ""  # the switches above it, from the top down; empty where nobody asks, or nobody knows
    fingerprint: str = ""  # of its node; a member without one is not compared
    addresses: str = ""  # of its node, each with what carries it
    clock_ms: int | None = None  # the time of day when it said so
    obstacle: Failure | None = None  # why it cannot start the command

    def body(self, clock_ms: int | None = None) -> Body:
        """Return what travels, at this time of day."""
        compared = {"fingerprint": self.fingerprint, "addresses": self.addresses, "clock_ms": clock_ms}
        body: Body = {
            **(compared if self.fingerprint else {}),
            "member": self.member.hex(),
            "host": self.host,
            "rank": self.rank,
            "nodes": self.nodes,
            "slots": self.slots,
            "machine": self.machine,
            "given": dict(self.pinned),
            "roster": self.wants_roster,
        }
        body |= {"topology": self.topology} if self.topology else {}
        body |= {"obstacle": self.obstacle.body()} if self.obstacle else {}
        return {**body, "spent": list(self.spent)} if self.spent else body

    @classmethod
    def parse(cls, body: Body) -> JoinRequest:
        """Return the check-in that a member sent; WireError when a part of it is out of bounds."""
        host, pinned = text(body, "host", 253), body.get("given")
        if not is_hostname(host):
            raise WireError("host: not a host name")
        if not isinstance(pinned, dict) or not pinned.keys() <= PINNED.keys():
            raise WireError("given: not variables of a world")
        return cls(
            member=hexadecimal(body, "member", MEMBER_BYTES),
            host=host,
            rank=optional_integer(body, "rank", 0, MOST_NODES - 1),
            nodes=optional_integer(body, "nodes", 1, MOST_NODES),
            slots=integer(body, "slots", 1, MOST_SLOTS),
            machine=text(body, "machine", 64),
            pinned={name: text(pinned, name, PINNED[name]) for name in pinned},
            wants_roster=body.get("roster") is True,
            spent=Spent.parse(body["spent"]) if "spent" in body else None,
            topology=_told(body, "topology", LONGEST_TOPOLOGY),
            # One object for all members that say the same: a leader of thousands keeps each.
            fingerprint=sys.intern(_told(body, "fingerprint", LONGEST_FINGERPRINT)),
            addresses=_told(body, "addresses", LONGEST_ADDRESSES),
            clock_ms=optional_integer(body, "clock_ms", 0, LAST_CLOCK_MS),
            obstacle=_obstacle(body["obstacle"], host) if "obstacle" in body else None,
        )


def _obstacle(body: object, host: str) -> Failure:
    """Return why a member cannot start the command, on the host that it has checked in from. Raises WireError."""
    failure = Failure.parse(body if isinstance(body, dict) else {})
    if failure.kind not in OBSTACLES:
        raise WireError("obstacle: not one of a command")
    return Failure(failure.kind, (host, failure.parts[1]))


def _told(body: Body, name: str, longest: int) -> str:
    """Return a text that a member of another version does not send. Raises WireError."""
    return text(body, name, longest) if name in body else ""


# Fast: the rows of neighbours are alike, and every further level takes longer than it saves.
LEVEL = 1


def pack_roster(text: bytes) -> bytes:
    """Return the rows' JSON text, compressed."""
    return zlib.compress(text, LEVEL)


def roster_digest(packed: bytes) -> str:
    """Return what the answer says of packed rows: their SHA-256 in hex."""
    return sha256(packed).hexdigest()


def check_roster(packed: bytes, expected: str) -> None:
    """Raise WireError for other rows than those of which the answer has this digest."""
    if roster_digest(packed) != expected:
        raise WireError("roster: not the one of this answer")


def unpack_roster(packed: bytes) -> object:
    """Return what was packed, to be checked; WireError if it is no such thing."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, MOST_LEADER_BYTES)
        if not unpacker.eof:
            raise WireError(f"roster: more than {MOST_LEADER_BYTES} bytes, or cut short")
        return values.from_json(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise WireError("roster: not a packed one") from error
