"""How often in a row a job was queued again without a world: what lasts, such as a firewall, would queue it for ever.

A file for each job in the user's state directory has an octet for each time. Hosts that do not share it count alone.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from mingle_hooks.supervise.runner.member import directory
from mingle_hooks.supervise.worlds import registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.supervise.runner.request import Request

MOST = 3
# What queues a new job, of another id, in place of the same one.
_NEW_JOBS = ("pbs", "torque")


class Fruitless:
    """The runs of one job that had no world."""

    def __init__(self, request: Request, environ: Mapping[str, str]) -> None:
        job = "" if request.starter.name in _NEW_JOBS else request.id or ""
        name = sha256("\0".join((job, directory(), *request.command)).encode(errors="surrogateescape")).hexdigest()
        runs = registry.directory(environ)
        self._path = None if runs is None else f"{os.path.dirname(runs)}/again/{name[:32]}"

    def may_go_on(self) -> bool:
        """Count one more; tell whether the job may be queued again, which it may where nothing can be counted."""
        if self._path is None:
            return True
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(self._path, "ab") as file:
                file.write(b".")
            return os.path.getsize(self._path) <= MOST
        except OSError:
            return True

    def forget(self) -> None:
        """Begin to count anew."""
        try:
            os.unlink(self._path or "")
        except OSError:  # none was counted
            pass
