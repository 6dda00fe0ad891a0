"""The world as data: what is unknown is None, and a scope says what counts as a process."""

from mingle_hooks.view import Assignment, View, World


def test_a_process_is_a_node_or_a_task() -> None:
    """What nobody asked for is not there, and others can resolve this host's name."""
    view = View(World("a", 2, 8, "fd00::1", 29500, "0" * 16), Assignment(1, 4, 4, rank=5), "node", {})
    assert (view.processes, view.process, view.is_cpu_only, view.has_known_name) == (2, 1, False, True)
    assert (view._replace(scope="task").processes, view._replace(scope="task").process) == (8, 5)
    assert repr(view) == "<world a: node 1 of 2, 8 slots, rank 0 at [fd00::1]:29500>"
    view = view._replace(
        world=view.world._replace(nodes=None, size=None, master_addr="n1"), place=Assignment(*[None] * 3)
    )
    assert repr(view) == "<world a: node ? of ?, ? slots, rank 0 at n1:29500>"
