"""`mingle check` on test hosts: each fault is made, found and named, and nothing is found where there is none."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.network import loss
from cluster.paths import MINGLE
from cluster.ssh import ssh

Make = Callable[..., Hosts]


ETH, IB = "10.77.0.0/24", "10.78.0.0/24"
# A bound on what hangs, not a measure; this machine may be busy.
PATIENCE = "60s"


class Checked:
    """What one check said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.stderr = done.returncode, done.stderr
        self.report: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        findings = self.report.get("findings", [])
        self.bad = [finding["text"] for finding in findings if not finding["is_note"]]
        self.notes = [finding["text"] for finding in findings if finding["is_note"]]
        self.exclude = self.report.get("exclude")


class Set:
    """Test hosts, checked from the first one, where the ssh is one that enters them."""

    def __init__(self, hosts: Hosts, place: Path) -> None:
        self.hosts = hosts
        # What a command's members meet by is nothing of the check, and multicast takes longest to load.
        self._env = {"MINGLE_VIA": "directory", "MINGLE_DIRECTORY": str(place)}
        self._env["PATH"] = f"{ssh(hosts, place)}:{MINGLE.parent}:/usr/bin:/bin:/usr/sbin"

    def check(self, *words: str, names: str = "") -> Checked:
        names = names or ",".join(host.name for host in self.hosts)
        argv = [str(MINGLE), "check", "--json", "--hosts", names, "--timeout", PATIENCE, *words]
        return Checked(self.hosts[0].run(argv, env=self._env, timeout=120))


@pytest.fixture
def three(hosts: Make, tmp_path: Path) -> Set:
    """Three hosts, of which one can be told from the others; each host more is a quarter of what a check costs."""
    return Set(hosts(3), tmp_path)


@pytest.fixture
def four(hosts: Make, tmp_path: Path) -> Set:
    """Four hosts, of which three are a majority."""
    return Set(hosts(4), tmp_path)


def ip(host: Host, *lines: str) -> None:
    host.hosts.ip(lines, host)


def switch(hosts: Hosts, line: str) -> None:
    """Run ip on the switch."""
    hosts.ip([line])


def all_jumbo(hosts: Hosts, iface: str, but: str = "") -> None:
    """Let a network take packets of 9,000 octets, but for one host's interface."""
    hosts.ip(f"link set {iface}p{host.number} mtu 9000" for host in hosts)
    for host in hosts:
        ip(host, f"link set {iface} mtu {1500 if host.name == but else 9000}")


def test_nothing_is_found_on_healthy_hosts(three: Set) -> None:
    """Nor beside the bridges that docker and others make on each; the table and the list for sbatch say so, too."""
    checked = three.check("--iface", "ib0")
    assert (checked.bad, [network["name"] for network in checked.report["networks"]]) == ([], [IB])
    for host in three.hosts:
        ip(host, "link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link set docker0 up")
        ip(host, "link add br0 type bridge", "addr add 172.30.0.1/16 dev br0", "link set br0 up")
        ip(host, "link add v0 type veth peer name v1", "link set v0 master br0", "link set v0 up", "link set v1 up")
    checked = three.check("--bandwidth")
    assert (checked.bad, checked.status, checked.exclude) == ([], 0, [])
    assert {note.split(": ")[1].split()[0] for note in checked.notes} >= {"172.17.0.1", "172.30.0.1"}
    assert {network["name"] for network in checked.report["networks"]} == {ETH, IB}


def test_nothing_is_found_where_there_is_only_ipv6(hosts: Make, tmp_path: Path) -> None:
    """Multicast, names and sizes, too."""
    checked = Set(hosts(2, ipv4=False), tmp_path).check()
    assert (checked.bad, checked.status) == ([], 0)
    assert {network["name"] for network in checked.report["networks"]} == {"fd77::/64", "fd78::/64"}
    assert {pair["mtu"] for pair in checked.report["pairs"]} == {1500}


def test_interfaces(four: Set) -> None:
    """One MTU among others, a switch's port that is smaller than both ends, one address on two hosts, one host off."""
    _, _, three, last = four.hosts
    all_jumbo(four.hosts, "eth0", but="node3")
    all_jumbo(four.hosts, "ib0")
    switch(four.hosts, "link set ib0p2 mtu 1500")
    checked = four.check()
    assert checked.bad == [
        f"node3: MTU on {ETH} 1500, 3 others 9000",
        f"node2: no packet larger than 1500 octets passes on {IB}, though the interfaces' MTU is larger",
    ]
    assert (checked.status, checked.exclude) == (71, []), "two of four are no host's own fault"
    all_jumbo(four.hosts, "eth0")
    switch(four.hosts, "link set ib0p2 mtu 9000")
    ip(last, "addr del 10.78.0.4/24 dev ib0", "addr add 10.78.0.3/24 dev ib0")
    checked = four.check()
    assert checked.bad[0] == "node[3-4]: the same address, 10.78.0.3"
    ip(last, "addr del 10.78.0.3/24 dev ib0", "addr add 10.78.0.4/24 dev ib0")
    ip(three, "link set ib0 down")
    checked = four.check()
    assert (checked.bad, checked.exclude) == ([f"node3: no address on {IB}, where 3 others are"], ["node3"])


def test_ways(three: Set) -> None:
    """Loss one way, ports behind a firewall, a host that is cut off, no multicast on one and on all."""
    one, two, _ = three.hosts
    two._add(f"iifname ib0 udp dport 20000-24999 {loss(0.6)}")
    one._add("iifname eth0 tcp dport 20000-24999 drop")
    checked = three.check()
    assert len(checked.bad) == 2, checked.bad
    closed, line = sorted(checked.bad)
    assert closed == f"node1: others do not reach its port on {ETH} (no answer); a firewall, or another --port-range"
    assert re.fullmatch(rf"node2: \d+ % of the packets to it on {re.escape(IB)} are lost", line), checked.bad
    assert (checked.status, checked.exclude) == (71, [])
    three.hosts.clear_firewall()
    switch(three.hosts, "link set ib0p3 nomaster")
    two.drop_multicast()
    cut, *deaf = three.check().bad
    assert cut == f"node3: does not reach 2 of the others on {IB}"
    assert f"node2: receives no multicast on {ETH}" in deaf
    switch(three.hosts, "link set ib0p3 master br-ib0")
    three.hosts.drop_multicast()
    checked = three.check()
    assert (checked.bad, checked.status) == ([], 0)
    assert [note for note in checked.notes if "no multicast" in note]


def test_a_slow_link(three: Set) -> None:
    """Whoever sends to it is as slow, and not named."""
    three.hosts[2]._add("meta l4proto tcp limit rate over 2 mbytes/second drop")
    checked = three.check("--bandwidth")
    (line,) = checked.bad
    assert re.match(r"node3: receives \d+ Mbit/s, ", line)
    assert (checked.status, checked.exclude) == (71, ["node3"])


def test_names_and_what_a_host_has(three: Set) -> None:
    """127.0.1.1, an address that another host does not have, a host without names, a full /dev/shm."""
    two, last = three.hosts[1], three.hosts[2]
    known = two.outside("/etc/hosts").read_text()
    last.run(["sh", "-c", "mount -o remount,size=1m /dev/shm; head -c 2m /dev/zero >/dev/shm/full"])
    two.write("/etc/hosts", f"127.0.1.1 node2\n{known.replace('10.77.0.1 ', '10.77.0.9 ')}")
    checked = three.check()
    assert checked.bad == [
        "node2: its own name is 127.0.1.1: other nodes cannot reach servers that listen on it (/etc/hosts)",
        "node2: node1 is 10.77.0.9 there, an address that it does not have",
        "node3: /dev/shm is full: 0 of 1 MiB are free",
    ]
    assert (checked.status, checked.exclude) == (71, []), "two of three"
    last.run(["sh", "-c", "rm /dev/shm/full; mount -o remount,size=1g /dev/shm"], check=True)
    two.write("/etc/hosts", known)
    last.write("/etc/hosts", "127.0.0.1 localhost\n")
    assert three.check().bad == ["node3: its own name is not known there", "node3: others' names are not known to it"]


def test_hosts_that_do_not_start_and_that_hang_are_named_within_the_deadline(three: Set, tmp_path: Path) -> None:
    """With what its ssh said; what starts one is ended then, and the others are checked in the rest of the time."""
    ssh = tmp_path / "bin/ssh"
    ssh.write_text(
        ssh.read_text().replace("host=$1; shift\n", "host=$1; shift\n[ $host != node3 ] || exec sleep 4711\n")
    )
    checked = three.check("--start", "8s", "--force", names="node1,node2,node3,node7")
    assert (checked.status, checked.exclude) == (69, ["node3", "node7"])
    hangs, gone = sorted(checked.bad)[:2]
    assert hangs.startswith("node3: no sign of it within 8.0 s: it has not started yet (--start), or does")
    assert gone.startswith("node7: did not start: ")
    assert len(checked.report["pairs"]) == 2


def test_a_host_that_makes_a_command_fail_is_found(three: Set) -> None:
    """By runs on ever fewer hosts; what it writes goes to stderr."""
    shell = "echo here is $(hostname); [ $(hostname) != node3 ]"
    checked = three.check("--command", f"sh -c '{shell}'")
    assert checked.bad == [f"node3: `sh -c {shell}` fails with it, and passes without it ({_counts(checked.stderr)})"]
    assert (checked.status, checked.exclude) == (76, ["node3"])
    assert "here is node1" in checked.stderr
    assert three.check("--command", "true", names="node1").status == 0


def _counts(stderr: str) -> str:
    runs = [line for line in stderr.splitlines() if line.startswith("mingle check: run ")]
    return f"in {sum(' failed with ' in line for line in runs)} of {len(runs)} runs"
