"""What a starter says to a supervisor: on its command line, and what nobody else may see in its environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Where = tuple[str, int]

KEY, AT = "MINGLE_RUN_KEY", "MINGLE_RUN_AT"
_KEY_DIGITS = 64


class Options(NamedTuple):
    """Which place this is, and where the environment comes from."""

    host: str = ""
    local: str = ""
    environ: str = ""
    is_stdin: bool = False
    keep: tuple[str, ...] = ()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Options:
        """Return what stands there. Raises UsageError for what no starter writes."""
        words, found = iter(arguments), cls()
        for word in words:
            if word == "--stdin":
                found = found._replace(is_stdin=True)
            elif word == "--keep":
                found = found._replace(keep=(*found.keep, next(words, "")))
            elif word == "--host":
                found = found._replace(host=next(words, ""))
            elif word == "--local":
                found = found._replace(local=next(words, ""))
            elif word == "--environ":
                found = found._replace(environ=next(words, ""))
            else:
                raise _bad("an option of a supervisor's", word)
        return found

    def words(self) -> tuple[str, ...]:
        """Return the place alone, as a command line."""
        host = ("--host", self.host) if self.host else ()
        return (*host, "--local", self.local) if self.local else host


class Task(NamedTuple):
    """Whom a supervisor looks for, and who it is."""

    key: bytes
    places: tuple[Where, ...]
    host: str
    local: int

    @classmethod
    def find(cls, options: Options, environ: Mapping[str, str]) -> Task:
        """Return a supervisor's task; it is where Slurm says where the starter did not. Raises UsageError."""
        digits, local = environ.get(KEY, ""), options.local or environ.get("SLURM_LOCALID") or "0"
        try:
            key = bytes.fromhex(digits)
        except ValueError:
            key = b""
        if len(digits) != _KEY_DIGITS or not key:
            raise _bad("a run's key", f"none in {KEY}")
        if not local.isdecimal():
            raise _bad("a number", f"{local} (--local)")
        host = options.host or environ.get("SLURMD_NODENAME", "")
        if not host:
            from mingle_hooks.fabric.machine import hostname

            host = hostname()
        return cls(key, addresses(environ.get(AT, "")), host, int(local))


def addresses(text: str) -> tuple[Where, ...]:
    """Return what MINGLE_RUN_AT names: "10.77.0.1 4711,fd77::1 4711". Raises UsageError."""
    found = []
    for place in text.split(","):
        address, _, port = place.partition(" ")
        if not address or not port.isdecimal():
            raise _bad("addresses and ports", f"{text} ({AT})")
        found.append((address, int(port)))
    return tuple(found)


def _bad(expected: str, seen: str) -> UsageError:
    return UsageError(expected, seen, "`mingle run`, which starts this program")
