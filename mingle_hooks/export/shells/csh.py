"""tcsh and csh: ``eval "`mingle env --shell csh`"``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mingle_hooks.errors import UsageError

# Each line of a quoted command substitution is one word, and csh has "Word too long." at 4,096 bytes.
LONGEST_LINE_BYTES = 4_000


def quote(value: str) -> str:
    """Return `value` as one word; `!` recalls history even inside single quotes."""
    return "'" + value.replace("'", "'\\''").replace("!", "\\!") + "'"


def success(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return one statement a line; a newline or more than about 4,000 bytes in a value raise UsageError."""
    lines = [f"unsetenv {name};" for name in unset]
    lines += [_setenv(name, value) for name, value in variables.items()]
    return "\n".join(lines) + "\n"


def failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return statements of which the last sets $status; csh has no subshell exit of its own.

    A shell without a prompt `ends` by the one before it.
    """
    lines = [f"unsetenv {name};" for name in unset]
    lines += [f"if ( ! $?prompt ) exit {code};"] if ends else []
    return "\n".join([*lines, f"sh -c 'exit {code}';"]) + "\n"


def _setenv(name: str, value: str) -> str:
    # Lines become words, and eval joins words with spaces.
    if "\n" in value:
        raise UsageError(f"{name} without a newline, which csh cannot represent", value, "--shell sh, or mingle exec")
    line = f"setenv {name} {quote(value)};"
    size = len(os.fsencode(line))
    if size > LONGEST_LINE_BYTES:
        raise UsageError(
            f"{name} in a line of at most {LONGEST_LINE_BYTES} bytes, csh's limit",
            f"{size} bytes",
            "--shell sh, or mingle exec",
        )
    return line
