"""netifaces in pure Python returns what the original does, and is the wheel that this repository keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import ROOT, once
from cluster.hosts import Hosts
from needs import need, skip_for_want_of

ORIGINAL = "netifaces==0.11.0"
OURS = ROOT / "packaging/netifaces"
# What every interface may have; the last one of each kind is up without an address.
LAYOUT = """
ip address add 10.77.0.200/24 dev eth0
ip address add 10.77.9.1/16 broadcast 10.77.255.255 label eth0:one dev eth0
ip address add 169.254.3.4/16 broadcast + dev eth0
ip address add fd77::99/48 dev eth0 nodad
ip link add br7 type bridge
ip link set br7 up
ip address add 10.99.0.1/23 broadcast + dev br7
ip address add 10.99.8.1/30 dev br7
ip link add dev veth7 type veth peer name veth8
ip link set veth7 up
ip link set veth8 up
ip address add 10.98.0.1 peer 10.98.0.2/32 dev veth7
ip address add fd98::1 peer fd98::2/128 dev veth7 nodad
ip tuntap add dev tun7 mode tun
ip link set tun7 up
ip address add 10.97.0.1 peer 10.97.0.2/32 dev tun7
ip address add fd97::1/7 dev tun7 nodad
ip link add bare7 type bridge
ip route add default via 10.77.0.2 metric 300
ip route add default via 10.78.0.2 metric 200
ip route add 10.50.0.0/16 via 10.77.0.3
ip -6 route add default via fd77::2 metric 300
ip -6 route add default via fd78::2 metric 400
"""
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


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the original, where there is a compiler and an index."""
    need("cc")

    def compiled(place: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-binary=netifaces", "--target", place]
        done = subprocess.run([*pip, ORIGINAL], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            skip_for_want_of(["a package index, and headers of Python, to compile netifaces with"])

    return once(tmp_path_factory, "netifaces", compiled)


def told(hosts: Hosts, place: Path, script: str) -> str:
    """Return what a script prints on the host with the netifaces in a directory."""
    argv = ["env", f"PYTHONPATH={place}", sys.executable, "-c", script]
    return hosts[0].run(argv, check=True, cwd="/").stdout


def test_it_returns_what_the_original_does(original: Path, hosts: Callable[..., Hosts]) -> None:
    """For several addresses, labels, a bridge, both ends of a cable, a tunnel, loopback, and interfaces without any."""
    one = hosts(1, share=[original, OURS])
    one[0].run(["sh", "-ec", LAYOUT], check=True)
    theirs, ours = (json.loads(told(one, place, ASKED)) for place in (original, OURS))
    assert ours == theirs
    assert_it_was_all_there(theirs)


def assert_it_was_all_there(theirs: dict[str, Any]) -> None:
    """Show that the layout had what is to be compared."""
    addresses = theirs["addresses"]
    assert addresses["veth7"]["2"] == [{"addr": "10.98.0.1", "netmask": "255.255.255.255", "broadcast": "10.98.0.2"}]
    assert addresses["tun7"]["2"] == [{"addr": "10.97.0.1", "netmask": "255.255.255.255", "peer": "10.97.0.2"}]
    assert "17" not in addresses["tun7"]
    assert [*addresses["bare7"]] == ["17"]
    assert len(addresses["eth0"]["2"]) == 3
    assert len(addresses["br7"]["2"]) == 2
    assert [*addresses["eth0:one"]] == ["2"]
    assert "fd98::2" in str(addresses["veth7"]["10"])
    assert theirs["gateways"][0] == {"2": ["10.78.0.2", "ib0"], "10": ["fd77::2", "eth0"]}


def test_it_refuses_what_the_original_refuses(original: Path, hosts: Callable[..., Hosts]) -> None:
    """By the same kinds of errors."""
    one = hosts(1, share=[original, OURS])
    assert told(one, OURS, REFUSED) == told(one, original, REFUSED)


def test_multicast_expert_takes_it(hosts: Callable[..., Hosts]) -> None:
    """Its own scan of the interfaces finds this host's."""
    script = (
        "import multicast_expert as its, netifaces; print(netifaces.version)\n"
        "print(*(info.machine_name for info in its.scan_interfaces()))"
    )
    version, names = told(hosts(1, share=[OURS]), OURS, script).splitlines()
    assert version == "0.11.0.post1"
    assert {"lo", "eth0", "ib0"} <= {*names.split()}


def test_the_wheel_is_made_of_these_files(tmp_path: Path) -> None:
    """`python packaging/wheel.py` makes it anew after a change."""
    done = subprocess.run([sys.executable, "-Bc", PACK, tmp_path], cwd=OURS.parent, capture_output=True, check=True)
    made = tmp_path / done.stdout.decode().strip().rpartition("/")[2]
    assert made.read_bytes() == (ROOT / "packaging/wheels" / made.name).read_bytes()
    assert [path.name for path in (ROOT / "packaging/wheels").iterdir()] == [made.name]
