"""Host lists as other programs read them."""

from __future__ import annotations

import json

import pytest

from mingle_hooks.errors import ConflictError, FactsError
from mingle_hooks.export import hostfiles
from mingle_hooks.world import Member

# node2 is two members, as two replicas on one host are.
MEMBERS = (
    Member(0, "node1", "10.0.0.1", 2),
    Member(1, "node2", "10.0.0.2", 1),
    Member(2, "node2", "10.0.0.2", 1),
    Member(3, "node3", "fd00::3", 1),
)
WANTED = {
    "etc": "10.0.0.1 node1\n10.0.0.2 node2\nfd00::3 node3\n",
    "mpi": "node1 slots=2\nnode2 slots=2\nnode3 slots=1\n",
    "mpich": "node1:2\nnode2:2\nnode3:1\n",
    "deepspeed": "node1 slots=2\nnode2 slots=2\nnode3 slots=1\n",
    "horovod": "node1:2,node2:2,node3:1\n",
    "nodefile": "node1\nnode1\nnode2\nnode2\nnode3\n",
}


@pytest.mark.parametrize("name", WANTED)
def test_each_program_gets_the_hosts_in_its_own_format(name: str) -> None:
    """Each row of the table has its file, and each host stands in it in the order of the ranks."""
    assert hostfiles.text(name, MEMBERS) == WANTED[name]


def test_json_has_all_fields_and_null_for_an_unknown_address() -> None:
    assert {*WANTED, "json"} == {*hostfiles.FORMATS}
    rows = json.loads(hostfiles.text("json", [*MEMBERS, Member(4, "node1", "", 4)]))
    assert [tuple(row.values()) for row in rows] == [*map(tuple, MEMBERS), (4, "node1", None, 4)]
    assert list(rows[0]) == ["rank", "host", "address", "slots"]


def test_a_host_has_all_its_names_in_one_line_of_etc_hosts() -> None:
    """A container calls itself otherwise than the scheduler calls its host."""
    others = [MEMBERS[0]._replace(host="3f2a"), MEMBERS[1]._replace(host="node2"), MEMBERS[3]._replace(host="same")]
    text = hostfiles.text("etc", [*MEMBERS, *others, MEMBERS[0]._replace(host="same")])
    assert text == "10.0.0.1 node1 3f2a\n10.0.0.2 node2\nfd00::3 node3\n"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        *(("node2", address) for address in ("127.0.0.1", "127.0.1.1", "::1", "fe80::1%3", "")),
        *((name, "10.0.0.2") for name in ("localhost", "localhost.localdomain")),
    ],
)
def test_what_only_one_host_can_use_is_in_no_etc_hosts(name: str, address: str) -> None:
    """Written there, every host would reach itself by the other's name."""
    assert hostfiles.text("etc", [MEMBERS[0], Member(1, name, address, 1)]) == "10.0.0.1 node1\n"


def test_two_hosts_that_only_have_the_same_name_are_refused() -> None:
    """A program would reach one of them, and take it for the other."""
    with pytest.raises(ConflictError, match=r"worker at 10.0.0.1 and 10.0.0.2"):
        hostfiles.text("etc", [Member(rank, "worker", f"10.0.0.{rank + 1}", 1) for rank in range(2)])


@pytest.mark.parametrize("name", ["a b", "a\n10.0.0.9 bank.example", "a#b", "-a", ""])
def test_nothing_but_a_hosts_name_gets_into_etc_hosts(name: str) -> None:
    """All programs of the host believe what stands there."""
    with pytest.raises(FactsError):
        hostfiles.text("etc", [Member(0, name, "10.0.0.1", 1)])
