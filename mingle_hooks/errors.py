"""Everything that can go wrong, and the exit code that tells it.

::

    MingleError                       70  a bug: please report it
    ├── UsageError                    64  an option, or an id, N or rank, cannot be used
    ├── FactsError                    65  the scheduler's variables, node file or host list make no sense
    ├── MissingError                  69  the deadline came and somebody was still missing
    ├── NetworkError                  71  no interface, no network that all members share, no free port
    ├── PlaceError                    73  a directory or file cannot be written
    ├── ConflictError                 76  two members contradict each other: ranks, sizes, leaders, values
    ├── SecretError                   77  a key cannot be read, is not private, is missing or is not the leader's
    └── SettingsError                 78  a settings file or MINGLE_* variable cannot be used

The numbers are those of sysexits.h where it has one that fits.
"""

from __future__ import annotations

# A message is one line for a person, so no part of it may be longer than this many characters.
LONGEST_PART = 400


def printable(text: object, longest: int = LONGEST_PART) -> str:
    """Return text that a terminal can show: one line, control characters escaped, at most `longest` long."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


class MingleError(Exception):
    """What was expected, what was seen instead, and what to try: one line for a person."""

    exit_code = 70

    def __init__(self, expected: str, seen: str, remedy: str) -> None:
        self.expected = printable(expected)
        self.seen = printable(seen)
        self.remedy = printable(remedy)
        super().__init__(f"expected {self.expected}; saw {self.seen}; try {self.remedy}")


class UsageError(MingleError):
    """An option, or an id, a number of nodes or a rank, cannot be used."""

    exit_code = 64


class FactsError(MingleError):
    """The scheduler's variables, node file or host list make no sense."""

    exit_code = 65


class MissingError(MingleError):
    """The deadline came and somebody was still missing."""

    exit_code = 69


class NetworkError(MingleError):
    """There is no interface, no network that all members share, or no free port."""

    exit_code = 71


class PlaceError(MingleError):
    """A directory or file cannot be written."""

    exit_code = 73


class ConflictError(MingleError):
    """Two members contradict each other, so there is no one world."""

    exit_code = 76


class SecretError(MingleError):
    """A key cannot be read, is not private, is missing, or is not the leader's."""

    exit_code = 77


class SettingsError(MingleError):
    """A settings file or a MINGLE_* variable cannot be used."""

    exit_code = 78


_BY_EXIT_CODE: dict[int, type[MingleError]] = {
    kind.exit_code: kind
    for kind in (
        UsageError,
        FactsError,
        MissingError,
        NetworkError,
        PlaceError,
        ConflictError,
        SecretError,
        SettingsError,
    )
}


def by_exit_code(code: int) -> type[MingleError]:
    """Return the class whose exit code this is; MingleError itself for any other number."""
    return _BY_EXIT_CODE.get(code, MingleError)
