"""The environment that supervisors are started with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.supervise import starters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.supervise.starters import Starter

# What an outer run says of itself to its own COMMAND.
_OUTER = ("MINGLE_RUN", "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT")


def of_supervisors(starter: Starter, iface: tuple[object, ...], run_id: str, key: bytes, port: int) -> dict[str, str]:
    """Return this process's own, and where the runner is to be reached with which key."""
    addresses = ["127.0.0.1"]
    if starter.name != "local":
        from mingle_hooks.fabric.interfaces import interfaces, usable

        addresses = [its.host for its in usable(interfaces(), prefer=iface)]  # type: ignore[arg-type]
    outer = os.environ.get("MINGLE_RUN_ID")
    return {
        **{name: value for name, value in os.environ.items() if name not in _OUTER},
        "MINGLE_RUN_ID": f"{outer},{run_id}" if outer else run_id,
        "MINGLE_RUN_KEY": key.hex(),
        "MINGLE_RUN_AT": ",".join(f"{address} {port}" for address in addresses),
    }


class File:
    """The file of the environment, where the starter needs one, while supervisors begin.

    It holds the run's key: who is killed later leaves none.
    """

    def __init__(self, starter: Starter, environ: Mapping[str, str]) -> None:
        self._starter, self._environ = starter, environ
        self._path: str | None = None

    def path(self) -> str | None:
        """Return where it is, None where the starter needs none. Raises PlaceError."""
        self._path = self._path or starters.environ_file(self._starter, self._environ)
        return self._path

    def forget(self) -> None:
        """Remove it, if it is there."""
        if self._path is not None:
            starters.files.remove(self._path)
            self._path = None
