"""The twelve machines of recorded/networks.json, and others of no maker, as trees of /sys and /proc."""

from __future__ import annotations

import ipaddress
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingle_hooks.fabric.interfaces import Interface, describe

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "networks.json"
TYPES = {"loopback": "772", "infiniband": "32", "ethernet": "1", "virtual": "1"}
HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def recorded() -> dict[str, dict[str, Any]]:
    """Return the machines by name."""
    return {machine["machine"]: machine for machine in json.loads(RECORDED.read_text())}


def carrier(name: str, *addresses: str, kind: str = "ethernet", speed: int | None = None) -> dict[str, Any]:
    """Return one interface as networks.json has them."""
    return {"name": name, "kind": kind, "speed_mbps": speed, "addresses": list(addresses)}


def route(name: str, gateway: str = "10.0.0.1", *, to: str = "0.0.0.0/0", metric: int = 0, flags: int = 3) -> str:
    """Return one line of /proc/net/route, whose numbers are in the byte order of the machine."""
    network = ipaddress.IPv4Network(to)
    numbers = [struct.unpack("=I", its.packed)[0] for its in (network.network_address, network.netmask)]
    via = struct.unpack("=I", ipaddress.IPv4Address(gateway).packed)[0]
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
