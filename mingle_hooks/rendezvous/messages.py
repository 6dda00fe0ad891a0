"""The messages between members and their leader, read strictly; leases, deadlines and ends; and the world they form."""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict

from mingle_hooks import errors, values
from mingle_hooks.errors import LIMITS, Limit, MingleError, MissingError, printable
from mingle_hooks.net.addresses import NcclSetting, is_hostname_or_address
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import MOST_LEADER_BYTES, Body, Key, Most, WireError, integer, parse, text, within
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS
from mingle_hooks.settings import Scope

if TYPE_CHECKING:
    from typing_extensions import NotRequired


# The durations of a member's start, from the beginning of its process to its answer.

MOST_MS = 7 * 24 * 3600 * 1000
# Index, after the name, of a process's start in /proc/PID/stat, in ticks since the boot (proc(5)).
_STARTTIME = 19
Milliseconds = Annotated[int, within(0, MOST_MS)]


class Durations(NamedTuple):
    """Milliseconds from the start of the process until it searched for the others, checked in, and had its answer.

    The name service took `names_ms` of those between the first two. `formed_ms` is 0 until there is an answer.
    """

    asked_ms: Milliseconds
    names_ms: Milliseconds
    in_ms: Milliseconds
    formed_ms: Milliseconds = 0


def process_age_s() -> float:
    """Return the age of this process in seconds, in steps of a tick (10 ms); 0 without /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read(4096).rpartition(b")")[2].split()[_STARTTIME])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


# The result of a rendezvous: the world, the same on every member, and each member's place in it.


class Member(NamedTuple):
    """One entry of the roster."""

    node_rank: int
    host: str
    address: str  # its own address on the world's network
    slots: int


class World(NamedTuple):
    """The part that all members share; equal digests mean equal worlds.

    nodes and size are None only without a rendezvous (--no-wait, batch script), if they are unknown.
    """

    id: str
    nodes: int | None
    size: int | None  # slots over all members, WORLD_SIZE
    master_addr: str  # an IP address, IPv6 without brackets, or the name that the user exported
    master_port: int
    digest: str  # 16 hex digits
    roster: tuple[Member, ...] = ()  # in rank order; empty unless requested


class Assignment(NamedTuple):
    """One member's place in the world; unknown fields (--no-wait, batch script) are None."""

    node_rank: int | None
    slots: int | None  # LOCAL_WORLD_SIZE
    rank_offset: int | None  # the first global rank on this node
    address: str | None = None  # this member's own address on the world's network
    iface: str | None = None  # the interface that carries it
    # Task scope, or one process on each node.
    local_rank: int | None = None
    rank: int | None = None


class Batch(NamedTuple):
    """How torchrun runs with the variables of a batch shell, which every node of the job inherits."""

    timeout_s: int  # how long torchrun waits for the other nodes
    processes: str  # torchrun's --nproc-per-node; empty for its default


class View(NamedTuple):
    """One member's view of the world."""

    world: World
    place: Assignment
    scope: Scope  # "node": one launch on each node; "task": one process for each slot
    user_environ: Mapping[str, str]  # the user's environment: variables.own(os.environ)
    # Active RDMA ports, as mlx5_0:1; empty unless requested, None if a device does not answer.
    hcas: tuple[str, ...] | None = ()
    is_cpu_only: bool = False  # there is no accelerator of any make; False unless requested
    frameworks: tuple[str, ...] = ()  # those of this call; they decide whether there is a roster
    site: Mapping[str, NcclSetting] = MappingProxyType({})  # what NCCL reads from its files; empty unless requested
    durations_ms: tuple[int, ...] = ()  # this member's: Durations of rendezvous/messages.py
    gpu_variables: Mapping[str, str] = MappingProxyType({})  # variables that --bind changes
    batch: Batch | None = None  # in a batch shell whose nodes can resolve each other's names
    has_known_name: bool = True  # whether others can resolve this host's name; True unless requested

    def __repr__(self) -> str:
        """One line for a person, without the user's environment."""
        rank, nodes, size = ("?" if n is None else n for n in (self.place.node_rank, self.world.nodes, self.world.size))
        return f"<world {self.world.id}: node {rank} of {nodes}, {size} slots, rank 0 at {self.endpoint}>"

    @property
    def endpoint(self) -> str:
        """Rank 0's address and port as host:port."""
        return endpoint(self.world.master_addr, self.world.master_port)

    @property
    def processes(self) -> int | None:
        """The number of processes in task scope, of nodes in node scope; None if unknown."""
        return self.world.size if self.scope == "task" else self.world.nodes

    @property
    def process(self) -> int | None:
        """The rank of this process in task scope, of this node in node scope; None if unknown."""
        return self.place.rank if self.scope == "task" else self.place.node_rank


class File(NamedTuple):
    """A file that the caller writes, and the variables that get its path."""

    name: str
    text: str
    variables: tuple[str, ...]


def endpoint(address: str, port: int) -> str:
    """Return host:port, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# A leader's answer is read strictly: it ends up in shells, files and frameworks of every member.


class Answer(TypedDict):
    """An answer: the world, and one member's own place in it."""

    nodes: int
    size: int
    addr: str
    port: int
    digest: str
    epoch: NotRequired[int]  # absent where one member is alone
    spent: NotRequired[list[int]]  # this member's own Durations, added at the end
    at: NotRequired[str]  # not parsed: the leader's address that all reach
    roster: NotRequired[Any]  # rows, if requested; in the message, the digest of the packed rows
    rank: int
    offset: int
    own: str
    slots: NotRequired[int]  # not parsed


DIGEST_BYTES = 8
LAST_EPOCH = 2**31


class Row(NamedTuple):
    """One member in the roster."""

    rank: Annotated[int, within(0, MOST_NODES - 1)]
    host: Annotated[str, wire.host_name]
    address: Annotated[str, wire.address]
    slots: Annotated[int, within(1, MOST_SLOTS)]


def parse_answer(body: Body) -> Answer:
    """Return the known parts of an answer. Raises WireError if one is out of bounds."""
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
        "digest": wire.hexadecimal(body, "digest", DIGEST_BYTES).hex(),
        "rank": integer(body, "rank", 0, nodes - 1),
        "offset": integer(body, "offset", 0, size - 1),
        "own": wire.address(body, "own"),
    }
    if "roster" in body:
        found["roster"] = _roster(body["roster"], nodes)
    return found


def _roster(rows: object, nodes: int) -> list[list[Any]]:
    if not isinstance(rows, list) or len(rows) != nodes:
        raise WireError(f"roster: not {nodes} rows")
    found = [[*parse(Row, row)] for row in rows]
    if any(row[0] != rank for rank, row in enumerate(found)):
        raise WireError("roster: not in the order of ranks")
    return found


# Why a world did not form, as a message: every member reports the same error.

Kind = Limit | Literal[
    "missing", "unconfirmed", "keys", "versions", "runs", "rank", "beyond", "nodes", "leaders", "given", "size",
    "address", "task", "tasks", "node_rank", "network", "limits", "protocol", "full",
    "differs",
    "command", "permission", "output", "directory", "file", "unwritable",
]  # fmt: skip

# Bounds of a failure's parts: each a host and an address, or a folded host list.
MOST_PARTS = 4
LONGEST_PART = 300
# A leader reports its failure for some seconds; this is only a bound.
LONGEST_AGE_MS = 10**9

# Why a member cannot start the command, reported at check-in; the parts are its host and what it saw. The last one
# counts only if other members can write to their directory: a program may not need to.
OBSTACLES: tuple[Kind, ...] = ("command", "permission", "output", "directory", "file", "unwritable")
# What to try if a member is missing.
CHECK_HOST = "checking that host's log and firewall, or a longer --timeout"
_STARTS = "a command that every node can start"
_ONE_LEADER = (
    "unset NODE_RANK if another job left it, --rank 0 on one member only, or another --id if these are two jobs"
)
# Error -> kind -> (expected, seen, remedy); {0}, {1}… are the failure's parts.
_TEXTS: dict[type[MingleError], dict[Kind, tuple[str, str, str]]] = {
    MissingError: {
        "missing": ("{0} members within {1} s", "{2}, missing {3}", CHECK_HOST),
        "unconfirmed": (
            "{0} members to confirm the world within {1} s",
            "{2}, missing {3}",
            "checking whether that host stopped or lost its network, or a longer --timeout",
        ),
        **{
            kind: ("{0} members within {1} s", "{2}, missing {3}", f"{remedy} on rank 0's host")
            for kind, (_, remedy) in LIMITS.items()
        },
        "keys": (
            "{0} members with the same key within {1} s",
            "{2}, and another key at {3}",
            "the same --key-file or MINGLE_KEY on every member; if that host is not yours, check the missing ones",
        ),
        "versions": (
            "{0} members with the same version of mingle within {1} s",
            "{2}, and another version at {3}",
            "the same version of mingle on every member",
        ),
        "runs": (
            "{0} members of the same run of the job within {1} s",
            "{2}, and another PBS_JOBCOOKIE, or none, at {3}",
            "pbs_tmrsh or pbsdsh to start every member; if an earlier run left that one, check the missing ones",
        ),
        "task": (
            "all {1} tasks of {0} to stay until the world is formed",
            "local rank {2} {3}",
            "checking that task's output",
        ),
    },
    errors.ConflictError: {
        "rank": (
            "each node rank once",
            "rank {0} claimed by {1} and {2}",
            "one `mingle` per node (--ntasks-per-node=1), --scope task if every task calls it, or unset NODE_RANK",
        ),
        "beyond": (
            "node ranks below the number of nodes, {0}",
            "rank {1} claimed by {2}",
            "the same --nodes on every member, and ranks from 0",
        ),
        "nodes": (
            "the same number of nodes from every member",
            "{0} from {1}, {2} from {3}",
            "the same --nodes on every member",
        ),
        "leaders": ("one rank 0", "two leaders: {0} and {1}", _ONE_LEADER),
        "given": (
            "the same {0} on every member that exports it",
            "{1} and {2}",
            "unset {0}, or exporting the same value everywhere",
        ),
        "size": ("WORLD_SIZE={0}, as exported", "{1} slots on all members", "unset WORLD_SIZE, or --slots N"),
        "tasks": (
            "each local rank from 1 to {1} once on {0}",
            "local rank {2} twice or out of range",
            "one `mingle` per task at a time, each with its own local rank",
        ),
        "node_rank": ("node rank {1} on {2}, as its scheduler says", "NODE_RANK={0}, as exported", "unset NODE_RANK"),
        "protocol": (
            "valid messages from rank 0, {0}",
            "{1}",
            "the same version of mingle on every member, and checking what listens there",
        ),
        "differs": ("{0} nodes that are alike, as --strict or the settings require", "{1}", "{2}"),
        "full": ("{0} members", "one more: {1}", "a larger --nodes, or another --id if this is another job"),
    },
    errors.NetworkError: {
        "address": (
            "an address of rank 0, {1}, in MASTER_ADDR",
            "MASTER_ADDR={0}, as exported{2}",
            "unset MASTER_ADDR",
        ),
        "network": (
            "an address of rank 0, {0}, that every member can reach",
            "{1}",
            "--iface with a network that all share, or opening the --port-range in the firewall",
        ),
        "limits": ("limits for {0} nodes on {1}, rank 0's host", "{2}", "{3}"),
    },
    errors.NotFoundError: {"command": (_STARTS, "{0}: {1}", "the same files and PATH on every node, or the full path")},
    errors.NotExecutableError: {
        "permission": (_STARTS, "{0}: {1}", "checking the file's permissions and its `#!` line there")
    },
    errors.PlaceError: {
        "output": ("an open standard output on every node", "{0}: {1}", "leaving out `>&-`"),
        "directory": (
            "a working directory that every node can enter",
            "{0}: {1}",
            "cd to one that exists on every node",
        ),
        "file": ("to write a file for a framework on every node", "{0}: {1}", "another XDG_RUNTIME_DIR there"),
        "unwritable": (
            "a working directory that can be written on every node, or on none",
            "{0}: {1}",
            "checking its file system there",
        ),
    },
}
_KINDS = {kind: (error, *texts) for error, kinds in _TEXTS.items() for kind, texts in kinds.items()}


class Failure(NamedTuple):
    """A kind of failure, and the parts of its message."""

    kind: Annotated[Kind, wire.one_of(tuple(_KINDS))]
    parts: Annotated[tuple[Annotated[str, wire.printable_text(LONGEST_PART)], ...], Most(MOST_PARTS)]

    @property
    def is_certain(self) -> bool:
        """Whether it keeps a member from starting the command, whatever the others report."""
        return self.kind != "unwritable"

    def error(self) -> MingleError:
        """Return the error, with the same text on every member."""
        kind, expected, seen, remedy = _KINDS[self.kind]
        return kind(*(line.format(*self._shown()) for line in (expected, seen, remedy)))

    def body(self, age_s: float = 0.0) -> Body:
        """Return the message: the failure, and how many seconds ago it happened."""
        return {"kind": self.kind, "parts": self._shown(), "age_ms": min(int(age_s * 1000), LONGEST_AGE_MS)}

    def _shown(self) -> list[str]:
        return [printable(part, LONGEST_PART) for part in self.parts]

    @classmethod
    def parse(cls, body: object) -> Failure:
        """Return the failure of a message. Raises WireError."""
        failure = parse(cls, body)
        try:
            failure.error()
        except IndexError as error:
            raise WireError("a failure with parts missing") from error
        return failure


def age_s(body: Body) -> float:
    """Return how many seconds ago the failure of this message happened. Raises WireError."""
    return integer({"age_ms": 0, **body}, "age_ms", 0, LONGEST_AGE_MS) / 1000


# What a member reports at its check-in.

MEMBER_BYTES = 16
LONGEST_TOPOLOGY = 255
LONGEST_FINGERPRINT = LONGEST_ADDRESSES = 1024
LAST_CLOCK_MS = 10**15  # in the year 33658
# Variables that a user may have exported and all members must agree on, with the longest value of each.
PINNED = {"MASTER_ADDR": 253, "MASTER_PORT": 5, "WORLD_SIZE": 8, "NODE_RANK": 5}


def _pinned(body: Body, name: str) -> Mapping[str, str]:
    """Return the variables of a world that a member has exported. Raises WireError."""
    pinned = body.get(name)
    if not isinstance(pinned, dict) or not pinned.keys() <= PINNED.keys():
        raise WireError(f"{name}: not variables of a world")
    return {variable: text(pinned, variable, PINNED[variable]) for variable in pinned}


def _interned(body: Body, name: str) -> str:
    """Return one object for all equal texts, as a leader of thousands keeps each member's. Raises WireError."""
    return sys.intern(text(body, name, LONGEST_FINGERPRINT))


def _obstacle(body: Body, name: str) -> Failure:
    """Return why a member cannot start the command, attributed to the member's own host. Raises WireError."""
    failure = Failure.parse(body[name])
    if failure.kind not in OBSTACLES:
        raise WireError(f"{name}: not one of a command")
    return Failure(failure.kind, (wire.host_name(body, "host"), failure.parts[1]))


class JoinRequest(NamedTuple):
    """A member's check-in."""

    member: Annotated[bytes, wire.hex_bytes(MEMBER_BYTES)]  # random, one per process
    host: Annotated[str, wire.host_name]
    rank: Annotated[int, within(0, MOST_NODES - 1)] | None
    nodes: Annotated[int, within(1, MOST_NODES)] | None
    slots: Annotated[int, within(1, MOST_SLOTS)]
    machine: Annotated[str, wire.printable_text(64)]  # equal for members that share a network stack
    pinned: Annotated[Mapping[str, str], Key("given"), _pinned] = MappingProxyType({})
    wants_roster: Annotated[bool, Key("roster")] = False
    spent: Annotated[Durations | None, wire.nested(Durations)] = None  # how long its check-in took, for the timeline
    # The switches above it, from the top down; empty where they are not requested, or not known.
    topology: Annotated[str, wire.printable_text(LONGEST_TOPOLOGY)] = ""
    fingerprint: Annotated[str, _interned] = ""  # of its node; a member without one is not compared
    # Of its node, each with its interface's speed and MTU.
    addresses: Annotated[str, wire.printable_text(LONGEST_ADDRESSES)] = ""
    clock_ms: Annotated[int, within(0, LAST_CLOCK_MS)] | None = None  # the time of day at check-in
    obstacle: Annotated[Failure | None, _obstacle] = None  # why it cannot start the command

    def body(self, clock_ms: int | None = None) -> Body:
        """Return the message, sent at this time of day."""
        body = wire.body_of(self) | {"member": self.member.hex(), "given": dict(self.pinned), "clock_ms": clock_ms}
        body["obstacle"] = self.obstacle.body() if self.obstacle is not None else None
        left_out = [] if self.fingerprint else ["fingerprint", "addresses", "clock_ms"]
        left_out += [name for name in ("topology", "obstacle", "spent") if not body[name]]
        return {name: value for name, value in body.items() if name not in left_out}


# zlib's fastest level: neighbouring rows are alike, and each further level costs more time than it saves.
LEVEL = 1


def pack_roster(text: bytes) -> bytes:
    """Return the rows' JSON text, compressed."""
    return zlib.compress(text, LEVEL)


def roster_digest(packed: bytes) -> str:
    """Return the digest of packed rows that the answer holds: their SHA-256 in hex."""
    return sha256(packed).hexdigest()


def unpack_roster(packed: bytes) -> object:
    """Return the packed value, still to be checked. Raises WireError if it cannot be unpacked."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, MOST_LEADER_BYTES)
        if not unpacker.eof:
            raise WireError(f"roster: more than {MOST_LEADER_BYTES} bytes, or cut short")
        return values.from_json(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise WireError("roster: not a packed one") from error


# A lease is how long a member that holds its answer waits for COMMIT, which is sent only while all of them wait.
#
# A lease begins when the leader requests it, not when the promise arrives: however long the promise was under way, or
# this process was stopped, the member waits at least as long as the leader believes.

# A lease lasts at most so many seconds. For that time a member that has lost its leader asks it, and no other leader,
# for COMMIT, and for that time a leader stays to answer.
LEASE_S = 30.0
# COMMIT takes up to so many seconds, two lost packets included: it is not sent if a lease ends sooner.
COMMIT_DELIVERY_S = 5.0
# Leases are renewed after so many seconds while the last members are awaited.
RENEW_S = 10.0
# After its deadline a member that holds its answer waits so much longer for COMMIT, and a leader for all to be ready.
CLOSING_S = LEASE_S
# After a contradiction the leader stays for so many seconds, to tell late members why there is no world.
LINGER_S = 10.0


class Leases:
    """The members' leases of one epoch, by the leader's clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._requested: dict[bytes, float] = {}  # member -> the time of a request that is still unanswered
        self._ends: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def ask(self, member: bytes) -> bool:
        """Record a request to a member; False while one is unanswered, whose answer would count for this one."""
        if member in self._requested:
            return False
        self._requested[member] = self._clock()
        return True

    def owes(self, member: bytes) -> bool:
        """Return whether a request to a member is unanswered."""
        return member in self._requested

    def promised(self, member: bytes, lease_s: float) -> None:
        """Record a member's promise; one that was not requested does not count."""
        requested = self._requested.pop(member, None)
        if requested is not None:
            self._ends[member] = requested + lease_s

    def renewed(self, member: bytes) -> None:
        """Record that a member has returned to ask for COMMIT: it waits for a whole lease again."""
        self._ends[member] = self._clock() + LEASE_S

    def ending(self, within_s: float) -> list[bytes]:
        """Return the members whose leases end within so many seconds."""
        latest = self._clock() + within_s
        return [member for member, ends in self._ends.items() if ends < latest]

    def left_s(self) -> float:
        """Return the seconds until the last lease ends."""
        return max(max(self._ends.values(), default=0.0) - self._clock(), 0.0)


# How, and by when, a rendezvous ends for one member: once, with an answer or an error.


class Outcome:
    """The first answer or error, by a deadline of the loop's clock, and whether the member has informed the others.

    The search for the others begins now; this process began `age_s` seconds ago.
    """

    def __init__(self, loop: Loop, timeout_s: float, age_s: float = 0.0) -> None:
        self._loop, self._began, self._timeout_s, self._age_s = loop, loop.clock(), timeout_s, age_s
        self.is_over = False
        self.answer: Answer | None = None
        self._error: MingleError | None = None

    def waited_s(self) -> int:
        """Return the seconds that have passed, rounded."""
        return round(self._loop.clock() - self._began)

    def durations(self) -> Durations:
        """Return the durations until now."""
        times_s = self._age_s, self._loop.names_s, self._age_s + self._loop.clock() - self._began
        return Durations(*(min(round(time_s * 1000), MOST_MS) for time_s in times_s))

    def left_s(self) -> float:
        """Return the seconds that are left once the member holds an answer."""
        return self._began + self._timeout_s + CLOSING_S - self._loop.clock()

    def is_before(self, ago_s: float) -> bool:
        """Return whether an event so many seconds ago was before the member began."""
        return ago_s > self._loop.clock() - self._began

    @property
    def is_known(self) -> bool:
        """Whether there is an answer or an error, so that only others are still to be informed."""
        return self.answer is not None or self._error is not None

    def form(self, answer: Answer) -> None:
        """End with this answer."""
        self.answer, self.is_over = answer, True

    def fail(self, error: MingleError, linger_s: float = 0.0) -> None:
        """End with this error, after `linger_s` seconds."""
        if self._error is None:
            self._error = error
        if linger_s:
            self._loop.after(linger_s, self.end)
        else:
            self.end()

    def end(self) -> None:
        """End now."""
        self.is_over = True

    def result(self) -> Answer:
        """Return the answer, or raise the MingleError, once it is over."""
        if self.answer is None:
            raise self._error or MissingError("an answer", "none", "running it again, and please report this")
        return self.answer
