"""What a scheduler tells a process about its job, in one shape for all schedulers."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import FactsError

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a person may ask for, a scheduler may tell.
MOST_NODES, LONGEST_ID = values.MOST_NODES, values.LONGEST_ID
# Slots on one node; the largest nodes have some hundred processors.
MOST_SLOTS = 4096
# Hosts to ask when rank 0 may be on any of them: enough for real uses, few enough to ask all at once.
MOST_LEADER_HOSTS = 64

# Where no platform tells it: what JobFacts.without_nodes holds.
COUNT_MEMBERS = (
    "the number of members",
    "none",
    "--nodes N, MINGLE_NODES or NNODES; or --alone for this node only",
)


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


def _within(what: str, value: int | None, count: int | None, source: str, remedy: str) -> None:
    if value is None:
        return
    if value < 0 or (count is not None and value >= count):
        limit = "0 or more" if count is None else f"0 to {count - 1}"
        raise FactsError(f"a {what} of {limit}", f"{value} ({source})", remedy)
