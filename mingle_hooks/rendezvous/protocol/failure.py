"""Why a world did not form, in a shape that travels: every member says the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import (
    LIMITS,
    ConflictError,
    MingleError,
    MissingError,
    NetworkError,
    NotExecutableError,
    NotFoundError,
    PlaceError,
    printable,
)
from mingle_hooks.rendezvous.protocol.wire import Body, WireError, integer, text

if TYPE_CHECKING:
    from typing import Literal

    from mingle_hooks.errors import Limit

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
