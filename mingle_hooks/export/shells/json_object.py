"""One JSON object of strings, for programs; null means that the variable is to be unset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def success(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return one line of pure ASCII."""
    return json.dumps({**dict.fromkeys(unset), **variables}) + "\n"


def failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return nothing: the exit status tells."""
    return ""
