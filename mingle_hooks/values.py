"""Readers of settings' values, one for each kind, from the command line or from TOML; and strict JSON.

A reader returns the value or raises UsageError. The command line and variables give text; TOML gives numbers, booleans
and lists too.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

from mingle_hooks.errors import UsageError
from mingle_hooks.net.addresses import DEFAULT_RANGE, HIGHEST, HOST_CHARACTERS, LOWEST, is_hostname, preference

Counted = Literal["gpus", "tasks", "cpus"]
Reader = Callable[[object], object]

# More nodes than any machine has; it bounds what a hostile variable can make mingle allocate.
MOST_NODES = 65_536
# The longest id, in characters: it is hashed and exported, and PBS array ids with a server name stay below it.
LONGEST_ID = 255
# More entries than any list of networks, backends or frameworks has.
MOST_ENTRIES = 64
_MOST_DIGITS = 10  # as many as job ids have; counts have fewer
_LONGEST_PATH = 4096  # PATH_MAX, linux/limits.h
UNITS_S = {"d": 86_400, "h": 3600, "m": 60, "s": 1}  # in writing order
SHORTEST_WAIT_S, LONGEST_WAIT_S = 1, 7 * 86_400
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
NONE = "none"  # the value for no program, as leaving it out means the default
COUNTED: tuple[Counted, ...] = ("gpus", "tasks", "cpus")  # what --slots can count
_LONGEST_WORD, _LONGEST_SUFFIX = 64, 253
_SUFFIX_CHARACTERS = HOST_CHARACTERS.replace("_", "")


def _wrong(expected: str, value: object, remedy: str) -> UsageError:
    return UsageError(expected, repr(value), remedy)


def identifier(value: object) -> str:
    """Read an id, 1 to 255 printable characters; an empty one usually comes from a shell variable that is not set."""
    if isinstance(value, str) and not value.strip():
        raise UsageError("an id that is not empty", "an empty one (is $JOB set?)", "--id with the job's name")
    if not isinstance(value, str) or len(value) > LONGEST_ID or not value.isprintable():
        raise _wrong(f"1 to {LONGEST_ID} printable characters", value, "shorter text of printable characters")
    return value


def number(text: str, *, least: int = 0, most: int) -> int | None:
    """Return a whole number within bounds from its decimal digits, or None."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    return found if least <= (found := int(text)) <= most else None


def holds(text: str, count: int) -> bool:
    """Return whether torchrun's N or MIN:MAX includes a count."""
    least, _, most = text.partition(":")
    return number(least, most=count) is not None and number(most or least, least=count, most=10**9) is not None


def whole(value: object, *, least: int, most: int) -> int:
    """Read a whole number."""
    found = number(value.strip(" "), least=least, most=most) if isinstance(value, str) else value
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise _wrong(f"a whole number from {least} to {most}", value, f"a number such as {least}")
    return found


nodes = partial(whole, least=1, most=MOST_NODES)
rank = partial(whole, least=0, most=MOST_NODES - 1)
port = partial(whole, least=1, most=HIGHEST)
ttl = partial(whole, least=1, most=32)  # hops: by old custom a packet with 32 or fewer stays within the site
version = partial(whole, least=1, most=999)  # of a settings file


def yes_or_no(value: object, *, expected: str, remedy: str) -> bool:
    """Read yes or no, in any of their words."""
    lowered = value.strip().lower() if isinstance(value, str) else value
    if lowered is True or lowered in YES:
        return True
    if lowered is False or lowered in NO:
        return False
    raise _wrong(expected, value, remedy)


switch = partial(yes_or_no, expected="true or false", remedy="true")
on_off = partial(yes_or_no, expected="on or off", remedy="off")


def seconds(value: object) -> float:
    """Read a duration: seconds as a number or as text, or what `duration` takes."""
    wait: float = 0.0
    if isinstance(value, str):
        wait = _decimal(value.strip()) or duration(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        wait = value
    if not SHORTEST_WAIT_S <= wait <= LONGEST_WAIT_S:
        raise _wrong("a time from 1 s to 7 days", value, "300, 90s, 5m or 1h30m")
    return float(wait)


def duration(text: str) -> float:
    """Return the seconds of text such as 90s, 1.5h, 1h30m or 2d; 0 for invalid text."""
    rest, total = text.lower().replace(" ", ""), 0.0
    for unit, unit_s in UNITS_S.items():
        amount, is_there, after = rest.partition(unit)
        if is_there:
            if (count := _decimal(amount)) is None:
                return 0.0
            total, rest = total + count * unit_s, after
    return 0.0 if rest else total


def _decimal(text: str) -> float | None:
    """Return a number such as 90 or 1.5, or None."""
    before, _, after = text.partition(".")
    is_one = (before or after) and all(number(part or "0", most=10**9) is not None for part in (before, after))
    return float(text) if is_one else None


def one_of(*choices: str) -> Callable[[object], str]:
    """Return a reader that accepts one of these words."""

    def read(value: object) -> str:
        if value not in choices:
            raise _wrong(" or ".join(choices), value, nearest(value, choices))
        return str(value)

    read.choices = choices  # type: ignore[attr-defined]  # for the schema of the settings
    return read


def word(value: object) -> str:
    """Read a name such as a shell or a framework; the package that uses it checks that it exists."""
    if not isinstance(value, str) or not is_hostname(value) or len(value) > _LONGEST_WORD or value[0] == "_":
        raise _wrong("a word of letters, digits, '-', '_' and '.'", value, "`mingle env --help` for the list")
    return value


def listed(value: object, read: Callable[[str], object]) -> tuple[object, ...]:
    """Read each entry of "a,b", or of a list of such texts; only an empty list gives ()."""
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) != len(parts):
        raise _wrong("a list of strings", value, 'a list such as ["a", "b"], or a,b')
    entries = [entry.strip() for text in texts for entry in text.split(",")]
    if len(entries) > MOST_ENTRIES:
        raise UsageError(f"at most {MOST_ENTRIES} entries", f"{len(entries)}", "a shorter list")
    return tuple(read(entry) for entry in entries)


def _host(value: str) -> str:
    if not is_hostname(value):
        raise _wrong("a host name", value, "the name that `hostname` prints there")
    return value


words = partial(listed, read=word)
networks = partial(listed, read=preference)  # interface names and CIDRs
hosts = partial(listed, read=_host)


def differences(value: object) -> tuple[object, ...]:
    """Read a list of facts that must not differ between nodes: all of them for true, none for false."""
    try:
        return FIELDS if switch(value) else ()
    except UsageError:
        return listed(value, one_of(*FIELDS))


def ports(value: object) -> range:
    """Read a port range A-B, both ends included."""
    if not isinstance(value, str):
        raise _wrong("a port range as a string", value, '"20000-24999"')
    low, _, high = value.strip().partition("-")
    first, last = number(low, most=HIGHEST) or 0, number(high, most=HIGHEST) or 0
    if not LOWEST <= first <= last <= HIGHEST:
        expected = f"a port range A-B with {LOWEST} <= A <= B <= {HIGHEST}"
        raise _wrong(expected, value, f"--port-range {DEFAULT_RANGE.start}-{DEFAULT_RANGE.stop - 1}")
    return range(first, last + 1)


def suffix(value: object) -> str:
    """Read the suffix of host names on the fast network, such as ".hsn.site" or "-ib"."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_SUFFIX or value.strip(_SUFFIX_CHARACTERS):
        raise _wrong("a host name suffix of letters, digits, '.' and '-'", value, '".hsn.cm.site" or "-ib"')
    return value


def path(value: object) -> str:
    """Read a path, absolute or from "~"; a relative one would depend on the working directory."""
    if not isinstance(value, str) or not value or len(value) > _LONGEST_PATH or not value.isprintable():
        raise _wrong(f"a path of 1 to {_LONGEST_PATH} printable characters", value, "an absolute path")
    full = os.path.expanduser(value)
    if not os.path.isabs(full):
        raise _wrong("an absolute path", value, f"{os.path.abspath(full)}")
    return full


def program(value: object) -> str:
    """Read a program's path, or "none"."""
    return NONE if value == NONE else path(value)


def paths(value: object) -> tuple[str, ...]:
    """Read a search path: a list, or text with colons."""
    parts = value.split(":") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or len(parts) > MOST_ENTRIES:
        raise _wrong(f"a list of at most {MOST_ENTRIES} directories", value, "/a/b:/c/d")
    return tuple(path(part) for part in parts)


def slots(value: object) -> int | str:
    """Read a number of slots, or what to count."""
    if value in COUNTED:
        return str(value)
    try:
        return nodes(value)
    except UsageError as wrong:
        expected = f"{wrong.expected}, or {', '.join(COUNTED[:-1])} or {COUNTED[-1]} to count them"
        raise _wrong(expected, value, nearest(value, COUNTED)) from None


def endpoint(value: object) -> tuple[str, int | None]:
    """Read HOST[:PORT]; an IPv6 address with a port stands in brackets. Returns (host, port or None)."""
    if isinstance(value, str):
        is_bracketed = value.startswith("[")
        host, end, after = value[1:].partition("]") if is_bracketed else (value, "]", "")
        if not is_bracketed and ":" not in value.partition(":")[2]:  # an IPv6 address has two or more
            host, colon, digits = value.partition(":")
            after = colon + digits
        is_host = _is_ipv6(host) if is_bracketed or ":" in host else is_hostname(host)
        if is_host and end and after[:1] in ("", ":"):
            return host, port(after[1:]) if after else None
    raise _wrong("HOST, HOST:PORT or [IPV6]:PORT", value, "--master node1, or 10.0.0.1:20000")


def _is_ipv6(value: str) -> bool:
    try:
        return "%" not in str(ipaddress.IPv6Address(value))
    except ValueError:
        return False


# Facts that may differ between nodes, by their names in settings, in the order of messages.

FIELDS = (
    *("rdma", "gpus", "driver", "network", "address", "clock", "shm", "tmp", "limits", "kernel", "image"),
    *("program", "git", "torch", "nccl", "cuda", "jax", "python", "mingle", "environment"),
)


# Corrections of mistyped names.

# mingle's name -> names used elsewhere, which a comparison of letters would match to a wrong one.
_USED_ELSEWHERE = {
    "task": "process proc rank",
    "node": "host",
    "gpus": "all auto devices",
    "cpus": "cores",
    "torchrun": "torch pytorch ddp",
    "directory": "nfs file",
    "mpi": "openmpi",
    "run": "start launch",
}
_MEANT = {other: name for name, others in _USED_ELSEWHERE.items() for other in others.split()}
# The least similarity; below it the first known name, the most usual one, is the better guess.
_ALIKE = 0.5


def nearest(word: object, known: Iterable[str]) -> str:
    """Return the nearest of the known names, by default the first; `known` must not be empty."""
    names = {name.lower(): name for name in known}
    lowered = str(word).lower()[:64]
    meant = _MEANT.get(lowered, lowered)
    if meant in names:
        return names[meant]
    return names[(difflib.get_close_matches(lowered, names, 1, _ALIKE) or [*names])[0]]


# Compact JSON, read strictly, as readers of JSON disagree about the rest.


def to_json(value: object) -> str:
    """Return compact ASCII JSON. Raises ValueError or TypeError for a value that JSON cannot represent."""
    return _ENCODER.encode(value)


def from_json(payload: bytes) -> Any:
    """Return the value of a JSON text in UTF-8. Raises ValueError, also for NaN, or RecursionError."""
    return _DECODER.decode(payload.decode())


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Shared, as json.dumps and json.loads create one for each call with options, and a leader reads six per member.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_refused)
