"""The hosts as horovodrun's -H takes them (read in horovod 0.28, runner/common/util/hosts.py)."""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks.export.hostfiles import slots
from mingle_hooks.world import Member


def text(members: Sequence[Member]) -> str:
    """Return all hosts in one line."""
    return ",".join(f"{host}:{count}" for host, count in slots(members).items()) + "\n"
