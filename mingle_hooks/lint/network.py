"""RDMA ports, and this node's addresses with the speed and MTU of their interfaces."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.fabric.sysfs import attribute, entries
from mingle_hooks.lint.text import DOWN, NO_DEVICE, NOTHING, SILENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mingle_hooks.fabric.addresses import Listed

# Addresses that are told: a cloud's machine may have one for each of 32 ports.
MOST_ADDRESSES = 16
# Hardware types of linux/if_arp.h that carry a cluster's traffic: Ethernet and InfiniBand.
_TYPES = ("1", "32")
_UP = ("up", "unknown")
_UNKNOWN_MBPS = 2**32 - 1
# What leads into this node itself, beside what is_virtual_name knows: the host's end of a DPU.
_INNER = ("tmfifo",)
_LINKS = {"Ethernet": "RoCE", "Unspecified": "EFA"}


def network(root: str, found: Callable[[], Iterable[Listed]]) -> tuple[dict[str, str], str]:
    """Return what a fingerprint says of RDMA, and `10.0.0.2=100G,mtu9000 …`, the addresses that others may use.

    Raises NetworkError.
    """
    net, infiniband = f"{root}/sys/class/net", f"{root}/sys/class/infiniband"
    ports = [f"{infiniband}/{device}/ports/{port}" for device, port in _ports(infiniband)]
    usable = [one for one in found() if _is_usable(one.address)]
    names = [name for name in dict.fromkeys(one.name for one in usable) if _is_up(net, name)]
    paths = [f"{net}/{name}/speed" for name in names]
    if ports:
        from mingle_hooks.fabric import child

        devices = {port.rpartition("/ports/")[0] for port in ports}
        asked = [f"{port}/{what}" for port in ports for what in ("state", "rate")]
        answers = child.read([*asked, *(f"{device}/fw_ver" for device in devices), *paths])
    else:
        answers = {path: attribute(path) for path in paths}
    kinds = {name: _kind(f"{net}/{name}", answers) for name in names}
    told = [f"{one.address}{kinds[one.name]}" for one in usable if one.name in kinds]
    return _rdma(ports, answers, has_device=_has_device(root)), " ".join(told[:MOST_ADDRESSES])


def _ports(infiniband: str) -> list[tuple[str, str]]:
    return [(device, port) for device in entries(infiniband) for port in entries(f"{infiniband}/{device}/ports")]


def _is_usable(address: str) -> bool:
    return not address.startswith(("127.", "fe80:", "169.254.")) and address != "::1"


def _is_up(net: str, name: str) -> bool:
    if attribute(f"{net}/{name}/type") not in _TYPES or attribute(f"{net}/{name}/operstate") not in _UP:
        return False
    if os.path.exists(f"{net}/{name}/device"):  # a card is no bridge
        return True
    from mingle_hooks.fabric.interfaces import is_virtual_name  # 0.4 ms that few nodes need

    return not is_virtual_name(name) and not name.startswith(_INNER)


def _kind(interface: str, answers: Mapping[str, str] | None) -> str:
    """Return speed and MTU as they follow an address; nothing where a device does not answer."""
    if answers is None:
        return ""
    speed = answers[f"{interface}/speed"]
    is_known = speed.isdecimal() and 0 < int(speed) < _UNKNOWN_MBPS
    return f"={f'{int(speed) / 1000:g}G,' if is_known else ''}mtu{attribute(f'{interface}/mtu')}"


def _has_device(root: str) -> bool:
    return any(name.startswith("uverbs") for name in entries(f"{root}/dev/infiniband"))


def _rdma(ports: Iterable[str], answers: Mapping[str, str] | None, *, has_device: bool) -> dict[str, str]:
    """Return `8x400G` for the active ports, or why there are none, and their link layer and firmware."""
    layers = {attribute(f"{port}/link_layer") for port in ports}
    link = "+".join(sorted(_LINKS.get(layer, layer) for layer in layers)) or NOTHING
    parts = {"rdma": NOTHING, "rdma.link": link}
    if not layers:
        return parts
    if answers is None:
        return {**parts, "rdma": SILENT}
    rates: dict[str, int] = {}
    for port in ports:
        if answers[f"{port}/state"].endswith("ACTIVE"):  # "4: ACTIVE"
            rate = answers[f"{port}/rate"].partition(" ")[0]  # "400 Gb/sec (4X NDR)"
            rates[rate] = rates.get(rate, 0) + 1
    active = "+".join(f"{count}x{rate}G" for rate, count in sorted(rates.items()))
    firmware = sorted({value for path, value in answers.items() if path.endswith("/fw_ver") and value})
    parts["rdma"] = (active if has_device else NO_DEVICE) if active else DOWN
    return {**parts, "rdma.firmware": "+".join(firmware) or NOTHING}
