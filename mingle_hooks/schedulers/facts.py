"""What a scheduler tells a process about its job, in one shape for all schedulers."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import FactsError
from mingle_hooks.net.addresses import is_hostname, is_hostname_or_address
from mingle_hooks.values import number

# What a person may ask for, a scheduler may tell.
MOST_NODES, LONGEST_ID = values.MOST_NODES, values.LONGEST_ID
# Slots on one node; the largest nodes have some hundred processors.
MOST_SLOTS = 4096
# Hosts to ask when rank 0 may be on any of them: enough for real uses, few enough to ask all at once.
MOST_LEADER_HOSTS = 64

# Where no platform tells it: what JobFacts.without_nodes holds.
COUNT_MEMBERS = ("the number of members", "none", "--nodes N, MINGLE_NODES or NNODES; or --alone for this node only")


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
    # Where rank 0 may be, best guess first. hosts[:1] unless the scheduler places rank 0 elsewhere.
    leader_hosts: tuple[str, ...] = ()
    task_rank: int | None = None
    task_count: int | None = None
    local_rank: int | None = None
    local_count: int | None = None
    # This process's place among the node's slots if there is one process in each, which only who starts them knows.
    slot: int | None = None
    # The nodes of the job, where a launcher such as mpirun started its processes on fewer of them.
    nodes_of_job: int | None = None
    # Tasks on each node in node-rank order, or () when not known.
    tasks_per_node: tuple[int, ...] = ()
    # Slots that the scheduler granted on this node.
    cpus: int | None = None
    gpus: int | None = None
    # The batch script of a job with several nodes, or salloc's shell: it runs on one host only, which need not be one
    # of the job's, and must not wait for the others.
    is_batch: bool = False
    # This host's name as the scheduler calls it.
    host: str | None = None
    # What all processes of one run of the job have, and those of another run do not (PBS_JOBCOOKIE), or None. Never
    # shown, as PBS starts tasks for whoever knows it; and no key, as it can be guessed.
    cookie: str | None = None
    # All nodes of the job have the user's home, so a key that is made there is everybody's. Not so for pods.
    shares_homes: bool = True
    # What stands in front of a command to start it on every node, such as srun; empty where only a script can.
    on_every_node: str = ""
    # What to say, as an error's three parts, where nobody has said how many nodes there are; empty: rank 0 may know.
    without_nodes: tuple[str, ...] = ()
    # For --explain: field name -> the variable or file that it was read from.
    sources: Mapping[str, str] = MappingProxyType({})


class JobFacts(_Fields):
    """What is known of the job, the step and this process; None or empty where it is not known.

    A *member* is a node of the step. `hosts` holds the step's hosts in node-rank order, each once.
    `node_rank` counts from 0 within the step. `task_rank` and `task_count` count the step's tasks
    (processes) over all nodes, `local_rank` and `local_count` those on this node.
    Two are equal when all but their sources are.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **fields: Any) -> JobFacts:
        """Make facts that do not contradict themselves, so that nothing later has to look."""
        facts = super().__new__(cls, *args, **fields)
        facts._check()
        return facts

    def _replace(self, **fields: Any) -> JobFacts:
        return JobFacts(**{**self._asdict(), **fields})  # checked again

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobFacts) and self[:-1] == other[:-1]

    def __hash__(self) -> int:
        return hash(self[:-1])

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True) if name != "cookie")
        return f"JobFacts({', '.join(shown)})"

    def by_itself(self) -> JobFacts:
        """Return the facts as they were if the job had this node only."""
        return self._replace(
            nodes=1,
            node_rank=0,
            hosts=(),
            leader_hosts=(),
            nodes_of_job=None,
            task_rank=self.local_rank,
            task_count=self.local_count,
            tasks_per_node=(self.local_count,) if self.local_count else (),
            is_batch=False,
        )

    def _check(self) -> None:
        """Refuse facts that contradict themselves, so that nothing later has to look."""
        if self.nodes is not None and not 1 <= self.nodes <= MOST_NODES:
            raise FactsError(f"1 to {MOST_NODES} nodes", f"{self.nodes} ({self._from('nodes')})", "--nodes N")
        _within("node rank", self.node_rank, self.nodes, self._from("node_rank"), "--rank R")
        _within("task rank", self.task_rank, self.task_count, self._from("task_rank"), "--scope node")
        _within("slot", self.slot, self.local_count, self._from("slot"), "--scope node")
        _within("local rank", self.local_rank, self.local_count, self._from("local_rank"), "--scope node")
        if self.hosts and self.nodes is not None and len(self.hosts) != self.nodes:
            raise FactsError(
                f"{self.nodes} hosts ({self._from('nodes')})",
                f"{len(self.hosts)} ({self._from('hosts')})",
                "the same command with --nodes, or unset the variable that is left over from another job",
            )

    def _from(self, name: str) -> str:
        return self.sources.get(name, self.scheduler)


def _within(name: str, value: int | None, count: int | None, source: str, remedy: str) -> None:
    if value is None:
        return
    if value < 0 or (count is not None and value >= count):
        limit = "0 or more" if count is None else f"0 to {count - 1}"
        raise FactsError(f"a {name} of {limit}", f"{value} ({source})", remedy)


# Reading a scheduler's variables: each value is parsed into its type, and remembers where it came from.

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


# Where this node is on the network: the switches above it, from the top down, by one function and one row in SOURCES
# for each source; `--order` names it, of which settings.py has the choices.

SCHEDULER = "scheduler"
SEPARATOR = "/"
# In characters; all of it has to fit into a check-in (LONGEST_TOPOLOGY).
_MOST_LEVELS, _LONGEST_NAME = 8, 24


def switches_above(order: str, environ: Mapping[str, str]) -> str:
    """Return the switches as one text; empty where this order needs none, or nobody tells them.

    Only whether two are the same matters: a name that is long or odd is told by its hash.
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
    """Return what stands before the node's name, which may have dots of its own."""
    levels = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").count(".")
    parts = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".", levels)
    return tuple(parts[:levels]) if len(parts) == levels + 1 else ()


# A cloud's metadata service: one request to one link-local address, by no name and through no proxy.
METADATA = ("169.254.169.254", 80)
# The service answers from the host itself; where there is none, nothing must wait for it.
WITHIN_S = 0.3
_MOST_BYTES = 16 * 1024


def levels(where: str, header: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of these names, up to the first that is not told; nothing without an answer in time."""
    try:
        found = values.from_json(_get(where, header))
    except (OSError, ValueError, RecursionError):
        return ()
    known: list[Any] = [found.get(name) if isinstance(found, dict) else None for name in names]
    return tuple(itertools.takewhile(lambda value: isinstance(value, str) and value, known))


def _get(where: str, header: str) -> bytes:
    """Return a body; OSError where none comes in time, ValueError where it is no plain answer."""
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


# Google Cloud's metadata: cluster, block and sub-block of this instance ("View instance topology" in its manual).
GCP_PATH = "/computeMetadata/v1/instance/attributes/physical_host_topology"
GCP_HEADER = "Metadata-Flavor: Google"


def _gcp(_environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the levels that are told, from the top down."""
    return levels(GCP_PATH, GCP_HEADER, ("cluster", "block", "subBlock"))


# Oracle Cloud's metadata: island, network block and local block of this host, where its tenancy has them enabled.
OCI_PATH = "/opc/v2/host/rdmaTopologyData"
OCI_HEADER = "Authorization: Bearer Oracle"


def _oci(_environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the levels that are told, from the top down."""
    return levels(OCI_PATH, OCI_HEADER, ("customerHPCIslandId", "customerNetworkBlock", "customerLocalBlock"))


# What --order may say besides SCHEDULER.
SOURCES = {"topology": _slurm, "gcp": _gcp, "oci": _oci}
