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
from cluster.host import enter, is_ending
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
FAULTS: dict[str, dict[str, dict[str, Any]]] = toml((DATA / "check_faults.toml").read_bytes())
assert sum(map(len, FAULTS.values())) >= 79  # most of the usual faults; no row is to be lost unnoticed
# This installation may lie below /tmp, too.
BELOW_TMP = sys.prefix.removeprefix("/tmp") if sys.prefix.startswith("/tmp/") else ""
KEEPS = f"mkdir -p /run/full{BELOW_TMP} && mount --bind {sys.prefix} /run/full{BELOW_TMP}" if BELOW_TMP else "true"


def check(hosts: Hosts, programs: Path, *words: str) -> tuple[dict[str, Any], str]:
    """Check hosts from the first one, by the ssh of a directory; return the report and stderr."""
    # What a command's members meet by is no part of the check, and multicast takes longest to load.
    env = {"MINGLE_VIA": "directory", "MINGLE_DIRECTORY": str(programs.parent)}
    env["PATH"] = f"{programs}:{MINGLE.parent}:/usr/bin:/bin:/usr/sbin"
    names = ",".join(host.name for host in hosts)
    argv = [str(MINGLE), "check", "--json", "--hosts", names, "--timeout", PATIENCE, *words]
    done = hosts[0].run(argv, env=env, timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode == report["status"]
    return report, done.stderr


def texts(report: dict[str, Any], *, is_note: bool = False) -> list[str]:
    return [finding["text"] for finding in report["findings"] if finding["is_note"] == is_note]


def networks(report: dict[str, Any]) -> set[str]:
    return {network["name"] for network in report["networks"]}


def make_fault(hosts: Hosts, where: str, shell: str, place: Path) -> None:
    """Make a fault on a host, on the others than node3, on all of them, on the switch, or on this machine."""
    text = f"{(DATA / 'check_faults.sh').read_text()}\n{shell}\n"
    env = {"PLACE": str(place), "DELAY": str(DATA / "delay.py"), "PYTHON": sys.executable, "KEEPS": KEEPS}
    env["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    assert hosts._holder is not None
    on = {"switch": enter(hosts._holder.pid), "here": []}
    if where in on:
        subprocess.run([*on[where], "sh", "-c", text], env=env, check=True)
    for host in hosts:
        if where in (host.name, "all") or (where == "others" and host.name != "node3"):
            host.run(["sh", "-c", text], env=env, check=True)


def test_nothing_is_found_on_healthy_hosts(hosts: Make, tmp_path: Path) -> None:
    """The bridges that docker and others make on each host are notes."""
    three = hosts(3)
    for host in three:
        three.ip(["link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link set docker0 up"], host)
        three.ip(["link add br0 type bridge", "addr add 172.30.0.1/16 dev br0", "link set br0 up"], host)
        three.ip(["link add v0 type veth peer name v1", "link set v0 master br0"], host)
        three.ip(["link set v0 up", "link set v1 up"], host)
    report, _ = check(three, ssh(three, tmp_path), "--bandwidth")
    assert (texts(report), report["status"], report["exclude"], networks(report)) == ([], 0, [], {ETH, IB})
    notes = {note.split(": ")[1].split()[0] for note in texts(report, is_note=True)}
    assert notes >= {"172.17.0.1", "172.30.0.1"}


def test_nothing_is_found_where_there_is_only_ipv6(hosts: Make, tmp_path: Path) -> None:
    """Multicast, names and packet sizes are checked there, too."""
    two = hosts(2, ipv4=False)
    report, _ = check(two, ssh(two, tmp_path))
    assert (texts(report), report["status"], networks(report)) == ([], 0, {"fd77::/64", "fd78::/64"})
    assert {pair["mtu"] for pair in report["pairs"]} == {1500}


@pytest.mark.parametrize("group", FAULTS)
def test_each_fault_of_a_host_is_found(hosts: Make, tmp_path: Path, group: str) -> None:
    """A finding names the host to leave out and a remedy, and nothing else is found, unless it follows from a fault."""
    four, faults = hosts(4), FAULTS[group].values()
    if group.startswith("node: "):
        four.run_all(["sh", "-c", (DATA / "gpu_node.sh").read_text()], check=True)
        files = {"FAKE": fake_pynvml.__file__, "SITE": str(Path(mingle_hooks.__file__).parents[1])}
        four.run_all(["sh", "-c", (DATA / "check_tree.sh").read_text()], env=files, check=True)
    programs, words = ssh(four, tmp_path), [word for fault in faults for word in fault.get("args", ())]
    try:
        for fault in faults:
            make_fault(four, fault.get("on", "node3"), fault.get("make", "true"), tmp_path)
        report, stderr = check(four, programs, *words)
    finally:
        for pid in (tmp_path / "behind").read_text().split() if (tmp_path / "behind").exists() else ():
            os.kill(int(pid), signal.SIGKILL)
            while not is_ending(int(pid)):
                time.sleep(0.01)
    found = [[its for its in report["findings"] if re.match(fault["said"], its["text"])] for fault in faults]
    for fault, mine in zip(faults, found, strict=True):
        assert mine, (fault["said"], texts(report), stderr)
        for its in mine:
            assert its["exclude"] == fault.get("exclude", ["node3"]), its
            assert its["remedy"].startswith(("user: ", "admin: ")), its
    named = {its["text"] for mine in found for its in mine}
    assert {*texts(report)} <= named or any(fault.get("follows") for fault in faults)
    suspects = {host for mine in found for its in mine for host in its["exclude"]}
    assert {*report["exclude"]} == (suspects if len(suspects) == 1 else set()), "no more than a quarter"


def test_a_host_that_makes_a_command_fail_is_found(hosts: Make, tmp_path: Path) -> None:
    """The command runs on ever fewer hosts, and its output goes to stderr; --iface chooses the network of the check."""
    shell = "echo here is $(hostname); [ $(hostname) != node2 ]"
    two = hosts(2)
    report, stderr = check(two, ssh(two, tmp_path), "--iface", "ib0", "--command", f"sh -c '{shell}'")
    runs = [line for line in stderr.splitlines() if line.startswith("mingle check: run ")]
    counts = f"in {sum(' failed with ' in line for line in runs)} of {len(runs)} runs"
    assert texts(report) == [f"node2: `sh -c {shell}` fails with it, and passes without it ({counts})"]
    assert (report["status"], report["exclude"], networks(report)) == (76, ["node2"], {IB})
    assert "here is node1" in stderr
