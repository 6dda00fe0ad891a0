"""Reading a scheduler's variables: each value is parsed into its type, and remembers where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import FactsError
from mingle_hooks.fabric.machine import is_hostname, is_hostname_or_address
from mingle_hooks.schedulers.facts import LONGEST_ID
from mingle_hooks.values import number

if TYPE_CHECKING:
    from collections.abc import Mapping

# 65,536 nodes with 256 tasks each.
MOST_TASKS = 16_777_216

# Names that launchers give their runs: a1b2-c3d4, prterun-node1-42@1, 3823042561.
RUN = "[A-Za-z0-9._:@+,-]+"


class Variables:
    """An environment, and in `sources` the variable that gave each fact.

    Each method takes the fact's name and the variables that may hold it, the best first. A variable
    that is set to nothing counts as not set, as shells can hardly tell the two apart.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.sources: dict[str, str] = {}

    def text(self, fact: str, *names: str, pattern: str, secret: bool = False) -> str | None:
        """Return the first that is set; raise FactsError if it is too long, not printable, not as pattern."""
        import re  # 5 ms with what it imports, which most members need for nothing else

        value = self.long(fact, *names)
        if value is None:
            return None
        if len(value) > LONGEST_ID or not value.isprintable() or not re.fullmatch(pattern, value):
            expected = f"at most {LONGEST_ID} printable characters like {pattern}"
            raise _bad(self.sources[fact], expected, value, secret=secret)
        return value

    def digits(self, fact: str, *names: str, longest: int, signed: bool = False) -> str | None:
        """Return the first that is set, as it is; raise FactsError if it is not one to `longest` digits."""
        value = self.long(fact, *names)
        if value is not None and number(value.removeprefix("-" * signed), most=10**longest - 1) is None:
            raise _bad(self.sources[fact], f"at most {longest} digits", value)
        return value

    def host(self, fact: str, *names: str, address: bool = False) -> str | None:
        """Return the first that is set, as it is; raise FactsError if no host has that name, nor `address`."""
        value = self.long(fact, *names)
        fits = is_hostname_or_address if address else is_hostname
        if value is not None and not fits(value):
            raise _bad(self.sources[fact], "a host name of letters, digits and . _ -", value)
        return value

    def number(self, fact: str, *names: str, least: int = 0, most: int = MOST_TASKS) -> int | None:
        """Return the first that is set, as a number; raise FactsError if it is none from least to most."""
        for name in names:
            value = self.environ.get(name, "")
            if not value:
                continue
            if (found := number(value, least=least, most=most)) is None:
                raise _bad(name, f"a number from {least} to {most}", value)
            self.sources[fact] = name
            return found
        return None

    def long(self, fact: str, *names: str) -> str | None:
        """Return the first that is set, whatever it holds: the caller parses it."""
        for name in names:
            if value := self.environ.get(name, ""):
                self.sources[fact] = name
                return value
        return None


def _bad(name: str, expected: str, value: str, *, secret: bool = False) -> FactsError:
    seen = "something else" if secret else f"{value[:80]!r}"
    return FactsError(f"{name} with {expected}", seen, f"unset {name} if it is left over from another job")
