"""Reading TOML, loaded only where there is a file, as the library's reader costs 6 ms."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def loads(data: bytes) -> dict[str, Any]:
    """Return a file's tree; ValueError for bad TOML and bad UTF-8, and where it is nested without end."""
    reader = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        tree: dict[str, Any] = reader.loads(data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return tree
