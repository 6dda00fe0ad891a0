"""Where a task is, for launchers that number tasks but not nodes."""

from __future__ import annotations


def nodes(task_count: int | None, local_count: int | None) -> int | None:
    """Return the number of nodes if each has as many tasks as this one, or None where that cannot be.

    Where nodes differ, they come to different numbers, so no world can form with a wrong one.
    """
    if not task_count or not local_count or task_count % local_count:
        return None
    return task_count // local_count


def node_rank(task_rank: int | None, local_rank: int | None, local_count: int | None) -> int | None:
    """Return the node's index if tasks fill one node after the other, or None where they do not.

    The node of task 0, and only that, is always 0.
    """
    if task_rank is None or local_rank is None or not local_count or task_rank % local_count != local_rank:
        return None
    return task_rank // local_count
