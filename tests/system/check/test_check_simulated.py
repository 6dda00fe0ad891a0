"""Many hosts in one process: each probes some others, and all of it is over in time."""

from __future__ import annotations

from support.simulated_check import Stopping, check


def test_seventy_hosts_probe_eight_others_each() -> None:
    """Nothing is found between them; that all are one machine is, and what their name is there."""
    found = check(70, 60.0)
    assert [
        finding.text for finding in found.findings if finding.kind in ("missing", "network") and not finding.is_note
    ] == []
    assert (len(found.here), len(found.pairs), found.others) == (70, 280, 8)
    assert {(pair.sent, pair.there, pair.sent_back, pair.back, pair.mtu) for pair in found.pairs} == {
        (10, 10, 10, 10, 9000)
    }


def test_nothing_is_lost_where_hosts_stand_still() -> None:
    """For much longer than what has not come back is waited for: they go on with their turns then."""
    found = check(4, 120.0, Stopping)
    assert [
        finding.text for finding in found.findings if finding.kind in ("missing", "network") and not finding.is_note
    ] == []
    assert (len(found.here), found.unknown) == (4, ())
    assert {
        (pair.sent, pair.there, pair.sent_back, pair.back, pair.open_there, pair.open_back) for pair in found.pairs
    } == {(20, 20, 20, 20, "", "")}
