"""What a host says of itself, without root, and nothing that can hang but in a child."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from mingle_hooks.check.report import Address, Space
from mingle_hooks.check.words import MOST_ADDRESSES, MOST_OF_HOST
from mingle_hooks.errors import NetworkError, printable
from mingle_hooks.fabric import gpus
from mingle_hooks.fabric.addresses import listed
from mingle_hooks.fabric.interfaces import interfaces, usable
from mingle_hooks.fabric.machine import identity
from mingle_hooks.fabric.sysfs import attribute
from mingle_hooks.lint.asked import Asked, limits
from mingle_hooks.lint.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.fabric.interfaces import Interface, Preference
    from mingle_hooks.rendezvous.protocol.wire import Body

_MIB = 1 << 20
_LOOPBACK = ("127.", "::1")
_NET = "/sys/class/net"
_LONGEST = 300


def reachable(prefer: Sequence[Preference]) -> tuple[tuple[Address, ...], tuple[tuple[str, str], ...], str]:
    """Return the addresses that others may use, what is for guests alone, and what is wrong where there are none."""
    found = interfaces()
    guests = [
        (its.name, str(address.ip))
        for its in found
        for address in its.addresses
        if its.kind == "virtual" and not address.is_link_local
    ]
    try:
        chosen = usable(found, prefer=prefer)
    except NetworkError as wrong:
        return (), tuple(guests[:MOST_ADDRESSES]), f"expected {wrong.expected}, saw {wrong.seen}"
    addresses = [
        Address(
            its.interface.name,
            _kind(its.interface),
            its.host,
            its.address.network.prefixlen,
            _number(attribute(f"{_NET}/{its.interface.name}/mtu")),
            its.interface.speed_mbps,
            0,
        )
        for its in chosen[:MOST_ADDRESSES]
    ]
    return tuple(addresses), tuple(guests[:MOST_ADDRESSES]), ""


def every() -> list[str]:
    """Return all addresses of this host but loopback's, none where it does not tell."""
    try:
        return [its.address for its in listed() if not its.address.startswith(_LOOPBACK)][:MOST_OF_HOST]
    except NetworkError:
        return []


def _kind(interface: Interface) -> str:
    return "bridge" if os.path.isdir(f"{_NET}/{interface.name}/bridge") else interface.kind


def own(environ: Mapping[str, str]) -> Body:
    """Return what needs nobody's answer."""
    text, _ = fingerprint(Asked(environ, directory=os.getcwd(), limits=limits()))
    return {
        "hostname": printable(socket.gethostname(), 253),
        "identity": identity(),
        "gpus": gpus.visible_gpus(environ),
        "fingerprint": text,
    }


def places(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories that have to have room."""
    wanted = ("/dev/shm", "/tmp", environ.get("TMPDIR", ""), environ.get("HOME", ""), os.getcwd())  # noqa: S108
    return tuple(dict.fromkeys(os.path.normpath(path) for path in wanted if path.startswith("/") and path != "/"))


def space(path: str) -> list[int]:
    """Return how much of a file system is free for this user and how large it is, in MiB; nothing where it is gone."""
    try:
        its = os.statvfs(path)
    except OSError:
        return []
    free = its.f_bavail if its.f_favail or not its.f_files else 0  # no inode is left
    return [free * its.f_frsize // _MIB, its.f_blocks * its.f_frsize // _MIB]


def spaces(answers: Mapping[str, list[int] | None]) -> list[Body]:
    """Return the rows of what was asked; a directory that does not exist has none."""
    rows = [Space(printable(path, _LONGEST), *(its or (None, None))) for path, its in answers.items() if its != []]
    return [dict(row._asdict()) for row in rows]


def _number(digits: str) -> int | None:
    return int(digits) if digits.isdecimal() else None
