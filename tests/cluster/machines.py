"""The twelve machines of recorded/networks.json, and others of no maker: as trees of /sys and /proc, and as hosts."""

import ipaddress
import json
import struct
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from cluster.hosts import Hosts
from mingle_hooks.net.addresses import Interface, describe

# From one host to the next, as machines have up to twelve addresses of one network.
APART = 16
ETHERNET_MTU = 1500
NUMBERS = count()
UNPLUG = """
umount /sys/class/net 2>/dev/null
cd /sys/class/net
for name in *; do [ "$name" = lo ] || ip link del "$name" || exit; done
"""
RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "networks.json"
TYPES = {"loopback": "772", "infiniband": "32", "ethernet": "1", "virtual": "1"}
HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def recorded() -> dict[str, dict[str, Any]]:
    """Return the machines by name."""
    return {machine["machine"]: machine for machine in json.loads(RECORDED.read_text())}


def carrier(name: str, *addresses: str, kind: str = "ethernet", speed: int | None = None) -> dict[str, Any]:
    """Return one interface as networks.json has them."""
    return {"name": name, "kind": kind, "speed_mbps": speed, "addresses": list(addresses)}


def route(name: str, *, to: str = "0.0.0.0/0", metric: int = 0, flags: int = 3) -> str:
    """Return one line of /proc/net/route, whose numbers are in the byte order of the machine."""
    network = ipaddress.IPv4Network(to)
    numbers = [struct.unpack("=I", its.packed)[0] for its in (network.network_address, network.netmask)]
    via = struct.unpack("=I", ipaddress.IPv4Address("10.0.0.1").packed)[0]
    return f"{name}\t{numbers[0]:08X}\t{via:08X}\t{flags:04X}\t0\t0\t{metric}\t{numbers[1]:08X}\t0\t0\t0\n"


def route6(name: str, *, to: str = "::/0", metric: int = 1024, flags: int = 3) -> str:
    """Return one line of /proc/net/ipv6_route."""
    network = ipaddress.IPv6Network(to)
    where = f"{network.network_address.packed.hex()} {network.prefixlen:02x}"
    return f"{where} {'0' * 32} 00 fe80{'0' * 27}1 {metric:08x} 00000001 00000000 {flags:08x} {name:>8}\n"


def grow(root: Path, interfaces: Iterable[dict[str, Any]], rdma: Iterable[str] = (), default: str = "") -> None:
    """Make the part of /sys and /proc that tells of these interfaces."""
    for its in interfaces:
        folder = root / "sys/class/net" / its["name"]
        folder.mkdir(parents=True)
        (folder / "type").write_text(TYPES[its["kind"]] + "\n")
        (folder / "operstate").write_text("unknown\n" if its["kind"] == "loopback" else "up\n")
        (folder / "speed").write_text(f"{its['speed_mbps'] or -1}\n")
        if its["name"] in rdma:
            (folder / "device/infiniband" / f"rdma_{its['name']}").mkdir(parents=True)
    tables(root, route(default) if default else "")


def tables(root: Path, ipv4: str = "", ipv6: str = "") -> None:
    """Write the kernel's two tables of routes."""
    folder = root / "proc/net"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "route").write_text(HEAD + ipv4)
    (folder / "ipv6_route").write_text(ipv6)


def seen(root: Path, interfaces: Iterable[dict[str, Any]]) -> tuple[Interface, ...]:
    """Return the interfaces as they are described under this root, numbered in their order."""
    carried = {
        (index, its["name"]): tuple(map(ipaddress.ip_interface, its["addresses"]))
        for index, its in enumerate(interfaces, 1)
    }
    return describe(carried, str(root))


def plug(hosts: Hosts, machines: Sequence[dict[str, Any]], place: Path, apart: Sequence[str] = ()) -> None:
    """Give each host the interfaces of its machine, in the place of those that it had.

    Interfaces of one network are on one switch, but for those that are `apart`. Each host's addresses are the
    machine's plus 16 for each host before it; those of virtual interfaces are alike. Below `place`, which the hosts
    see, is what their /sys then tells.
    """
    switches: dict[tuple[str, ...], str] = {}
    plugs = []
    for host, machine in zip(hosts, machines, strict=True):
        host.run(["sh", "-c", UNPLUG], check=True)
        for its in machine["interfaces"]:
            if its["kind"] in ("ethernet", "infiniband"):
                networks = [str(ipaddress.ip_interface(address).network) for address in its["addresses"]]
                where = (host.name, its["name"]) if its["name"] in apart else (*networks, its["name"])[:1]
                switch = switches.setdefault(where, f"sw{next(NUMBERS)}")
                port = f"p{next(NUMBERS)}"
                mtu = f"mtu {its.get('mtu', ETHERNET_MTU)}"
                plugs.append(f"link add {port} {mtu} type veth peer name {its['name']} {mtu} netns {host.pid}")
                plugs.append(f"link set {port} master {switch} up")
    hosts.ip([f"link add {name} up type bridge mcast_snooping 0 forward_delay 0" for name in switches.values()] + plugs)
    for host, machine in zip(hosts, machines, strict=True):
        hosts.ip(_host_lines(machine, host.number), host)
        grow(place / host.name, machine["interfaces"], machine["rdma"])
        host.run(["mount", "--bind", place / host.name / "sys/class/net", "/sys/class/net"], check=True)


def shifted(address: str, number: int) -> str:
    """Return host `number`'s address, where this is the first host's."""
    its = ipaddress.ip_interface(address)
    return f"{its.ip + APART * (number - 1)}/{its.network.prefixlen}"


def _host_lines(machine: dict[str, Any], number: int) -> list[str]:
    """Return the lines of `ip -batch` for one host; of several ways to a network the default route's is the first."""
    lines = []
    for metric, its in enumerate(machine["interfaces"], 100):
        name, is_virtual = its["name"], its["kind"] == "virtual"
        if its["kind"] == "loopback":
            continue
        first = 10 if name == machine["default_route"] else metric
        lines += [f"link add {name} type bridge"] if is_virtual else []
        lines += [
            f"addr add {address if is_virtual else shifted(address, number)} dev {name} metric {first}"
            f"{' nodad' if ':' in address else ''}"
            for address in its["addresses"]
        ]
        lines.append(f"link set {name} up")
    return [*lines, *([f"route add default dev {machine['default_route']}"] if machine["default_route"] else [])]
