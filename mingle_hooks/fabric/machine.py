"""Which machine this is, so that members can tell whether they share a network stack."""

from __future__ import annotations

import os

from mingle_hooks import sockets as socket
from mingle_hooks.digest import sha256
from mingle_hooks.fabric.sysfs import attribute


def hostname() -> str:
    """Return this host's name as members tell it to each other: letters, digits, '-', '_' and '.' only."""
    name = socket.gethostname()
    if name.isascii() and name.replace("-", "").replace(".", "").replace("_", "").isalnum() and name[0] not in ".-":
        return name
    import re  # noqa: PLC0415 - few hosts have such names

    return re.sub(r"[^A-Za-z0-9_.-]|^[.-]", "_", name) or "unnamed"


def identity() -> str:
    """Return 16 hex digits; two processes have the same ones when they share kernel and network namespace.

    A hostname would not do: containers on a host often share it, and cloned machines do. Where there
    is no /proc (macOS) it is all there is.
    """
    boot = attribute("/proc/sys/kernel/random/boot_id")
    stack = f"{boot} {os.stat('/proc/self/ns/net').st_ino}" if boot else socket.gethostname()
    return sha256(stack.encode()).hexdigest()[:16]
