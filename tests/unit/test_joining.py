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
from support.recorded import STEP, assigned

from mingle_hooks import joining
from mingle_hooks.errors import ConflictError, MingleError, NotFoundError
from mingle_hooks.job import member_spec
from mingle_hooks.joining import MOST_AGE_S, join, reachable, rejoin_or_join, resolvable
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
