"""Many hosts in one process: each probes some others, and all of it is over in time."""

from __future__ import annotations

from check.simulated import check


def test_seventy_hosts_probe_eight_others_each() -> None:
    """Nothing is found between them; that all are one machine is, and what their name is there."""
    found = check(70, 60.0)
    assert [its.text for its in found.findings if its.kind in ("missing", "network") and not its.is_note] == []
    assert (len(found.here), len(found.pairs), found.others) == (70, 280, 8)
    assert {(pair.sent, pair.there, pair.sent_back, pair.back, pair.mtu) for pair in found.pairs} == {
        (10, 10, 10, 10, 9000)
    }
