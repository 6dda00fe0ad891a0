"""What a scheduler's directive cannot carry, refused by the field's name, with a value that works where known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mingle_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.render.job import Job


def refused(field: str, value: object, can: str, remedy: str = "") -> UsageError:
    """Return the error for a field whose value the scheduler's directive cannot carry, with the `remedy` if known."""
    seen = f"--{field}" if value is True else repr(value)
    return UsageError(f"--{field} as {can}", seen, remedy or f"another value for --{field}, or leaving it out")


def refused_name(name: str, can: str) -> UsageError:
    """Return the error for a job's name, with the nearest one that every scheduler takes."""
    kept = re.sub("[^A-Za-z0-9_.-]", "_", name)[:200]
    return refused("job-name", name, can, f"--job-name {kept if kept[:1].isalpha() else f'job{kept}'}")


def refused_groups(job: Job) -> UsageError:
    """Return the error for groups of nodes where the scheduler has none."""
    nodes = "+".join(str(group.nodes) for group in job.groups)
    return refused("nodes", nodes, "one group of nodes", f"--nodes {job.nodes}, and one value for each other option")


def refused_array(array: str, can: str, least: int) -> UsageError:
    """Return the error for an array, with its first range: from `least`, and as many at once."""
    found = re.search(r"([0-9]+)-([0-9]+)(:[0-9]+)?", array)
    if not found or int(found[1]) >= int(found[2]):
        return refused("array", array, can, "leaving --array out, or a range such as --array 1-2")
    more = max(0, least - int(found[1]))
    works = f"--array {int(found[1]) + more}-{int(found[2]) + more}{found[3] or ''}{''.join(array.partition('%')[1:])}"
    return refused("array", array, can, works + (", and another script for the rest" if "," in array else ""))


def limited(array: str) -> str:
    """Return an array with 1 or more jobs at once: by %0, which is no limit, Slurm alone knows what is meant."""
    if re.search("%0+$", array):
        works = f"--array {array.partition('%')[0]}, which is all at once"
        raise refused("array", array, "ranges with 1 or more jobs at once", works)
    return array


def matching(field: str, value: str, pattern: re.Pattern[str], can: str, works: str = "") -> str:
    """Return the value when it has the form that the directive needs, or else say which value `works`.

    Raises UsageError.
    """
    if not pattern.fullmatch(value):
        raise refused(field, value, can, works and f"--{field} {works}")
    return value


def letters(job: Job, known: Mapping[str, str]) -> str:
    """Return the letters for the events that mail is sent on, each once. Raises UsageError."""
    for event in job.mail_type:
        if event not in known:
            works = dict.fromkeys(event if event in known else "FAIL" for event in job.mail_type)
            raise refused("mail-type", event, ", ".join(known), f"--mail-type {','.join(works)}")
    return "".join(dict.fromkeys("".join(known[event] for event in job.mail_type)))
