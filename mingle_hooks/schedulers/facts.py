"""JobFacts, the same for all schedulers; reading their variables, host lists and node files; and a node's switches."""

from __future__ import annotations

import itertools
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import FactsError
from mingle_hooks.files import UnusableFileError, contents
from mingle_hooks.net.addresses import is_hostname, is_hostname_or_address
from mingle_hooks.values import number

# The same bounds as for settings.
MOST_NODES, LONGEST_ID = values.MOST_NODES, values.LONGEST_ID
# Slots on one node; the largest nodes have some hundred processors.
MOST_SLOTS = 4096
# Hosts to try if rank 0 may be on any of them: enough in practice, few enough to try all at once.
MOST_LEADER_HOSTS = 64

_COUNTED_BY = {"node_rank": "nodes", "task_rank": "task_count", "slot": "local_count", "local_rank": "local_count"}


class _Fields(NamedTuple):
    """The fields of JobFacts.

    Named tuples, here and wherever `mingle env` passes: dataclasses would cost 8 ms to import and half a
    millisecond for each class, on every node of every job.
    """

    scheduler: str
    job_id: str | None = None
    step: str = ""
    restarts: int = 0
    nodes: int | None = None
    node_rank: int | None = None
    hosts: tuple[str, ...] = ()
    # Hosts that may have rank 0, best guess first; hosts[:1] unless the scheduler places rank 0 elsewhere.
    leader_hosts: tuple[str, ...] = ()
    task_rank: int | None = None
    task_count: int | None = None
    local_rank: int | None = None
    local_count: int | None = None
    # This process's slot if one process runs in each slot of the node; only the caller knows whether it does.
    slot: int | None = None
    # The number of nodes of the job, if a launcher such as mpirun started processes on fewer of them.
    nodes_of_job: int | None = None
    # Tasks on each node in node-rank order, or () if unknown.
    tasks_per_node: tuple[int, ...] = ()
    # Slots that the scheduler granted on this node.
    cpus: int | None = None
    gpus: int | None = None
    # The batch script of a job with several nodes, or salloc's shell: it runs on one host only, which need not be one
    # of the job's, and must not wait for the others.
    is_batch: bool = False
    # This host's name as the scheduler calls it.
    host: str | None = None
    # A value that all processes of one run of the job share (PBS_JOBCOOKIE), or None. Never shown, as PBS starts tasks
    # for anyone who knows it; no key, as it can be guessed.
    cookie: str | None = None
    # Whether all nodes of the job share the user's home, so that a key can be created there. Pods do not.
    shares_homes: bool = True
    # The prefix that starts a command on every node, such as srun; empty if there is none.
    on_every_node: str = ""
    # The three parts of the error for an unknown number of nodes; empty if rank 0 may know the number.
    without_nodes: tuple[str, ...] = ()
    # For --explain: field name -> the variable or file that it was read from.
    sources: Mapping[str, str] = MappingProxyType({})


class JobFacts(_Fields):
    """The facts about the job, the step and this process; unknown ones are None or empty.

    A *member* is a node of the step. `hosts` holds the step's hosts in node-rank order, each once.
    `node_rank` counts from 0 within the step. `task_rank` and `task_count` count the step's tasks
    (processes) over all nodes, `local_rank` and `local_count` those on this node.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **fields: Any) -> JobFacts:
        """Return consistent facts. Raises FactsError for facts that contradict each other."""
        facts = super().__new__(cls, *args, **fields)
        facts._check()
        return facts

    def _replace(self, **fields: Any) -> JobFacts:
        return JobFacts(**{**self._asdict(), **fields})  # checked again

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True) if name != "cookie")
        return f"JobFacts({', '.join(shown)})"

    def by_itself(self) -> JobFacts:
        """Return the facts of a job with this node only."""
        one = {"nodes": 1, "node_rank": 0, "hosts": (), "leader_hosts": (), "nodes_of_job": None, "is_batch": False}
        tasks = (self.local_count,) if self.local_count else ()
        return self._replace(**one, task_rank=self.local_rank, task_count=self.local_count, tasks_per_node=tasks)

    def _check(self) -> None:
        """Raise FactsError for facts that contradict each other."""
        if self.nodes is not None and not 1 <= self.nodes <= MOST_NODES:
            raise FactsError(f"1 to {MOST_NODES} nodes", f"{self.nodes} ({self._from('nodes')})", "--nodes N")
        for name, count in _COUNTED_BY.items():
            value, most = getattr(self, name), getattr(self, count)
            if value is not None and (value < 0 or (most is not None and value >= most)):
                limit = "0 or more" if most is None else f"0 to {most - 1}"
                remedy = "--rank R" if name == "node_rank" else "--scope node"
                raise FactsError(f"a {name.replace('_', ' ')} of {limit}", f"{value} ({self._from(name)})", remedy)
        if self.hosts and self.nodes is not None and len(self.hosts) != self.nodes:
            remedy = "the same command with --nodes, or unset the variable that is left over from another job"
            seen = f"{len(self.hosts)} ({self._from('hosts')})"
            raise FactsError(f"{self.nodes} hosts ({self._from('nodes')})", seen, remedy)

    def _from(self, name: str) -> str:
        return self.sources.get(name, self.scheduler)


def of_slots(scheduler: str, job_id: str | None, slots: Mapping[str, int], sources: Mapping[str, str]) -> JobFacts:
    """Return the facts of a job of these hosts, in node-rank order with their slots; none if they are unknown."""
    hosts = tuple(slots)
    return JobFacts(
        scheduler,
        job_id,
        nodes=len(hosts) or None,
        hosts=hosts,
        leader_hosts=hosts[:1],
        task_count=sum(slots.values()) or None,
        tasks_per_node=tuple(slots.values()),
        sources=sources,
    )


# Reading a scheduler's variables, with the source of each fact.

# 65,536 nodes with 256 tasks each.
MOST_TASKS = 16_777_216


class Variables:
    """An environment, and in `sources` the variable of each fact.

    Each method takes the fact's name and the variables that may hold it, the best first. An empty variable counts as
    not set, as shells hardly distinguish the two.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.sources: dict[str, str] = {}

    def text(self, fact: str, *names: str, pattern: str, secret: bool = False) -> str | None:
        """Return the first set variable. Raises FactsError if it is too long, not printable or not like `pattern`."""
        value = self.raw(fact, *names)
        if value is None:
            return None
        if len(value) > LONGEST_ID or not value.isprintable() or not re.fullmatch(pattern, value):
            expected = f"at most {LONGEST_ID} printable characters like {pattern}"
            raise _bad_variable(self.sources[fact], expected, value, secret=secret)
        return value

    def digits(self, fact: str, *names: str, longest: int, signed: bool = False) -> str | None:
        """Return the first set variable as text. Raises FactsError unless it has one to `longest` digits."""
        value = self.raw(fact, *names)
        if value is not None and number(value.removeprefix("-" * signed), most=10**longest - 1) is None:
            raise _bad_variable(self.sources[fact], f"at most {longest} digits", value)
        return value

    def host(self, fact: str, *names: str, address: bool = False) -> str | None:
        """Return the first set variable. Raises FactsError unless it is a host name, or with `address` an address."""
        value = self.raw(fact, *names)
        fits = is_hostname_or_address if address else is_hostname
        if value is not None and not fits(value):
            raise _bad_variable(self.sources[fact], "a host name of letters, digits and . _ -", value)
        return value

    def number(self, fact: str, *names: str, least: int = 0, most: int = MOST_TASKS) -> int | None:
        """Return the first set variable as a number. Raises FactsError unless it is from `least` to `most`."""
        value = self.raw(fact, *names)
        if value is None:
            return None
        if (found := number(value, least=least, most=most)) is None:
            raise _bad_variable(self.sources[fact], f"a number from {least} to {most}", value)
        return found

    def raw(self, fact: str, *names: str) -> str | None:
        """Return the first set variable unchecked: the caller parses it."""
        for name in names:
            if value := self.environ.get(name, ""):
                self.sources[fact] = name
                return value
        return None


def _bad_variable(name: str, expected: str, value: str, *, secret: bool = False) -> FactsError:
    seen = "something else" if secret else f"{value[:80]!r}"
    return FactsError(f"{name} with {expected}", seen, f"unset {name} if it is left over from another job")


# Slurm's host lists: ``rack[1-2]n[01-04],gpu-a3`` stands for nine hosts.

# Linux limits an environment string to 128 KiB, so a longer list is not a scheduler's variable.
LONGEST_TEXT = 131_072
# The longest host name that DNS can carry, in characters (RFC 1035).
LONGEST_HOST = 253
_SEPARATORS = " \t\n,"  # those of scontrol
_BRACKET = re.compile(r"\[([^][]*)\]")
_ELEMENT = re.compile(r"(?:[A-Za-z0-9_.-]|\[[^][]*\])+")
# At most 18 digits: more than any real host name has, and few enough to stay cheap.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_LAST_NUMBER = re.compile(r"[0-9]{1,18}(?=[^0-9]*\Z)")


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
        if last := _LAST_NUMBER.search(host):
            groups.setdefault((host[: last.start()], host[last.end() :]), []).append(last[0])
        else:
            singles.append(host)
    return ",".join([*(_folded(*ends, numbers) for ends, numbers in groups.items()), *singles])


def _elements(text: str) -> list[tuple[list[str], list[str]]]:
    """Split a list at the separators outside of brackets.

    Returns for each element its literal parts and, one fewer, the contents of the brackets between them.
    """
    if strange := _ELEMENT.sub("", text).strip(_SEPARATORS):
        raise _bad("host names with matching brackets", f"{strange[0]!r} in {text[:80]!r}")
    parts = [_BRACKET.split(element) for element in _ELEMENT.findall(text)]
    return [(element[::2], element[1::2]) for element in parts]


def _ranges(inside: str) -> list[tuple[int, int, int]]:
    """Return (first, last, width in digits) for each range between two brackets."""
    found = []
    for part in inside.split(","):
        ends = _RANGE.fullmatch(part)
        if ends is None:
            raise _bad("ranges such as [1-3,07]", f"[{part[:40]}]")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if first > last:
            raise _bad("ascending ranges", f"[{part}]")
        found.append((first, last, len(ends[1])))
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
    longest = sum(map(len, literals)) + sum(max(r[2] for r in ranges) for ranges in brackets)
    if longest > LONGEST_HOST:
        raise _bad(f"host names of at most {LONGEST_HOST} characters", f"{longest}")
    columns = [
        [f"{number:0{width}d}" for first, last, width in ranges for number in range(first, last + 1)]
        for ranges in brackets
    ]
    hosts = []
    for turned in itertools.product(*reversed(columns[:-1]), *columns[-1:]):
        numbers = [*reversed(turned[:-1]), *turned[-1:], ""]
        hosts.append("".join(a + b for a, b in zip(literals, numbers, strict=True)))
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
    pairs = []
    for line in _lines(path):
        host, count, *_ = [*line.split(), ""]
        if (counted := number(count, most=MOST_TASKS)) is None:
            raise _bad_nodefile(path, f"{line[:80]!r}")
        pairs.append((host, counted))
    return _summed(path, pairs)


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

_COUNT = re.compile(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?")


def expand_counts(text: str, *, most: int = MOST_NODES) -> tuple[int, ...]:
    """Return one count for each node, in node order. Raises FactsError for invalid text or more than `most` nodes.

    The number of nodes is checked before anything is expanded.
    """
    parts = [_COUNT.fullmatch(part) for part in text.split(",", most)]
    pairs = [(int(part[1]), int(part[2] or 1)) for part in parts if part]
    nodes = sum(repeat for _, repeat in pairs)
    if len(pairs) != len(parts) or not 1 <= nodes <= most:
        expected = f"counts for 1 to {most} nodes such as 2(x3),1"
        raise FactsError(expected, f"{text[:80]!r}", "unset the variable if it is left over from another job")
    return tuple(count for count, repeat in pairs for _ in range(repeat))


# Nodes of launchers that number tasks but not nodes.


def node_rank_by_block(task_rank: int | None, local_rank: int | None, local_count: int | None) -> int | None:
    """Return the node's index if tasks fill one node after the other, or None if they do not.

    It is 0 for the node of task 0, and only for that one.
    """
    if task_rank is None or local_rank is None or not local_count or task_rank % local_count != local_rank:
        return None
    return task_rank // local_count


# The switches above this node, from the top down: one function and one row in SOURCES for each value of --order, whose
# choices are in settings.py.

SCHEDULER = "scheduler"
SEPARATOR = "/"
# The longest name in characters; the whole text must fit into a check-in (LONGEST_TOPOLOGY).
_MOST_LEVELS, _LONGEST_NAME = 8, 24


def switches_above(order: str, environ: Mapping[str, str]) -> str:
    """Return the switches as one text, empty if this order needs none or they are unknown.

    They are only compared, so a long or unprintable name is replaced by its hash.
    """
    if order == SCHEDULER:
        return ""
    return SEPARATOR.join(_plain(name) for name in SOURCES[order](environ)[:_MOST_LEVELS])


def _plain(name: str) -> str:
    if len(name) <= _LONGEST_NAME and name.isprintable() and SEPARATOR not in name:
        return name
    return sha256(name.encode(errors="replace")).hexdigest()[:16]


# Slurm's topology plugins: `spine.leaf1.node2` after the pattern `switch.switch.node`, or `b1.node1`.
#
# Without a plugin there is the node's name alone (srun(1), SLURM_TOPOLOGY_ADDR; 22.05 to 26.05).
def _slurm(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parts before the node's name, which may contain dots."""
    levels = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").count(".")
    parts = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".", levels)
    return tuple(parts[:levels]) if len(parts) == levels + 1 else ()


# A cloud's metadata service: one request to one link-local address, by no name and through no proxy.
METADATA = ("169.254.169.254", 80)
# Seconds to wait: the service answers from the host itself, and outside of clouds nothing answers.
WITHIN_S = 0.3
_MOST_BYTES = 16 * 1024


def _levels(where: str, header: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of these names up to the first missing one, or () without an answer in time."""
    try:
        found = values.from_json(_get(where, header))
    except (OSError, ValueError, RecursionError):
        return ()
    known: list[Any] = [found.get(name) if isinstance(found, dict) else None for name in names]
    return tuple(itertools.takewhile(lambda value: isinstance(value, str) and value, known))


def _get(where: str, header: str) -> bytes:
    """Return the body of a response. Raises OSError without one in time, ValueError for another status."""
    deadline = time.monotonic() + WITHIN_S
    with socket.create_connection(METADATA, WITHIN_S) as sock:
        sock.sendall(f"GET {where} HTTP/1.0\r\nHost: {METADATA[0]}\r\n{header}\r\n\r\n".encode())
        answer = b""
        while len(answer) <= _MOST_BYTES:
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            if not (data := sock.recv(4096)):
                break
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ")[1:2] != [b"200"] or len(answer) > _MOST_BYTES:
        raise ValueError(where)
    return body


# Values of --order besides SCHEDULER.
SOURCES: dict[str, Callable[[Mapping[str, str]], tuple[str, ...]]] = {
    "topology": _slurm,
    # Google Cloud's metadata: cluster, block and sub-block of this instance ("View instance topology" in its manual).
    "gcp": lambda _environ: _levels(
        "/computeMetadata/v1/instance/attributes/physical_host_topology",
        "Metadata-Flavor: Google",
        ("cluster", "block", "subBlock"),
    ),
    # Oracle Cloud's metadata: island, network block and local block of this host, if enabled for its tenancy.
    "oci": lambda _environ: _levels(
        "/opc/v2/host/rdmaTopologyData",
        "Authorization: Bearer Oracle",
        ("customerHPCIslandId", "customerNetworkBlock", "customerLocalBlock"),
    ),
}
