"""Which machine this is, so that members can tell whether they share a network stack."""

from __future__ import annotations

import os
import socket
from hashlib import sha256

from mingle_hooks.fabric.sysfs import attribute

_LONGEST_NAME = 253  # RFC 1035
# Of a host's name; the last two cannot be its first. To compile an expression takes longer than to check all names.
HOST_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"


def hostname() -> str:
    """Return this host's name as members tell it to each other: letters, digits, '-', '_' and '.' only."""
    name = "".join(letter if letter in HOST_CHARACTERS else "_" for letter in socket.gethostname())
    return f"_{name[1:]}" if name[:1] in (".", "-") else name or "unnamed"


def is_hostname(text: str) -> bool:
    """Tell whether a member may give its host this name: one as hostname() returns, of at most 253 characters."""
    return 0 < len(text) <= _LONGEST_NAME and not text.strip(HOST_CHARACTERS) and text[0] not in ".-"


def is_hostname_or_address(text: str) -> bool:
    """Tell whether this can be a host's name, or an address without brackets, IPv6 with its zone too."""
    return 0 < len(text) <= _LONGEST_NAME and not text.strip(HOST_CHARACTERS + ":%") and text[0] not in ".-%"


def identity() -> str:
    """Return 16 hex digits; two processes have the same ones when they share kernel and network namespace.

    A hostname would not do: containers on a host often share it, and cloned machines do. Where there
    is no /proc (macOS) it is all there is.
    """
    boot = attribute("/proc/sys/kernel/random/boot_id")
    stack = f"{boot} {os.stat('/proc/self/ns/net').st_ino}" if boot else socket.gethostname()
    return sha256(stack.encode()).hexdigest()[:16]
