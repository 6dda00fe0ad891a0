"""Compact JSON, read strictly: what is refused here would mean different things to different readers."""

from __future__ import annotations

import json
from typing import Any


def dumps(value: object) -> str:
    """Return compact ASCII JSON; ValueError or TypeError for what has none."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def loads(payload: bytes) -> Any:
    """Return what a JSON text in UTF-8 holds; ValueError or RecursionError for anything else, NaN among it."""
    return json.loads(payload.decode(), parse_constant=_refused)


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
