"""What this host has run out of is told by its limit and number, and not blamed on a firewall."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from members import KEYED, evaluating, failed, members

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

TWO = ("--id", "job", "--nodes", "2", "--timeout", "2", "--via", "master", "--master", "node1")
HOLDING = """
import socket, time
held = [socket.create_server(("", port)) for port in (50000, 50001)] + [
    socket.create_server(("::", port), family=socket.AF_INET6) for port in (50000, 50001)]
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("ipv4", [True, False], ids=["IPv4", "IPv6"])
def test_a_member_without_a_local_port_says_so(hosts: Callable[..., Hosts], *, ipv4: bool) -> None:
    """With the range that is used up, as connect(2) finds nothing in it."""
    two = hosts(2, ipv4=ipv4)
    two[1].run(["sysctl", "-w", "net.ipv4.ip_local_port_range=50000 50001"], check=True)
    holder = two[1].popen([sys.executable, "-c", HOLDING])
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n", holder.communicate()
    results = members(list(two), lambda number: evaluating(*TWO, "--rank", str(number)))
    holder.kill()
    holder.communicate()
    said = failed(results[1], 69)
    assert "all 2 local ports for connections are in use (sysctl net.ipv4.ip_local_port_range: 50000 to 50001)" in said
    assert "try a wider net.ipv4.ip_local_port_range" in said
    assert "firewall" not in said


def test_an_address_that_there_is_no_way_to_is_no_want_of_ports(hosts: Callable[..., Hosts]) -> None:
    """A host without IPv4 finds no address of its own to call from, and has all its ports."""
    one = hosts(1, ipv4=False)[0]
    done = one.run(evaluating(*TWO[:-1], "10.77.0.9", "--rank", "1"), env=KEYED)
    said = failed(done, 69)
    assert "local ports" not in said


def test_a_member_without_a_thread_says_so(hosts: Callable[..., Hosts]) -> None:
    """The look-up of a name needs one, and the name server is not to blame."""
    one = hosts(1)[0]
    argv = evaluating(*TWO, "--rank", "1")
    line = ["bash", "-c", 'ulimit -u 1; exec mingle env "$@"', "bash", *argv[4:]]
    done = one.run(line, env=KEYED, user="alice")
    assert done.returncode == 69, done.stderr
    assert "no thread could be started (`ulimit -u` allows 1 in all)" in done.stderr
    assert "try a higher `ulimit -u`" in done.stderr
    assert "firewall" not in done.stderr


def test_memory_that_is_used_up_is_told_with_its_limit() -> None:
    """It is no bug of mingle, and no network's fault."""
    code = """
import errno, sys
from mingle_hooks.cli import main
from mingle_hooks.errors import shortage
main._run = lambda _words: bytes(1 << 40)
print(main.run(["key"]), shortage(OSError(errno.ENOBUFS, "x")).seen)
"""
    line = ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    seen = "no memory is left (`ulimit -v` allows 4096000000 bytes)"
    assert done.stdout == f"71 {seen}\n"
    assert done.stderr == f"mingle: expected free memory; saw {seen}; try a higher `ulimit -v`, or more memory\n"
