"""netifaces in pure Python returns what the original does, and is the wheel that this repository keeps."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from building import ROOT
from cluster.host import Host
from cluster.hosts import Hosts

OURS = ROOT / "packaging/netifaces"
RECORDED = json.loads((ROOT / "tests/data/recorded/netifaces-0.11.0.json").read_text())
ASKED = """\
import json, netifaces as its
families = lambda found: {str(family): entries for family, entries in found.items()}
gateways = its.gateways()
default = families(gateways.pop("default"))
print(json.dumps({
    "names": its.interfaces(),
    "addresses": {name: families(its.ifaddresses(name)) for name in its.interfaces()},
    "gateways": [default, families(gateways)],
    "families": families(its.address_families),
    "constants": {name: value for name, value in vars(its).items() if name.startswith("AF_")},
}))
"""
REFUSED = """\
import netifaces
for name in ("nosuch", "", "x" * 40, "../eth0", 5, None):
    try:
        netifaces.ifaddresses(name)
    except Exception as wrong:
        print(type(wrong).__name__, wrong if isinstance(wrong, ValueError) else "")
"""
PACK = "import sys, pathlib, wheel; print(wheel.pack(wheel.netifaces(), pathlib.Path(sys.argv[1])))"


@pytest.fixture
def host(hosts: Callable[..., Hosts]) -> Host:
    """Make a host with these interfaces."""
    (one,) = hosts(1, share=[OURS])
    one.run(["sh", "-e", ROOT / "tests/data/interfaces.sh"], check=True)
    return one


def printed(host: Host, script: str) -> str:
    """Return what a script prints on the host with our netifaces; a MAC address is that of its interface."""
    text = host.run(["env", f"PYTHONPATH={OURS}", sys.executable, "-c", script], check=True, cwd="/").stdout
    links = host.run(["sh", "-c", "cd /sys/class/net; grep -v 00:00:00:00:00:00 */address"], check=True).stdout
    for name, address in re.findall(r"^(\w+)/address:(.+)$", links, re.MULTILINE):
        text = text.replace(address, f"MAC of {name}")
    return re.sub("fe80::[0-9a-f:]+", "fe80::1", text)


def test_it_returns_what_the_original_does(host: Host) -> None:
    """The host has labels, a bridge, both ends of a cable, a tunnel, loopback, and interfaces without an address."""
    ours, theirs = json.loads(printed(host, ASKED)), RECORDED["asked"]
    names = [name for name in ours["names"] if name in theirs["names"]]  # some kernels have more of their own
    addresses = {name: ours["addresses"][name] for name in names}
    assert {**ours, "names": names, "addresses": addresses} == theirs


def test_it_refuses_what_the_original_refuses(host: Host) -> None:
    """The errors are of the same kinds."""
    assert printed(host, REFUSED).splitlines() == RECORDED["refused"]


def test_the_wheel_is_made_of_these_files(tmp_path: Path) -> None:
    """`python packaging/wheel.py` makes it anew after a change."""
    done = subprocess.run([sys.executable, "-Bc", PACK, tmp_path], cwd=OURS.parent, capture_output=True, check=True)
    made = tmp_path / done.stdout.decode().strip().rpartition("/")[2]
    assert made.read_bytes() == (ROOT / "packaging/wheels" / made.name).read_bytes()
    assert [path.name for path in (ROOT / "packaging/wheels").iterdir()] == [made.name]
