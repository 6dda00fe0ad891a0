"""Datagrams in a minute's wait, counted by the kernel of each host: a leader's, a member's, candidates'.

A member that is missing keeps the others waiting; multicast is the only backend that they have.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts

from mingle_hooks.errors import MissingError

COUNTER = """
add table inet count
add chain inet count out { type filter hook output priority 0; }
add rule inet count out meta l4proto udp counter
"""
WAIT_S = 60


def _waits(hosts: Hosts, ranks: dict[str, list[str]], wait_s: int) -> dict[str, int]:
    """Return how many datagrams each named host sends while it waits in vain."""
    for host in hosts:
        host.run(["nft", "-f", "-"], input=COUNTER, check=True)
    mingle = str(Path(sys.executable).parent / "mingle")
    command = [mingle, "env", "--id", "traffic", "--nodes", "9", "--via", "multicast", "--timeout", str(wait_s)]
    done = hosts.run_all(
        lambda host: [*command, *ranks[host.name]] if host.name in ranks else ["true"],
        env={"MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2},
        timeout=wait_s + 30,
    )
    for host, one in zip(hosts, done, strict=True):
        if host.name in ranks and one.returncode != MissingError.exit_code:
            raise RuntimeError(one.stderr)
    sent = {}
    for host in hosts:
        rules = host.run(["nft", "list", "table", "inet", "count"], check=True).stdout
        sent[host.name] = int(re.search(r"packets (\d+)", rules)[1])  # type: ignore[index]
        host.run(["nft", "delete", "table", "inet", "count"], check=True)
    return {name: sent[name] for name in ranks}


def figures(wait_s: int = WAIT_S) -> dict[str, dict[str, int]]:
    """Return the datagrams of each host in three kinds of wait."""
    found = {}
    with Hosts(4) as hosts:
        waits: dict[str, dict[str, list[str]]] = {
            "leader and members": {f"node{n}": ["--rank", str(n - 1)] for n in (1, 2, 3, 4)},
            "members without a leader": {f"node{n}": ["--rank", str(n)] for n in (1, 2, 3, 4)},
            "an election": {f"node{n}": [] for n in (1, 2, 3, 4)},
        }
        for name, ranks in waits.items():
            found[name] = _waits(hosts, ranks, wait_s)
            print(f"  {name:26} {wait_s} s: " + ", ".join(f"{host} {count}" for host, count in found[name].items()))
    return found


if __name__ == "__main__":
    figures()
