"""Slurm's host lists: ``rack[1-2]n[01-04],gpu-a3`` stands for nine hosts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import product

from mingle_hooks.errors import FactsError
from mingle_hooks.files import UnusableFileError, contents
from mingle_hooks.net.addresses import HOST_CHARACTERS, is_hostname
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_TASKS
from mingle_hooks.values import number

# Linux limits an environment string to 128 KiB, so a longer list is not a scheduler's variable.
LONGEST_TEXT = 131_072
# The longest host name that DNS can carry, in characters (RFC 1035).
LONGEST_HOST = 253
# The most digits of a number in a host name: more than any real one has, and few enough to stay cheap.
LONGEST_NUMBER = 18

_SEPARATORS = " \t\n,"  # those of scontrol
_CHARACTERS = frozenset(HOST_CHARACTERS + _SEPARATORS + "[]")
_DIGITS = "0123456789"


def expand(text: str, *, most: int = MOST_NODES) -> tuple[str, ...]:
    """Return the hosts of a list, in its order and with its repeats, as ``scontrol show hostnames`` does.

    Several brackets, zero padding, text after a bracket, single hosts, commas and white space are supported. The number
    of hosts is checked before anything is expanded. Raises FactsError for an empty list, unmatched or nested brackets,
    an empty or reversed range, a character that no host name has, or more than `most` hosts. Unlike scontrol, it
    refuses `n[1-2` and `n[1-]`.
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
        check_host(host)
    return hosts


def check_host(host: str) -> str:
    """Return a valid host name unchanged. Raises FactsError for an invalid one."""
    # It must not start with a dash, as it may become an argument.
    if not is_hostname(host):
        raise _bad("a host name of letters, digits and . _ -", f"{host[:80]!r}")
    return host


def fold(hosts: tuple[str, ...] | list[str]) -> str:
    """Return a short list of the hosts, each once and in numeric order: ``node[2-3,7],ctl``.

    It is for messages; `expand` parses it.
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
    """Return the text before, in and after the last number of a host name."""
    digits = [place for place, letter in enumerate(host) if letter in _DIGITS]
    end = digits[-1] + 1 if digits else 0
    start = max(len(host[:end].rstrip(_DIGITS)), end - LONGEST_NUMBER)
    return host[:start], host[start:end], host[end:]


def _elements(text: str) -> list[tuple[list[str], list[str]]]:
    """Split a list at the separators outside of brackets.

    Returns for each element its literal parts and, one fewer, the contents of the brackets between them.
    """
    if strange := set(text) - _CHARACTERS:
        raise _bad("host names with matching brackets", f"{min(strange)!r} in {text[:80]!r}")
    elements: list[tuple[list[str], list[str]]] = []
    goes_on = False  # whether the last element continues, after a bracket or before one
    parts = text.split("[")
    for index, part in enumerate(parts):
        outside = part
        if index:
            inside, closed, outside = part.partition("]")
            if not closed:
                raise _bad("host names with matching brackets", repr("[" + "[".join(parts[index:])[:40]))
            if not goes_on:
                elements.append(([""], []))
            literals, insides = elements[-1]
            literals.append("")
            insides.append(inside)
            goes_on = True
        if "]" in outside:
            raise _bad("host names with matching brackets", f"{outside[:40]!r}")
        hosts = outside.replace(",", " ").split()
        if goes_on and hosts and outside[0] not in _SEPARATORS:
            elements[-1][0][-1] = hosts.pop(0)
        elements += [([host], []) for host in hosts]
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
    """Return the number of hosts, at most most + 1, as thousands of brackets would give a huge number."""
    count = 1
    for ranges in brackets:
        count = min(count * sum(last - first + 1 for first, last, _ in ranges), most + 1)
    return count


def _hosts(literals: list[str], brackets: list[list[tuple[int, int, int]]]) -> list[str]:
    """Return one element's hosts, which the caller has counted, in Slurm's order.

    The last bracket varies fastest, then the first, the second and so on.
    """
    if not brackets:
        return [literals[0]]
    longest = sum(map(len, literals)) + sum(max(r[2] for r in ranges) for ranges in brackets)
    if longest > LONGEST_HOST:
        raise _bad(f"host names of at most {LONGEST_HOST} characters", f"{longest}")
    columns = [
        [f"{number:0{width}d}" for first, last, width in ranges for number in range(first, last + 1)]
        for ranges in brackets
    ]
    slowest_first = [*reversed(columns[:-1]), columns[-1]]
    hosts = []
    for *turned, last in product(*slowest_first):
        values = [*reversed(turned), last]
        hosts.append("".join(a + b for a, b in zip(literals, [*values, ""], strict=True)))
    return hosts


def _folded(prefix: str, suffix: str, numbers: list[str]) -> str:
    """Fold the hosts that share all but one number."""
    runs: list[list[str]] = []
    for digits in sorted(numbers, key=lambda text: (int(text), len(text))):
        if runs and digits == f"{int(runs[-1][-1]) + 1:0{len(runs[-1][0])}d}":
            runs[-1].append(digits)
        else:
            runs.append([digits])
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]}{suffix}"
    inside = ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"{prefix}[{inside}]{suffix}"


def _bad(expected: str, seen: str) -> FactsError:
    remedy = "checking it with `scontrol show hostnames`, or --nodes and --rank"
    return FactsError(f"a host list with {expected}", seen, remedy)


# Node files: the hosts of a job, a line for each slot (PBS, LSF, OAR) or for each host (SGE).

# 65,536 nodes with 8 slots each and names of 30 characters. More is no node file.
LONGEST_FILE = 16 * 1024 * 1024  # bytes

Slots = dict[str, int]


def read_nodefile(path: str) -> Slots:
    """Return host -> slots in the file's order; a host has as many slots as lines.

    Raises FactsError, which names the file, if it is missing, unreadable, too large or empty, or has anything but host
    names.
    """
    return _summed(path, ((line, 1) for line in _lines(path)))


def read_pe_hostfile(path: str) -> Slots:
    """Return host -> slots from SGE's PE_HOSTFILE, whose lines are ``host slots queue range``.

    A host with slots in two queues has two lines. Raises FactsError as `read_nodefile` does.
    """

    def pairs() -> Iterator[tuple[str, int]]:
        for line in _lines(path):
            host, count, *_ = [*line.split(), "", ""]
            if (counted := number(count, most=MOST_TASKS)) is None:
                raise _bad_nodefile(path, f"{line[:80]!r}")
            yield host, counted

    return _summed(path, pairs())


def is_readable(path: str) -> bool:
    """Return whether this process may read a file; False for an invalid name."""
    try:
        return os.access(path, os.R_OK)
    except ValueError:
        return False


def _lines(path: str) -> list[str]:
    """Return the lines that are not blank, stripped."""
    try:
        data = contents(path, most_bytes=LONGEST_FILE, refused_mode=0, owners=None)
    except UnusableFileError as wrong:
        raise _bad_nodefile(path, f"not {wrong.expected}") from None
    except (OSError, ValueError) as error:
        raise _bad_nodefile(path, getattr(error, "strerror", None) or str(error)) from None
    return [line for line in map(str.strip, data.decode("ascii", "backslashreplace").split("\n")) if line]


def _summed(path: str, pairs: Iterable[tuple[str, int]]) -> Slots:
    """Return the sum of each host's slots. Raises FactsError."""
    slots: Slots = {}
    for host, count in pairs:
        if host not in slots and not is_hostname(host):
            raise _bad_nodefile(path, f"{host[:80]!r}")
        slots[host] = slots.get(host, 0) + count
        if len(slots) > MOST_NODES:
            raise _bad_nodefile(path, f"more than {MOST_NODES} hosts")
    if not 1 <= sum(slots.values()) <= MOST_TASKS:
        raise _bad_nodefile(path, f"{sum(slots.values())} slots")
    return slots


def _bad_nodefile(path: str, seen: str) -> FactsError:
    remedy = "checking that file, or --nodes and --rank"
    return FactsError(f"a node file with a host on each line in {path}", seen, remedy)


# Slurm's counts per node: ``2(x3),1`` stands for 2, 2, 2, 1.

LARGEST_COUNT = 10**7 - 1


def expand_counts(text: str, *, most: int = MOST_NODES) -> tuple[int, ...]:
    """Return one count for each node, in node order. Raises FactsError for invalid text or more than `most` nodes.

    The number of nodes is checked before anything is expanded.
    """
    parts = text.split(",", most)
    pairs = [pair for part in parts if (pair := _pair(part)) is not None]
    nodes = sum(repeat for _, repeat in pairs)
    if len(pairs) != len(parts) or not 1 <= nodes <= most:
        expected = f"counts for 1 to {most} nodes such as 2(x3),1"
        raise FactsError(expected, f"{text[:80]!r}", "unset the variable if it is left over from another job")
    return tuple(count for count, repeat in pairs for _ in range(repeat))


def _pair(part: str) -> tuple[int, int] | None:
    """Return a count and its number of nodes, 2 and 3 for ``2(x3)``, or None for invalid text."""
    count, mark, rest = part.partition("(x")
    repeat = rest.removesuffix(")") if mark else "1"
    tasks, nodes = number(count, most=LARGEST_COUNT), number(repeat, most=LARGEST_COUNT)
    if tasks is None or nodes is None or (mark and not rest.endswith(")")):
        return None
    return tasks, nodes


# Nodes of launchers that number tasks but not nodes.


def nodes_by_block(task_count: int | None, local_count: int | None) -> int | None:
    """Return the number of nodes if each has as many tasks as this one, or None if that is impossible.

    If nodes differ, their results differ, so no world can form with a wrong number.
    """
    if not task_count or not local_count or task_count % local_count:
        return None
    return task_count // local_count


def node_rank_by_block(task_rank: int | None, local_rank: int | None, local_count: int | None) -> int | None:
    """Return the node's index if tasks fill one node after the other, or None if they do not.

    It is 0 for the node of task 0, and only for that one.
    """
    if task_rank is None or local_rank is None or not local_count or task_rank % local_count != local_rank:
        return None
    return task_rank // local_count
