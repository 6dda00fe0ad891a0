"""What a leader answers, read strictly: it ends up in shells, files and frameworks of every member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.fabric.machine import is_hostname, is_hostname_or_address
from mingle_hooks.rendezvous.protocol.wire import WireError, address, hexadecimal, integer, text
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS

if TYPE_CHECKING:
    from typing import Any, TypedDict

    from typing_extensions import NotRequired

    from mingle_hooks.rendezvous.protocol.wire import Body

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


def parse(body: Body) -> Answer:
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
