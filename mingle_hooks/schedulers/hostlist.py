"""Slurm's host lists: ``rack[1-2]n[01-04],gpu-a3`` stands for nine hosts."""

from __future__ import annotations

from itertools import product

from mingle_hooks.errors import FactsError
from mingle_hooks.fabric.machine import HOST_CHARACTERS, is_hostname
from mingle_hooks.schedulers.facts import MOST_NODES

# Linux allows one environment string 128 KiB, so a longer list did not come from a scheduler's variable.
LONGEST_TEXT = 131_072
# The longest host name that DNS can carry, in characters (RFC 1035).
LONGEST_HOST = 253
# Numbers in host names: more digits than any real one, few enough to stay cheap.
LONGEST_NUMBER = 18

_SEPARATORS = " \t\n,"  # those of scontrol
_CHARACTERS = frozenset(HOST_CHARACTERS + _SEPARATORS + "[]")
_DIGITS = "0123456789"


def expand(text: str, *, most: int = MOST_NODES) -> tuple[str, ...]:
    """Return the hosts of a list, in its order and with its repeats, as ``scontrol show hostnames`` does.

    Several brackets, zero padding, text after a bracket, single hosts, commas and white space are
    understood. Nothing is expanded before the number of hosts is known to be at most `most`.
    Raises FactsError: nothing in the list, brackets that do not match or are nested, an empty or
    reversed range, a character that no host name has, or too many hosts. Unlike scontrol, `n[1-2`
    and `n[1-]` are refused rather than guessed at.
    Source: Slurm, src/common/hostlist.c.
    """
    if len(text) > LONGEST_TEXT:
        raise _bad(f"at most {LONGEST_TEXT} characters", f"{len(text)}")
    parsed = [(literals, [_ranges(inside) for inside in insides]) for literals, insides in _elements(text)]
    count = sum(_count(brackets, most) for _, brackets in parsed)
    if not 1 <= count <= most:
        raise _bad(f"1 to {most} hosts", f"{'more' if count else 'none'} in {text[:80]!r}")
    hosts = tuple(host for literals, brackets in parsed for host in _hosts(literals, brackets))
    for host in hosts:
        check(host)
    return hosts


def check(host: str) -> str:
    """Return host as it is; raise FactsError where it cannot be the name of a host."""
    # It never starts with a dash, as it may become a word on a command line.
    if not is_hostname(host):
        raise _bad("a host name of letters, digits and . _ -", f"{host[:80]!r}")
    return host


def fold(hosts: tuple[str, ...] | list[str]) -> str:
    """Return a short list of the hosts, each once and in numeric order: ``node[2-3,7],ctl``.

    `expand` reads it back. It is meant for messages.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    singles: list[str] = []
    for host in dict.fromkeys(hosts):
        prefix, number, suffix = _last_number(host)
        if number:
            groups.setdefault((prefix, suffix), []).append(number)
        else:
            singles.append(host)
    return ",".join([*(_folded(*ends, numbers) for ends, numbers in groups.items()), *singles])


def _last_number(host: str) -> tuple[str, str, str]:
    """Return what is before, in and after the last number of a host's name."""
    end = len(host)
    while end and host[end - 1] not in _DIGITS:
        end -= 1
    start = end
    while start and host[start - 1] in _DIGITS and end - start < LONGEST_NUMBER:
        start -= 1
    return host[:start], host[start:end], host[end:]


def _elements(text: str) -> list[tuple[list[str], list[str]]]:
    """Split at the separators that stand outside of brackets.

    Returns for each element its literal parts and, one fewer, what is inside the brackets between them.
    """
    if strange := set(text) - _CHARACTERS:
        raise _bad("host names with matching brackets", f"{min(strange)!r} in {text[:80]!r}")
    elements: list[tuple[list[str], list[str]]] = []
    goes_on = False  # whether the last element does, after a bracket or before one
    parts = text.split("[")
    for number, part in enumerate(parts):
        outside = part
        if number:
            inside, closed, outside = part.partition("]")
            if not closed:
                raise _bad("host names with matching brackets", repr("[" + "[".join(parts[number:])[:40]))
            if not goes_on:
                elements.append(([""], []))
            literals, insides = elements[-1]
            literals.append("")
            insides.append(inside)
            goes_on = True
        if "]" in outside:
            raise _bad("host names with matching brackets", f"{outside[:40]!r}")
        words = outside.replace(",", " ").split()
        if goes_on and words and outside[0] not in _SEPARATORS:
            elements[-1][0][-1] = words.pop(0)
        elements += [([word], []) for word in words]
        goes_on = outside[-1] not in _SEPARATORS if outside else goes_on
    return elements


def _ranges(inside: str) -> list[tuple[int, int, int]]:
    """Return (first, last, width in digits) for each range between two brackets."""
    found = []
    for part in inside.split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        if not low or not high or (low + high).strip(_DIGITS) or len(part) > 2 * LONGEST_NUMBER + 1:
            raise _bad("ranges such as [1-3,07]", f"[{part[:40]}]")
        first, last = int(low), int(high)
        if first > last:
            raise _bad("ascending ranges", f"[{part}]")
        found.append((first, last, len(low)))
    return found


def _count(brackets: list[list[tuple[int, int, int]]], most: int) -> int:
    """Return the number of hosts, or most + 1 for more: thousands of brackets make no number to work with."""
    count = 1
    for ranges in brackets:
        count = min(count * sum(last - first + 1 for first, last, _ in ranges), most + 1)
    return count


def _hosts(literals: list[str], brackets: list[list[tuple[int, int, int]]]) -> list[str]:
    """Return one element's hosts; the caller has counted them.

    Slurm's order is its own: the last bracket turns fastest, then the first, the second and so on.
    """
    if not brackets:
        return [literals[0]]
    longest = sum(map(len, literals)) + sum(max(r[2] for r in ranges) for ranges in brackets)
    if longest > LONGEST_HOST:
        raise _bad(f"host names of at most {LONGEST_HOST} characters", f"{longest}")
    columns = [_numbers(ranges) for ranges in brackets]
    slowest_first = [*reversed(columns[:-1]), columns[-1]]
    hosts = []
    for *turned, last in product(*slowest_first):
        values = [*reversed(turned), last]
        hosts.append("".join(a + b for a, b in zip(literals, [*values, ""], strict=True)))
    return hosts


def _numbers(ranges: list[tuple[int, int, int]]) -> list[str]:
    return [f"{number:0{width}d}" for first, last, width in ranges for number in range(first, last + 1)]


def _folded(prefix: str, suffix: str, numbers: list[str]) -> str:
    """Fold the hosts that share all but one number."""
    runs: list[list[str]] = []
    for number in sorted(numbers, key=lambda digits: (int(digits), len(digits))):
        if runs and number == f"{int(runs[-1][-1]) + 1:0{len(runs[-1][0])}d}":
            runs[-1].append(number)
        else:
            runs.append([number])
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]}{suffix}"
    inside = ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"{prefix}[{inside}]{suffix}"


def _bad(expected: str, seen: str) -> FactsError:
    return FactsError(
        f"a host list with {expected}", seen, "checking it with `scontrol show hostnames`, or --nodes and --rank"
    )
