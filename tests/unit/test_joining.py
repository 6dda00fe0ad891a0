"""What a member's view is completed with, on the machine that the tests run on."""

from __future__ import annotations

import pytest

from mingle_hooks.joining import reachable, resolvable
from mingle_hooks.world import Member

NOBODY = "no-such-host.invalid"


@pytest.mark.parametrize("host", ["localhost", NOBODY])
def test_a_host_whose_name_does_not_resolve_is_in_the_roster_by_address(host: str) -> None:
    """What leads to this very node counts as none; an IPv6 address does not fit where a colon ends a host."""
    roster = (Member(0, host, "10.0.0.1", 2), Member(1, host, "fd00::2", 4), Member(2, "10.0.0.3", "10.0.0.3", 1))
    hosts = [member.host for member in reachable(roster)]
    assert hosts == ["10.0.0.1", host, "10.0.0.3"]


def test_names_wait_for_no_name_server_once_their_time_is_up() -> None:
    """Without time nobody is asked."""
    assert resolvable(["10.0.0.1"]) == {"10.0.0.1"}
    assert resolvable(["10.0.0.1"], timeout_s=0) == set()
