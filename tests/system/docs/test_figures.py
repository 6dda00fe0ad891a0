"""The figures of README.md, docs/how-it-works.md and docs/security.md are the program's own."""

import pytest
from documents import ROOT

from mingle_hooks.net.addresses import DEFAULT_RANGE
from mingle_hooks.rendezvous import (
    connection,
    discovery,
    leader,
    local_tasks,
    member,
    messages,
    multicast,
    rendezvous,
    roster,
    wire,
)
from mingle_hooks.run import messages as run_messages, status
from mingle_hooks.settings import Settings, load

DEFAULTS: Settings = load({}, {}, system_file="/none")
DATAGRAMS = [budget[0] + 60 * budget[1] for budget in (multicast.BEACONS, multicast.ANSWERS, multicast.QUESTIONS)]

# Page -> what it says, and whether that is so.
FIGURES = {
    "README.md": [
        ("`--timeout`, 5 minutes by default", DEFAULTS.timeout == 300.0),
        ("24999 (`--port-range`)", DEFAULTS.port_range == DEFAULT_RANGE == range(20_000, 25_000)),
    ],
    "docs/how-it-works.md": [
        ("TTL 1", DEFAULTS.multicast_ttl == 1),
        ("a lease of at most 30 seconds", messages.LEASE_S == 30.0),
        ("listens for half a second", rendezvous.QUIET_S == 0.5),
        ("multicast 0.2 s later", discovery.HEAD_START_S == 0.2),
        ("answers with this number within five seconds", multicast.OPEN_S == 5.0),
        ("a quarter of a second", member.PROBE_NEXT_S == 0.25),
        ("3.5 seconds after the last node came", roster.SETTLE_S == 3.5),
        ("gets 30 seconds more", messages.CLOSING_S == 30.0),
        ("after 3 s, or 45 s while a world forms", (local_tasks.SILENCE_S, local_tasks.OVERTIME_S) == (3.0, 45.0)),
    ],
    "docs/security.md": [
        ("another of four names", local_tasks.NAMES == 4),
        ("at most 100 datagrams", sum(DATAGRAMS) <= 100),
        ("plus one for each 64 nodes", multicast.MEMBERS_OF_AN_ANSWER == 64),
        ("cause up to 40 more", multicast.CAUSED[0] + 60 * multicast.CAUSED[1] <= 40),
        ("closed after 10 s", leader.STRANGER_S == 10.0),
        ("frame has at most 1 KiB", wire.MOST_STRANGER_BYTES == 1024),
        (
            "frames have at most 8 KiB, a leader's 8 MiB",
            (wire.MOST_MEMBER_BYTES, wire.MOST_LEADER_BYTES) == (1 << 13, 1 << 23),
        ),
        ("64 connections at once, 10 s each", (status.MOST_CALLERS, run_messages.STRANGER_S) == (64, 10.0)),
        ("notices within 20 s", connection.PEER_LOST_S == 20),
        ("waits 10 s more for it", messages.LINGER_S == 10.0),
        ("(5 to 30 s)", (messages.COMMIT_DELIVERY_S, messages.LEASE_S) == (5.0, 30.0)),
    ],
}


@pytest.mark.parametrize("page", FIGURES)
def test_each_figure_that_is_told_is_the_programs(page: str) -> None:
    """Change both, or neither."""
    text = " ".join((ROOT / page).read_text().split())
    assert [words for words, is_so in FIGURES[page] if words not in text or not is_so] == []
