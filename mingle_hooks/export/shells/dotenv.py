"""NAME=value lines that docker --env-file, python-dotenv and systemd's EnvironmentFile read alike.

They agree on bare values only: docker takes quotes literally, python-dotenv takes them off and expands
`${…}`, systemd unescapes backslashes. So there are no quotes, and a value about which they differ is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mingle_hooks.errors import UsageError

# Spaces at the ends are trimmed by some, quotes matter where a value begins, and # begins a comment for some.
_DISPUTED = re.compile(r"""^["'`\s]|[#$\\]|\s$""")


def success(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return the lines; UsageError for a value that they do not read alike."""
    for name, value in variables.items():
        if _DISPUTED.search(value) or not value.isprintable():
            raise UsageError(f"{name} with a value that all readers of dotenv files parse alike", value, "--shell json")
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return nothing: the exit status tells."""
    return ""
