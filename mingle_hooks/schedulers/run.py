"""What `mingle run` says of one attempt: who takes part, and in which order, whatever the scheduler started.

MINGLE_RUN holds it as one JSON object, whose names are those of JobFacts. What it leaves out is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks import values
from mingle_hooks.errors import FactsError
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.schedulers.facts import LONGEST_ID, MOST_NODES, MOST_SLOTS, MOST_TASKS, JobFacts

VARIABLE = "MINGLE_RUN"
_TEXTS = {"job_id": LONGEST_ID, "step": LONGEST_ID}
_NUMBERS = {
    "restarts": MOST_TASKS,
    "nodes": MOST_NODES,
    "node_rank": MOST_NODES - 1,
    "task_rank": MOST_TASKS,
    "task_count": MOST_TASKS,
    "local_rank": MOST_SLOTS - 1,
    "local_count": MOST_SLOTS,
}


def placed(found: JobFacts, environ: Mapping[str, str]) -> JobFacts:
    """Return a scheduler's facts with what the run says. Raises FactsError."""
    text = environ.get(VARIABLE)
    if not text:
        return found
    try:
        said = values.from_json(text.encode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not said.keys() <= {*_TEXTS, *_NUMBERS, "hosts"}:
        raise _bad("one JSON object from `mingle run`")
    fields: dict[str, object] = {name: _checked(name, value) for name, value in said.items()}
    hosts = fields.get("hosts", ())
    fields |= {"leader_hosts": hosts[:1]} if isinstance(hosts, tuple) else {}
    sources = {**found.sources, **dict.fromkeys(fields, VARIABLE)}
    none = {"slot": None, "is_batch": False, "nodes_of_job": None, "tasks_per_node": ()}
    return found._replace(**{**none, **fields, "sources": sources})


def _checked(name: str, value: object) -> object:
    if name in _TEXTS and isinstance(value, str) and value.isprintable() and len(value) <= _TEXTS[name]:
        return value
    if name in _NUMBERS and type(value) is int and 0 <= value <= _NUMBERS[name]:
        return value
    if name == "hosts" and isinstance(value, list) and len(value) <= MOST_NODES:
        hosts = [host for host in value if isinstance(host, str) and is_hostname(host)]
        if hosts == value:
            return tuple(hosts)
    raise _bad(f"a valid {name} from `mingle run`")


def _bad(expected: str) -> FactsError:
    return FactsError(expected, f"something else in {VARIABLE}", f"unset {VARIABLE}, which only `mingle run` sets")
