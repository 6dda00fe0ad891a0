"""fish: `mingle env --shell fish | source`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def quote(value: str) -> str:
    """Return `value` as one word; inside single quotes only backslash and quote are special."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def success(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return one statement a line, in the global scope only: a universal variable is the user's for ever."""
    lines = [_erase(name) for name in unset]
    lines += [f"set -gx {name} {quote(value)};" for name, value in variables.items()]
    return "\n".join([*lines, "true;"]) + "\n"


def failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return statements of which the last sets $status.

    A shell that is not interactive `ends` by becoming a program that fails: `exit` would end `source` alone.
    """
    lines = [_erase(name) for name in unset]
    lines += [f"status is-interactive; or exec sh -c 'exit {code}';"] if ends else []
    return "\n".join([*lines, f"sh -c 'exit {code}';"]) + "\n"


def _erase(name: str) -> str:
    return f"set -eg {name};"
