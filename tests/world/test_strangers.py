"""What somebody without the key hears from a leader, and how long such a one can keep members from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from members import KEY, KEYED, OTHER_KEY, evaluating, members, one_world
from test_failures import ended, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.hosts import Hosts

HERE = Path(__file__).parent
# An address at which nobody answers, not even that there is nobody: a host that has gone.
GONE = """
add table inet gone
add chain inet gone in { type filter hook input priority 0; }
add rule inet gone in ip daddr 10.77.0.99 counter drop
"""


def test_a_stranger_hears_the_same_octets_whatever_the_key(hosts: Callable[..., Hosts]) -> None:
    """Seen: a proof of the key for anyone who said HELLO, with which guesses could be compared."""
    two = hosts(2, ipv6=False)

    def hears(key: Mapping[str, str]) -> list[str]:
        words = ("--id", "job", "--nodes", "2", "--rank", "0", "--via", "master", "--master", "node1:23456")
        leader = two[0].popen(["mingle", "env", *words], env=key)
        listens = ["bash", "-c", "exec 3<>/dev/tcp/node1/23456"]
        wait_for(lambda: two[1].run(listens).returncode == 0)
        done = two[1].run([sys.executable, HERE / "asker.py", "job", "node1", "23456"])
        leader.terminate()
        ended(leader)
        assert done.returncode == 0, done
        return done.stdout.splitlines()

    heard = hears(KEYED)
    assert heard == hears(OTHER_KEY)
    assert any(heard), "a leader that says nothing at all would tell nobody why it is refused"


def test_recorded_beacons_keep_no_member_from_the_real_leader(hosts: Callable[..., Hosts]) -> None:
    """Seen: 200 leaders of earlier tries were called, some at a time, for 11 s; now not one is, and 6 s are enough."""
    three = hosts(3, ipv6=False)
    three[2].run(["ip", "addr", "add", "10.77.0.99/24", "dev", "eth0"], check=True)
    three[2].run(["nft", "-f", "-"], input=GONE, check=True)
    again = three[2].popen([sys.executable, HERE / "yesterday.py", "job", three[2].addr(), "10.77.0.99", KEY])
    assert again.stdout is not None
    assert again.stdout.readline() == "ready\n", again.communicate()
    options = ("--id", "job", "--nodes", "2", "--via", "multicast", "--timeout", "6")
    results = members(
        [three[0], three[1]],
        lambda number: evaluating(*options, "--rank", str(number)),
        delays=[1.5, 0],
    )
    again.kill()
    again.communicate()
    one_world(results)
    calls = three[2].run(["nft", "list", "table", "inet", "gone"], check=True).stdout
    assert "counter packets 0 bytes 0" in calls
