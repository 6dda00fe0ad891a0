"""The commit at the end of a check-in: all members have the world, or none has."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from subprocess import Popen

from cluster.host import Host
from cluster.hosts import Hosts
from support.members import KEYED, agreed, ended, program, stop

# A member whose leases are a tenth of what they are: it promises to wait for 3 s instead of 30.
FASTER = """
from mingle_hooks.rendezvous import messages
for name in ("LEASE_S", "COMMIT_DELIVERY_S", "RENEW_S", "CLOSING_S"):
    setattr(messages, name, getattr(messages, name) / 10)
from mingle_hooks.cli.main import main
main()
"""
# Rank 0's host hears nothing of the third, not even that a connection is reset.
DEAF = """
add table inet deaf
add chain inet deaf in { type filter hook input priority 0; }
add rule inet deaf in ip saddr 10.77.0.3 drop
"""


def wait_for_frame(tap: Popen[str], kind: str, host: Host) -> None:
    """Wait until a host has sent a frame of this kind."""
    assert tap.stdout is not None
    assert any(line.split()[:2] == [kind, host.addr()] for line in iter(tap.stdout.readline, ""))


def node(host: Host, timeout: str, *command: str) -> Popen[str]:
    """Start a member of a world of three; its rank follows from its host."""
    words = ("--shell", "json", "--id", "job", "--nodes", "3", "--via", "master", "--master", "node1")
    line = [*(command or ("mingle",)), "env", *words, "--rank", str(host.number - 1), "--timeout", timeout]
    return host.popen(line, env=KEYED)


def test_a_leader_that_is_stopped_before_commit_has_no_world_that_the_others_gave_up(
    hosts: Callable[..., Hosts],
) -> None:
    """Regression: it continued after all leases had ended, read the promises, and formed the world alone."""
    three = hosts(3, ipv6=False)
    tap, faster = program(three[0], "tap.py", "REACHED", "READY"), (sys.executable, "-c", FASTER)
    leader, second = node(three[0], "12", *faster), node(three[1], "4", *faster)
    wait_for_frame(tap, "REACHED", three[1])
    os.kill(second.pid, signal.SIGSTOP)  # so that the leader has to wait for its promise
    third = node(three[2], "4", *faster)
    wait_for_frame(tap, "READY", three[2])
    stop(tap)
    os.kill(leader.pid, signal.SIGSTOP)
    os.kill(second.pid, signal.SIGCONT)  # and it promises at once
    others = [ended(second), ended(third)]
    os.kill(leader.pid, signal.SIGCONT)
    assert [(done.returncode, "WORLD_SIZE" in done.stdout) for done in [*others, ended(leader)]] == [(69, False)] * 3


def test_a_member_that_loses_its_leader_at_its_deadline_during_its_lease_still_gets_commit(
    hosts: Callable[..., Hosts],
) -> None:
    """Regression: it gave up, while the leader, which had not noticed, formed the world with it."""
    three = hosts(3, ipv6=False)
    tap = program(three[0], "tap.py", "REACHED", "READY", "COMMIT")
    leader, second = node(three[0], "30"), node(three[1], "30")
    wait_for_frame(tap, "REACHED", three[1])
    os.kill(second.pid, signal.SIGSTOP)
    third, deadline = node(three[2], "2"), time.monotonic() + 2.0
    wait_for_frame(tap, "READY", three[2])
    three[0].run(["nft", "-f", "-"], input=DEAF, check=True)
    three[2].run(["ss", "-K", "dst", three[0].addr()], check=True)
    os.kill(second.pid, signal.SIGCONT)
    wait_for_frame(tap, "COMMIT", three[0])
    stop(tap)
    time.sleep(max(deadline + 1.0 - time.monotonic(), 0.0))
    three[0].run(["nft", "delete", "table", "inet", "deaf"], check=True)
    done = [ended(process) for process in (leader, second, third)]
    assert [its.returncode for its in done] == [0] * 3, done
    agreed(json.loads(its.stdout) for its in done)
