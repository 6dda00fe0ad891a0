"""`mingle check` on test hosts: each fault is made, found and named, and nothing is found where there is none."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.host import Host, enter, is_ending
from cluster.hosts import Hosts
from cluster.paths import MINGLE
from cluster.ssh import ssh
from support import fake_pynvml

import mingle_hooks
from mingle_hooks.files import toml

Make = Callable[..., Hosts]


ETH, IB = "10.77.0.0/24", "10.78.0.0/24"
# A bound on what hangs, not a measure; this machine may be busy.
PATIENCE = "60s"
DATA = Path(__file__).parents[2] / "data"
# This installation may lie below /tmp, too.
BELOW_TMP = sys.prefix.removeprefix("/tmp") if sys.prefix.startswith("/tmp/") else ""
KEEPS = f"mkdir -p /run/full{BELOW_TMP} && mount --bind {sys.prefix} /run/full{BELOW_TMP}" if BELOW_TMP else "true"


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

    def make(self, where: str, shell: str, place: Path) -> None:
        """Make a fault on a host, on the others than node3, on all of them, on the switch, or on this machine."""
        text = f"{(DATA / 'check_faults.sh').read_text()}\n{shell}\n"
        env = {"PLACE": str(place), "DELAY": str(DATA / "delay.py"), "PYTHON": sys.executable, "KEEPS": KEEPS}
        env["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
        holder = self.hosts._holder
        assert holder is not None
        on = {"switch": enter(holder.pid), "here": []}
        if where in on:
            subprocess.run([*on[where], "sh", "-c", text], env=env, check=True)
        for host in self.hosts:
            if where in (host.name, "all") or (where == "others" and host.name != "node3"):
                host.run(["sh", "-c", text], env=env, check=True)

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


FAULTS: dict[str, dict[str, dict[str, Any]]] = toml((DATA / "check_faults.toml").read_bytes())


@pytest.mark.parametrize("group", FAULTS)
def test_each_fault_of_a_host_is_found(four: Set, tmp_path: Path, group: str) -> None:
    """By a finding with a remedy and with the host to leave out, and nothing else is found; some make others follow."""
    faults = FAULTS[group].values()
    if group.startswith("node: "):
        four.hosts.run_all(["sh", "-c", (DATA / "gpu_node.sh").read_text()], check=True)
        files = {"FAKE": fake_pynvml.__file__, "SITE": str(Path(mingle_hooks.__file__).parents[1])}
        four.hosts.run_all(["sh", "-c", (DATA / "check_tree.sh").read_text()], env=files, check=True)
    try:
        for fault in faults:
            four.make(fault.get("on", "node3"), fault["make"], tmp_path)
        checked = four.check(*(word for fault in faults for word in fault.get("args", ())))
    finally:
        for pid in (tmp_path / "behind").read_text().split() if (tmp_path / "behind").exists() else ():
            os.kill(int(pid), signal.SIGKILL)
            while not is_ending(int(pid)):
                time.sleep(0.01)
    findings = checked.report.get("findings", [])
    found = [[its for its in findings if re.match(fault["said"], its["text"])] for fault in faults]
    for fault, mine in zip(faults, found, strict=True):
        assert mine, (fault["said"], [its["text"] for its in findings], checked.stderr)
        for its in mine:
            assert its["exclude"] == fault.get("exclude", ["node3"]), its
            assert its["remedy"].startswith(("user: ", "admin: ")), its
    others = [its["text"] for its in findings if not its["is_note"] and not any(its in mine for mine in found)]
    assert others == [] or any(fault.get("follows") for fault in faults)
    suspects = {host for mine in found for its in mine for host in its["exclude"]}
    assert set(checked.exclude or ()) == (suspects if len(suspects) == 1 else set()), "no more than a quarter"


def test_most_of_the_usual_faults_are_among_these() -> None:
    """Each is found, or its test fails."""
    count = sum(map(len, FAULTS.values()))
    print(f"{count} faults of hosts and networks are found")  # noqa: T201 - for those who run it with -s
    assert count >= 79


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
