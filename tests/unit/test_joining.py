"""What a member's view is completed with, on the machine that the tests run on, and what needs no other member."""

import os
import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given, strategies as st
from support.members import KEYED
from support.recorded import STEP, assigned

from mingle_hooks import joining
from mingle_hooks.errors import ConflictError, MingleError, NotFoundError
from mingle_hooks.job import member_spec
from mingle_hooks.joining import MOST_AGE_S, join, members_of, reachable, rejoin_or_join, resolvable
from mingle_hooks.rendezvous import rendezvous
from mingle_hooks.rendezvous.member import Observer
from mingle_hooks.rendezvous.messages import Failure
from mingle_hooks.rendezvous.wire import Material
from mingle_hooks.view import Assignment, Member, View, World

NOBODY = "no-such-host.invalid"


@pytest.mark.parametrize("host", ["localhost", NOBODY])
def test_a_host_whose_name_does_not_resolve_is_in_the_roster_by_address(host: str) -> None:
    """What leads to this very node counts as none; an IPv6 address does not fit where a colon ends a host."""
    roster = (Member(0, host, "10.0.0.1", 2), Member(1, host, "fd00::2", 4), Member(2, "10.0.0.3", "10.0.0.3", 1))
    hosts = [member.host for member in reachable(roster)]
    assert hosts == ["10.0.0.1", host, "10.0.0.3"]


def test_names_wait_for_no_name_server_once_their_time_is_up() -> None:
    """Without time nobody is asked."""
    assert resolvable(["10.0.0.1"]) == {"10.0.0.1"}
    assert resolvable(["10.0.0.1"], timeout_s=0) == set()


SOURCES: dict[str, Any] = {
    "interface_of": lambda _address: "eth0",
    "active_rdma_ports": lambda: [("mlx5_0:1", "IB")],
    "has_accelerator": lambda _environ: False,
    "resolvable": lambda _hosts: set(),
    "addresses": SimpleNamespace(nccl_settings=lambda _environ: {"NCCL": "site"}),
}


@given(st.sets(st.sampled_from(["names", "iface", "hcas", "site", "cpu_only"])), st.integers(1, 2), st.integers(0, 1))
def test_a_view_has_what_its_frameworks_need(needed: set[str], nodes: int, hosts: int) -> None:
    """A scheduler's names of hosts are its own."""
    settings, facts = SimpleNamespace(frameworks=(), scope="node"), SimpleNamespace(hosts=["a"] * hosts)
    spec: Any = SimpleNamespace(settings=settings, facts=facts, binding=None, user_environ={})
    world = World("a", nodes, 2, "10.0.0.1", 1, "", (Member(0, "a", "10.0.0.1", 1),))
    with mock.patch.multiple(joining, needs=lambda _: needed, **SOURCES):
        seen = joining._with_network(spec, world, Assignment(0, 1, 0, "10.0.0.1"))
    wants_names = "names" in needed and nodes > 1
    assert (seen.place.iface, seen.hcas) == ("eth0" * ("iface" in needed) or None, ("mlx5_0:1",) * ("hcas" in needed))
    assert (seen.is_cpu_only, seen.site) == ("cpu_only" in needed, {"NCCL": "site"} if "site" in needed else {})
    assert seen.has_known_name == (not (wants_names and hosts))
    assert seen.world.roster[0].host == ("10.0.0.1" if wants_names and not hosts else "a")


def notes_of(kept: list[str]) -> Observer:
    """Return an observer that keeps what the user is told, and expects nothing else."""
    return cast("Observer", SimpleNamespace(note=kept.append, explain=None))


# Views that one process has alone.

TASK = {**STEP, "SLURM_NODEID": "1", "SLURM_PROCID": "1"}
SCRIPT = assigned("SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node[1-2] SLURM_TASKS_PER_NODE=1(x2) SLURM_NTASKS=2")
UNEVEN = {**SCRIPT, "SLURM_TASKS_PER_NODE": "3,1", "SLURM_NTASKS": "4", "CUDA_VISIBLE_DEVICES": ""}
GPU = {**UNEVEN, "CUDA_VISIBLE_DEVICES": "0"}


def view(environ: dict[str, str], options: dict[str, Any], notes: list[str] | None = None) -> View:
    """Return what --no-wait gives on a host without GPUs; without a key, and with one port to choose from."""
    options = {"insecure": True, "port_range": "29500-29500", **options}
    spec = member_spec({"HOME": "/nowhere", "CUDA_VISIBLE_DEVICES": "", **environ}, options)
    return join(spec, notes_of([] if notes is None else notes), no_wait=True)


@pytest.mark.parametrize(
    ("environ", "options", "shared", "own"),
    [
        (TASK, {}, (2, 2, "node1", 29500), (1, 1, None)),
        (TASK, {"host_suffix": ".ib"}, (2, 2, "node1.ib", 29500), (1, 1, None)),
        ({**TASK, "MASTER_PORT": "7"}, {"master": "a:9"}, (2, 2, "a", 7), (1, 1, None)),
        ({**TASK, "MASTER_ADDR": "b"}, {"master": "a:9", "slots": 4}, (2, 8, "b", 9), (1, 4, None)),
        (TASK, {"scope": "task"}, (2, 2, "node1", 29500), (1, 1, 0)),
        (SCRIPT, {}, (2, 2, "node1", 29500), (None, 1, 0)),
        (SCRIPT, {"frameworks": "lightning"}, (2, 2, "node1", 29500), (None, 1, None)),
        (UNEVEN, {}, (2, 4, "node1", 29500), (None, None, None)),
        (GPU, {}, (2, None, "node1", 29500), (None, None, None)),
        ({**GPU, "WORLD_SIZE": "9"}, {}, (2, 9, "node1", 29500), (None, None, None)),
    ],
)
def test_what_follows_from_the_job_alone_is_known_without_the_others(
    environ: dict[str, str], options: dict[str, Any], shared: tuple[object, ...], own: tuple[object, ...]
) -> None:
    """What may differ between the nodes is not guessed."""
    world, place = view(environ, options).world, view(environ, options).place
    assert (world.nodes, world.size, world.master_addr, world.master_port) == shared
    assert (place.node_rank, place.slots, place.local_rank) == own
    assert (place.rank_offset, place.rank) == (None, 1 if options.get("scope") else None)
    assert world.digest == view(environ, options).world.digest != view(environ, {**options, "id": "b"}).world.digest


def test_what_cannot_be_known_alone_is_refused_and_a_script_is_told_who_trains() -> None:
    notes: list[str] = []
    view(SCRIPT, {}, notes)
    assert notes[0].endswith(
        "would train alone here; to train on all nodes, try srun in front: srun mingle exec torchrun train.py"
    )
    for environ, options, says in (
        (TASK, {"order": "topology"}, "saw --no-wait; try leaving out"),
        ({}, {"id": "a", "nodes": "2"}, "rank 0's host from the scheduler"),
        ({"WORLD_SIZE": "3"}, {"alone": True}, "WORLD_SIZE=3, as exported; saw 1 slots"),
    ):
        with pytest.raises(MingleError, match=says):
            view(environ, options)


def test_the_port_of_a_world_of_one_is_held_for_its_command() -> None:
    held: list[socket.socket] = []
    seen = join(member_spec({"HOME": "/nowhere"}, {"id": "a", "nodes": "1"}), notes_of([]), held=held)
    with held[0]:
        assert held[0].getsockname()[1] == seen.world.master_port


def test_a_member_that_starts_again_has_its_place_while_rank_0_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an elastic world, for a month, and only what it has kept itself."""
    monkeypatch.setattr(joining, "HELLO_S", 0.01)  # the server below accepts nobody
    tmp_path.chmod(0o700)
    notes: list[str] = []

    def asks(rank: int = 1, name: str = "HOME", value: str = "/nowhere") -> bool:
        """Tell whether a member asks the others, who have this place for it."""
        fresh: Any = {"nodes": 2, "size": 2, "addr": "127.0.0.1", "port": port, "digest": "0" * 16, "epoch": 1}
        fresh |= {"rank": rank, "offset": rank, "own": "127.0.0.1"}
        spec = member_spec({"XDG_RUNTIME_DIR": str(tmp_path), name: value}, {"id": "a", "nodes": "2"})
        answer = rejoin_or_join(spec, Material(key.encode()), notes_of(notes), lambda: fresh)
        assert (answer["rank"], answer["port"]) == (rank, port)
        return answer is fresh

    key, elastic = "0123456789abcdef" * 4, {"id": "a", "nodes": "2", "frameworks": "torchrun-elastic"}
    of_elastic = member_spec({"MINGLE_KEY": key, "XDG_RUNTIME_DIR": str(tmp_path)}, elastic)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert [asks(0), asks(), asks(), asks()] == [True, True, False, False]
        assert set(notes) == {f"restarted: rank 1 of the running world at 127.0.0.1:{port}"}
        for name, wrong in (("MASTER_ADDR", "b"), ("MASTER_PORT", "1"), ("WORLD_SIZE", "3"), ("LOCAL_WORLD_SIZE", "2")):
            with pytest.raises(ConflictError, match=f"as in the running world; saw {wrong};"):
                asks(1, name, wrong)
        (file,) = tmp_path.glob("mingle-*/1")
        with pytest.raises(NotFoundError, match="saw a: gone;"):
            join(of_elastic, notes_of(notes), obstacle=Failure("command", ("a", "gone")))
        text = file.read_bytes()
        os.utime(file, (time.time(), time.time() - MOST_AGE_S - 60))
        assert asks()
        file.write_bytes(text.replace(b'"offset":1', b'"offset":0'))
        assert asks()
        file.chmod(0o640)
        assert [asks(), asks()] == [True, False]
        other = Path(shutil.copy2(file, file.with_name("0")))
        with pytest.raises(ConflictError, match="one member on this host; saw ranks 0, 1 of a running world"):
            asks()
        other.unlink()
    assert [asks(), asks(), asks(0), file.exists()] == [True, True, True, False]


# What a member asks the others, and what a script on the first node tells them without asking.

ANSWER = {"nodes": 2, "size": 2, "addr": "10.0.0.1", "port": 7, "digest": "0" * 16, "rank": 1, "offset": 1}
ANSWER |= {"own": "10.0.0.2", "roster": [[0, "node1", "10.0.0.1", 1], [1, "node2", "10.0.0.2", 1]], "spent": [1, 2]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have the others answer at once; give what they were asked."""
    found: list[Any] = []

    def meet(request: object, _observer: object) -> object:
        found.append(request)
        return ANSWER

    monkeypatch.setattr(rendezvous, "meet", meet)
    monkeypatch.setattr("mingle_hooks.files.record_process", found.append)
    monkeypatch.setattr(joining, "resolve", lambda *_: [])
    return found


@pytest.mark.parametrize(
    ("options", "more", "notes", "has_roster"),
    [
        ({}, {}, [], False),
        ({"frameworks": "deepspeed"}, {"command": None}, [], True),
        ({"insecure": True}, {"wants_roster": True}, ["--insecure: anyone on this network can join or break"], True),
        ({"scope": "task", "slots": "1"}, {"obstacle": Failure("unwritable", ("a", "b"))}, [], False),
    ],
)
def test_a_member_asks_with_what_it_is(
    asked: list[Any], options: dict[str, Any], more: dict[str, Any], notes: list[str], *, has_roster: bool
) -> None:
    """A command's node is compared with the others, and an uncertain obstacle is told to them."""
    said: list[str] = []
    spec = member_spec({"HOME": "/nowhere", **KEYED}, {"id": "a", "nodes": "2", **options})
    seen = join(spec, notes_of(said), **more)
    job, request = asked
    assert (job, request.wants_roster, request.obstacle, request.held) == (None, has_roster, more.get("obstacle"), None)
    assert callable(request.node_facts) == ("command" not in more)
    assert [note[:49] for note in said] == [note[:49] for note in notes]
    assert seen.world[:6] == ("a", 2, 2, "10.0.0.1", 7, "0" * 16)
    assert (seen.place[:3], seen.place.address, seen.durations_ms) == ((1, 1, 1), "10.0.0.2", (1, 2))
    assert (seen.place.local_rank, seen.place.rank) == ((0, 1) if "scope" in options else (None, None))


ON_FIRST = {**SCRIPT, "SLURMD_NODENAME": "node1"}
LOCAL, DEBIAN, FAR = ["127.0.0.1"], ["127.0.1.1"], ["10.0.0.9"]


@pytest.mark.parametrize(
    ("environ", "own", "last", "iface", "batch"),
    [
        (ON_FIRST, FAR, FAR, None, (300, "1")),
        (ON_FIRST, [*DEBIAN, *FAR], FAR, None, (300, "1")),
        (ON_FIRST, DEBIAN, FAR, "eth0", (300, "1")),
        (ON_FIRST, LOCAL, FAR, "eth0", None),
        (ON_FIRST, ["::1"], FAR, "eth0", None),
        *((ON_FIRST, FAR, last, None, None) for last in ([], DEBIAN, [*DEBIAN, *FAR])),
        ({**ON_FIRST, "CUDA_VISIBLE_DEVICES": "0"}, FAR, FAR, None, (300, "gpu")),
        ({**UNEVEN, "SLURMD_NODENAME": "node1"}, FAR, FAR, None, (300, "")),
        ({**SCRIPT, "SLURMD_NODENAME": "login"}, DEBIAN, FAR, None, (300, "1")),
    ],
)
def test_a_script_on_the_first_node_tells_torchrun_where_it_is(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], own: list[str], last: list[str], iface: str, batch: object
) -> None:
    """By an address of its own and a port that is held; names only where they lead to the hosts."""
    monkeypatch.setattr(joining, "resolve", lambda host, _seconds: {"node1": own, "node2": last}[host])
    monkeypatch.setattr(joining, "interface_of", lambda address: {"127.0.0.1": "eth0", "node1": "eth0"}[address])
    monkeypatch.setattr("mingle_hooks.net.addresses.usable", lambda *_, **__: [SimpleNamespace(host="127.0.0.1"), None])
    held: list[socket.socket] = []
    spec = member_spec({"HOME": "/nowhere", "CUDA_VISIBLE_DEVICES": "", **environ}, {"insecure": True})
    seen = join(spec, notes_of([]), held=held)
    is_first = environ["SLURMD_NODENAME"] == "node1"
    assert [sock.getsockname() for sock in held] == [("127.0.0.1", seen.world.master_port)] * is_first
    for sock in held:
        sock.close()
    assert seen.world.master_addr == ("127.0.0.1" if is_first else "node1")
    assert (seen.place.iface, seen.batch, seen.place.node_rank) == (iface, batch, None)
    assert join(spec, notes_of([])).world[:4] == seen.world[:4]


ALONE = {**ON_FIRST, "SLURM_JOB_NODELIST": "node1", "SLURM_TASKS_PER_NODE": "1", "SLURM_NTASKS": "1"}
BOTH = [(0, "node1", "", 1), (1, "node2", "", 1)]
TOLD = [(0, "node1", "10.0.0.1", 1), (1, "node2", "10.0.0.2", 1)]


@pytest.mark.parametrize(
    ("environ", "addresses", "rows"),
    [
        *((ON_FIRST, addresses, BOTH) for addresses in ("unused", "shown")),
        (
            ON_FIRST,
            "needed",
            "an address from every host; saw a shell that runs on one host only; try `srun mingle hosts`",
        ),
        *((ALONE, addresses, BOTH[:1]) for addresses in ("unused", "needed")),
        *((TASK, addresses, BOTH if addresses == "unused" else TOLD) for addresses in ("unused", "shown", "needed")),
        (
            {**ON_FIRST, "CUDA_VISIBLE_DEVICES": "0"},
            "unused",
            "the slots of every host from the scheduler; saw 1 here (gpus)",
        ),
        ({**TASK, "CUDA_VISIBLE_DEVICES": "0"}, "unused", TOLD),
    ],
)
def test_the_members_are_the_schedulers_where_it_knows_them(
    asked: list[Any], environ: dict[str, str], addresses: Any, rows: Any
) -> None:
    """Else they are asked, each for its address, and have the scheduler's names."""
    spec = member_spec({"HOME": "/nowhere", "CUDA_VISIBLE_DEVICES": "", **environ}, {"insecure": True})
    try:
        found = members_of(spec, notes_of([]), addresses)
    except MingleError as error:
        refused = str(error).removeprefix("expected ")
    else:
        refused = ""
        assert ([*found.members], [*found.by_own_names]) == (rows, TOLD if asked else [])
    assert refused.startswith(rows) if isinstance(rows, str) else not refused
    assert [(request.wants_roster, request.node_facts) for request in asked[1:]] == [(True, None)] * (rows == TOLD)
