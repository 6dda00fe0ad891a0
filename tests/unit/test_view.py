"""The world as data: what is unknown is None, and a scope says what counts as a process."""

import pytest

from mingle_hooks.settings import Scope
from mingle_hooks.view import Assignment, View, World, endpoint

WORLD = World("a", 2, 8, "10.0.0.1", 29500, "0" * 16)


@pytest.mark.parametrize(("scope", "processes", "process"), [("node", 2, 1), ("task", 8, 5)])
def test_a_process_is_a_node_or_a_task(scope: Scope, processes: int, process: int) -> None:
    view = View(WORLD, Assignment(1, 4, 4, rank=5), scope, {})
    assert (view.processes, view.process, view.endpoint) == (processes, process, "10.0.0.1:29500")
    assert repr(view) == "<world a: node 1 of 2, 8 slots, rank 0 at 10.0.0.1:29500>"


def test_what_nobody_asked_for_is_not_there() -> None:
    """Neither an interface nor a port of RDMA; others can resolve this host's name."""
    view = View(WORLD._replace(nodes=None, size=None), Assignment(None, None, None), "node", {})
    assert (view.hcas, view.is_cpu_only, view.site, view.gpu_variables, view.batch) == ((), False, {}, {}, None)
    assert (view.has_known_name, view.place.iface, view.world.roster, view.processes) == (True, None, (), None)
    assert repr(view) == "<world a: node ? of ?, ? slots, rank 0 at 10.0.0.1:29500>"
    assert [endpoint("fd00::1", 7), endpoint("n1", 7)] == ["[fd00::1]:7", "n1:7"]
