"""Where one member looks for a leader, and what it says where it has found none."""

from __future__ import annotations

from typing import Any

import pytest
from gathering import ATTEMPT, KEY, SECRET, Room, relay

from mingle_hooks.rendezvous.connection import Endpoint
from mingle_hooks.rendezvous.dialer import LOOK, ProvenLeader, Search
from mingle_hooks.rendezvous.request import Request


def search(room: Room, found: list[ProvenLeader], notes: list[str], **parts: Any) -> Search:
    """Return a member's search in a room."""
    request = Request(ATTEMPT, key=KEY, host="node1", machine="here", slots=1, timeout_s=15.0, **parts)
    return Search(room.loop, request, SECRET, notes.append, found.append, lambda: None, lambda: None)


def test_who_hands_on_what_the_leader_says_is_gone_round() -> None:
    """The leader says where it is itself; a person is told who stands between."""
    found: list[ProvenLeader] = []
    notes: list[str] = []
    with Room(2) as room, relay(room.port) as port:
        looking = search(room, found, notes)
        looking.dial(Endpoint("127.0.0.1", port, "test"))
        room.until(lambda: found)
        assert [proven.endpoint.port for proven in found] == [room.port]
        assert len(notes) == 1
        assert "only relays" in notes[0]
        found[0].connection.close()
        looking.close()


def test_where_rank_0_is_expected_is_said() -> None:
    """By the name that the scheduler gives it."""
    with Room(2) as room:
        looking = search(room, [], [], leader_hosts=("node7",))
        assert looking.nobody(9).expected == "rank 0 (node7) within 9 s"
        looking.close()


@pytest.mark.parametrize(
    ("parts", "remedy"),
    [
        ({"pinned": {"MASTER_ADDR": "10.0.0.1"}}, "unset MASTER_ADDR if another job left it"),
        ({"rank": 1, "rank_source": "NODE_RANK"}, "unset NODE_RANK if another job left it"),
        ({"rank": 1}, LOOK),
    ],
)
def test_a_leftover_by_which_rank_0_was_looked_for_is_named(parts: dict[str, Any], remedy: str) -> None:
    """It is likelier than a firewall, which is named with it."""
    with Room(2) as room:
        looking = search(room, [], [], **parts)
        assert looking.nobody(9).remedy.startswith(remedy)
        assert looking.nobody(9).remedy.endswith(LOOK)
        looking.close()
