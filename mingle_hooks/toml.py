"""Reading TOML, loaded only where there is a file, as the library's reader costs 6 ms."""

from __future__ import annotations

import sys

from mingle_hooks.typed import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def loads(data: bytes) -> dict[str, Any]:
    """Return a file's tree; ValueError for bad TOML and bad UTF-8, and where it is nested without end."""
    try:
        return tomllib.loads(data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
