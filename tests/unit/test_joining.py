"""What a member's view is completed with, on the machine that the tests run on, and what needs no other member."""

import base64
import errno
import os
import shutil
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given, strategies as st
from support.executables import executable
from support.members import KEYED, OTHER_KEY
from support.recorded import STEP, assigned
from support.running import open_files

from mingle_hooks import joining
from mingle_hooks.errors import ConflictError, MingleError, NotFoundError, SecretError
from mingle_hooks.files import network_type
from mingle_hooks.job import member_spec
from mingle_hooks.joining import (
    MOST_AGE_S,
    PUBLIC_KEY,
    Key,
    find_key,
    fresh_key,
    held_keys,
    join,
    members_of,
    reachable,
    rejoin_or_join,
    resolvable,
)
from mingle_hooks.rendezvous import rendezvous
from mingle_hooks.rendezvous.member import Observer
from mingle_hooks.rendezvous.messages import Assignment, Failure, Member, View, World
from mingle_hooks.rendezvous.wire import Material
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import load

NOBODY = "no-such-host.invalid"


@pytest.mark.parametrize("host", ["localhost", NOBODY])
def test_a_host_whose_name_does_not_resolve_is_in_the_roster_by_address(host: str) -> None:
    """What leads to this very node counts as none; an IPv6 address does not fit where a colon ends a host."""
    roster = (Member(0, host, "10.0.0.1", 2), Member(1, host, "fd00::2", 4), Member(2, "10.0.0.3", "10.0.0.3", 1))
    hosts = [member.host for member in reachable(roster)]
    assert hosts == ["10.0.0.1", host, "10.0.0.3"]


def test_names_wait_for_no_name_server_once_their_time_is_up() -> None:
    """Without time left no name server is asked."""
    assert resolvable(["10.0.0.1"]) == {"10.0.0.1"}
    assert resolvable(["10.0.0.1"], timeout_s=0) == set()


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (threading.Thread, "start", RuntimeError("can't start new thread")),
        (socket, "socketpair", OSError(errno.EMFILE, "too many")),
    ],
)
def test_a_member_of_a_formed_world_does_not_fail_where_no_name_can_be_looked_up(
    owner: object, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A low `ulimit -u` allows no thread: its launchers get addresses."""
    monkeypatch.setattr(owner, name, mock.Mock(side_effect=error))
    assert resolvable(["10.0.0.1"]) == set()


SOURCES: dict[str, Any] = {
    "interface_of": lambda _address: "eth0",
    "active_rdma_ports": lambda: ("mlx5_0:1",),
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


def test_the_port_follows_from_the_key_where_there_is_one() -> None:
    """Every member computes the same, and nobody else can predict it."""
    options = {"insecure": None, "port_range": "20000-24999"}
    ports = [view({**TASK, **key}, options).world.master_port for key in ({}, KEYED, OTHER_KEY) * 2]
    assert (ports[:3], len({*ports})) == (ports[3:], 3)


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
    """A member of an elastic world keeps its place for a month, in a file that only it may write."""
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
        with (
            mock.patch.object(joining, "_is_served", wraps=joining._is_served) as probed,
            pytest.raises(ConflictError, match="one member on this host; saw ranks 0, 1 of a running world"),
        ):
            asks()
        assert probed.call_count == 1  # as both are of one endpoint, which may be slow to answer
        with monkeypatch.context() as patch:  # another member of this host starts again, too, and is faster
            patch.setattr(joining, "_is_served", lambda *_: other.unlink(missing_ok=True))
            assert asks()
    assert [asks(), asks(), asks(0), file.exists()] == [True, True, True, False]


def test_a_running_world_s_name_that_no_server_resolves_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """MASTER_ADDR may be a name, and a resolver may take a minute."""
    hangs = threading.Event()
    monkeypatch.setattr(joining, "RESOLVE_S", 0.01)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hangs.wait() and [])
    try:
        assert not joining._is_served("node1", 1, cast("Any", None), member_spec({}, {"id": "a", "nodes": "2"}))
    finally:
        hangs.set()


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
    """It has an address of its own and a held port; names count only if they lead to the hosts."""
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
        ({**ON_FIRST, "LOCAL_WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": "0"}, "unused", BOTH),
        ({**SCRIPT, "SLURMD_NODENAME": "login"}, "unused", "the slots of every host from the scheduler"),
    ],
)
def test_the_members_are_the_schedulers_where_it_knows_them(
    asked: list[Any], environ: dict[str, str], addresses: Any, rows: Any
) -> None:
    """Otherwise each member gives its address, and all have the scheduler's names."""
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


# Keys are real files, raced for by real processes.

TEXT = "00112233445566778899aabbccddeeff" * 2
PINNED, OTHER, VARIABLE, PROLOGS, HOMES = (f"{digit}123456789abcdef" * 4 for digit in "89abc")
COOKIE = "36A8E3141C32183E0A696B100289B68F"
NO_JOB, IN_SLURM = detect({}), JobFacts("slurm", job_id="5")


class Place:
    """A home, a /run/mingle and a mount table of this test's own."""

    def __init__(self, root: Path) -> None:
        self.home, self.run, self.mounts = root / "home", root / "run", root / "mountinfo"
        self.home.mkdir()
        self.run.mkdir()
        self.mounts.write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n")
        self.of_home = self.home / ".config" / "mingle" / "key"

    @staticmethod
    def put(path: Path, text: str = TEXT, mode: int = 0o600) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        path.chmod(mode)
        return path

    def put_for_job(self, job: str, text: str = PROLOGS) -> Path:
        path = self.put(self.run / job / "key", text, 0o400)
        path.parent.chmod(0o700)
        return path

    def _given(self, facts: JobFacts, environ: dict[str, str] | None, options: dict[str, Any]) -> dict[str, Any]:
        environ = {"HOME": str(self.home)} if environ is None else environ
        settings = load(environ, options, system_file=f"{self.home}/absent")
        places = {"run_root": str(self.run), "mountinfo": str(self.mounts)}
        return {"facts": facts, "settings": settings, "environ": environ, **places}

    def find(self, facts: JobFacts = NO_JOB, environ: dict[str, str] | None = None, **options: Any) -> Key:
        return find_key(**self._given(facts, environ, options))

    def held(
        self, facts: JobFacts = NO_JOB, environ: dict[str, str] | None = None, *, is_new: bool = False, **options: Any
    ) -> list[bytes]:
        return [key.material for key in held_keys(**self._given(facts, environ, options), is_new=is_new)]

    def refusal(self, *args: Any, **options: Any) -> SecretError:
        with pytest.raises(SecretError) as caught:
            self.find(*args, **options)
        assert TEXT not in str(caught.value)
        return caught.value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return places without any key."""
    return Place(tmp_path)


def test_the_first_key_that_applies_is_used(place: Place) -> None:
    """Insecure, option, MINGLE_KEY, key file by variable, the job's, the home's."""
    pinned, other = (str(place.put(place.home / name, text)) for name, text in (("given", PINNED), ("other", OTHER)))
    place.put_for_job("7.ctl")
    place.put(place.of_home, HOMES)
    job, only_file = JobFacts("pbs", job_id="7.ctl", cookie=COOKIE), {"MINGLE_KEY_FILE": other}
    both = {"MINGLE_KEY": VARIABLE, **only_file}
    assert place.find(job, both, key_file=pinned, insecure=True).material == PUBLIC_KEY
    found = [place.find(job, both, key_file=pinned), place.find(job, both), place.find(job, only_file), place.find(job)]
    found.append(place.find(job._replace(job_id="8.ctl")))
    assert [key.material.decode() for key in found] == [PINNED, VARIABLE, OTHER, PROLOGS, HOMES]


def test_all_keys_of_the_user_are_held_unless_one_is_given(place: Place) -> None:
    """The one that everybody knows is none of them, and none is made."""
    assert place.held(IN_SLURM) == place.held(insecure=True) == []
    place.put(place.of_home, HOMES)
    place.put_for_job("5")
    assert place.held() == place.held(insecure=True) == [HOMES.encode()]
    assert place.held(IN_SLURM) == [PROLOGS.encode(), HOMES.encode()]
    assert place.held(IN_SLURM, {"MINGLE_KEY": PINNED}) == [PINNED.encode()]
    place.of_home.chmod(0o644)
    with pytest.raises(SecretError, match="a private key"):
        place.held()


def test_a_run_makes_the_key_in_the_home_where_a_member_would(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain machine gets no key, and a home that cannot be written to is no failure."""
    assert place.held(is_new=True) == place.held(IN_SLURM) == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lambda *_paths: os.open("/no/such/file", os.O_RDONLY))
        assert place.held(IN_SLURM, is_new=True) == []
        assert f"to create a key in {place.of_home.parent}" in place.refusal(IN_SLURM).expected
        assert os.listdir(place.of_home.parent) == []
    made = place.held(IN_SLURM, is_new=True)
    assert [place.of_home.read_bytes().strip()] == made == place.held(IN_SLURM)


@pytest.mark.parametrize("facts", [JobFacts("pbs", job_id="7.ctl", cookie=COOKIE), JobFacts("slurm")])
def test_without_a_home_or_a_job_key_there_is_no_key_to_make(place: Place, facts: JobFacts) -> None:
    """No key follows from PBS's cookie, which others can work out; the message says what to do."""
    refusal = place.refusal(facts, {})
    assert "none given" in refusal.seen
    assert "MINGLE_KEY" in refusal.remedy


@pytest.mark.parametrize("shared", [True, False])
def test_a_node_to_whose_job_the_hooks_gave_no_key_says_so(place: Place, *, shared: bool) -> None:
    """The note comes with the key of the home or with the error, as other nodes of the job may have theirs."""
    (place.run / "41").mkdir(0o700, parents=True)
    facts = JobFacts("slurm", job_id="41", shares_homes=shared)
    said = place.find(facts).source if shared else str(place.refusal(facts))
    assert f"{place.of_home}, while {place.run}/41 has no key from the site's hooks" in said


def test_a_key_shows_its_source_and_never_itself(place: Place) -> None:
    """White space around it does not count; a fresh one is 64 hex digits, and new each time."""
    key = place.find(environ={"MINGLE_KEY": f"  {TEXT} \r\n"})
    assert (key.source, key.material) == ("MINGLE_KEY", TEXT.encode())
    assert TEXT not in repr(key)
    assert place.find(key_file=str(place.put(place.home / "k"))).source == f"{place.home}/k"
    assert len(bytes.fromhex(fresh_key())) == 32
    assert fresh_key() != fresh_key()


def test_a_key_that_others_may_touch_is_refused(place: Place) -> None:
    for mode in (0o640, 0o604, 0o620, 0o602, 0o610, 0o777):
        path = place.put(place.home / "k", mode=mode)
        refusal = place.refusal(key_file=str(path))
        assert f"{path} with mode {mode:04o}" in refusal.seen
        assert f"chmod {mode & 0o700:04o} {path}" in refusal.remedy
    if os.geteuid() == 0:
        os.chown(path, 12_345, -1)
        assert "owned by uid 12345" in place.refusal(key_file=str(path)).seen


TYPED = {
    "nothing": "",
    "a word": "short",
    "a phrase": "another key that nobody else has, at least 32",
    "a phrase in one word": "correcthorsebatterystaplecorrecthorsebatterystaple",
    "a phrase in capitals": "CORRECTHORSEBATTERYSTAPLECORRECTHORSEBATTERYSTAPLE",
    "a phrase in another language": "правильная лошадь батарея скоба",
    "half a key": "00112233445566778899aabbccddeeff",
    "one digit less": TEXT[1:],
    "one letter, again and again": "a" * 64,
    "digits and more": TEXT + "!",
    "two keys": f"{TEXT}\n{TEXT}",
    "base64 of 31 octets": base64.b64encode(bytes(range(7, 38))).decode(),
}


@pytest.mark.parametrize("text", TYPED.values(), ids=TYPED)
def test_a_key_that_a_person_typed_is_refused(place: Place, text: str) -> None:
    """Nothing stretches it, and what is heard of the world is enough to test guesses against."""
    place.put(place.of_home, text)
    of_variable = place.refusal(NO_JOB, {"MINGLE_KEY": text})
    for refusal, source in ((place.refusal(), str(place.of_home)), (of_variable, "MINGLE_KEY")):
        assert source in refusal.seen
        assert "`mingle key`" in refusal.remedy
        assert not text or text not in str(refusal)


def test_32_random_octets_from_elsewhere_are_a_key(place: Place) -> None:
    """They may be hexadecimal digits or base64."""
    for _ in range(30):
        octets = os.urandom(32)
        in_base64 = base64.b64encode(octets).decode()
        urlsafe, longer = base64.urlsafe_b64encode(octets).decode(), base64.b64encode(os.urandom(48)).decode()
        for text in (fresh_key(), octets.hex().upper(), in_base64, in_base64.rstrip("="), urlsafe, longer):
            assert place.find(environ={"MINGLE_KEY": text}).material == text.encode()


def test_raw_octets_in_a_file_are_a_key_unless_it_is_too_long(place: Place) -> None:
    """/dev/urandom gives them, and they may begin or end with what looks like white space."""
    place.put(place.of_home, TEXT * 100)
    assert str(place.of_home) in place.refusal().seen
    assert "MINGLE_KEY" in place.refusal(NO_JOB, {"MINGLE_KEY": TEXT * 100}).seen
    for octets in (b"\n" + b"\xff" * 30 + b"\n", bytes(range(130, 162))):
        place.of_home.write_bytes(octets)
        assert place.find().material == octets


@pytest.mark.parametrize(
    ("make", "seen"),
    [
        (lambda path: path.parent.joinpath("other").touch(), "no {} (--key-file)"),  # and no other key is tried
        (lambda path: os.mkfifo(path, 0o600), "not one"),
        (lambda path: path.mkdir(), "not one"),
        (lambda path: path.symlink_to(Place.put(path.with_name("k"), mode=0o644)), "mode 0644"),
    ],
    ids=["missing", "fifo", "directory", "link to a file that others may read"],
)
def test_what_is_no_private_file_is_refused_at_once(place: Place, make: Callable[[Path], None], seen: str) -> None:
    place.put(place.of_home)
    make(place.home / "it")
    assert seen.format(f"{place.home}/it") in place.refusal(key_file=f"{place.home}/it").seen


def test_a_link_to_a_private_file_is_followed_as_dotfiles_often_are_links(place: Place) -> None:
    place.of_home.parent.mkdir(parents=True)
    place.of_home.symlink_to(place.put(place.home / "dotfiles" / "key"))
    assert place.find().material == TEXT.encode()


@pytest.mark.parametrize("job", ["12", "12_4", "2[4].ctl", "12.node-1.site"])
def test_the_prologs_key_is_found_by_the_jobs_id(place: Place, job: str) -> None:
    place.put_for_job(job)
    before = open_files()
    assert place.find(JobFacts("slurm", job_id=job)).source == f"{place.run}/{job}/key"
    assert open_files() == before


@pytest.mark.parametrize("job", ["..", ".", "", "a/b", "../run/7", "7\n", "$(id)", "x" * 256, "-7"])
def test_a_hostile_job_id_leads_to_no_directory(place: Place, job: str) -> None:
    place.put(place.run / "key")
    place.put(place.run.parent / "key")
    place.put_for_job("7")
    assert "none given" in place.refusal(NO_JOB._replace(job_id=job)).seen


def test_a_job_directory_that_others_own_or_may_write_is_refused(place: Place) -> None:
    """A directory that is a link, or that holds a link, is refused too."""
    key = place.put_for_job("7")
    (place.run / "8").mkdir(mode=0o700)
    (place.run / "8" / "key").symlink_to(key)
    (place.run / "9").symlink_to(place.run / "7")
    for job, seen in (("8", f"{place.run}/8/key"), ("9", f"{place.run}/9")):
        assert seen in place.refusal(JobFacts("slurm", job_id=job)).seen
    for mode in (0o720, 0o702, 0o733):
        key.parent.chmod(mode)
        assert f"mode {mode:04o}" in place.refusal(JobFacts("slurm", job_id="7")).seen
    if os.geteuid() == 0:
        key.parent.chmod(0o700)
        os.chown(key.parent, 12_345, -1)
        assert "owned by uid 12345" in place.refusal(JobFacts("slurm", job_id="7")).seen


@pytest.mark.parametrize("facts", [NO_JOB, JobFacts("kubernetes", shares_homes=False)], ids=["no job", "pod"])
def test_a_home_that_nodes_may_not_share_gets_no_key_but_a_command_that_makes_one(
    place: Place, tmp_path: Path, facts: JobFacts
) -> None:
    """The very text that a user pastes makes a key that is accepted."""
    remedy = place.refusal(facts).remedy
    assert not place.of_home.parent.exists()
    assert f"mingle key > {place.of_home}" in remedy
    assert "--insecure" in remedy
    executable(tmp_path / "mingle", f"#!/bin/sh\necho {TEXT}\n")
    assert os.system(f"PATH={tmp_path}:$PATH; {remedy.split('`')[1]}") == 0  # noqa: S605
    assert place.find(facts).material == TEXT.encode()


@pytest.mark.parametrize("facts", [JobFacts("slurm"), JobFacts("slurm+mpi"), NO_JOB], ids=lambda facts: facts.scheduler)
def test_the_first_use_makes_a_private_key_in_a_home_that_nodes_share(place: Place, facts: JobFacts) -> None:
    """Under a batch system, or on a network file system."""
    if facts is NO_JOB:
        place.mounts.write_text(f"1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / {place.home} rw shared:1 - nfs4 fs:/home rw\n")
    made = place.find(facts)
    assert (made.source, len(bytes.fromhex(made.material.decode()))) == (str(place.of_home), 32)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (place.of_home, place.of_home.parent)]
    assert (modes, place.find(facts).material) == ([0o600, 0o700], made.material)


def test_no_key_is_replaced_and_a_home_that_cannot_hold_one_stays_as_it_is(place: Place) -> None:
    place.put(place.of_home, "bad", 0o600)
    place.refusal(JobFacts("slurm"))
    assert place.of_home.read_text() == "bad\n"
    shutil.rmtree(place.home / ".config")
    (place.home / ".config").write_text("a file")
    assert f"{place.home}/.config/mingle" in str(place.refusal(JobFacts("slurm")))
    assert os.listdir(place.home) == [".config"]


def test_of_two_processes_that_make_the_key_at_once_both_use_the_faster_ones(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hard link replaces nothing; its reply may also be lost on NFS, and then the key is this process's own."""
    link = os.link

    def slower(draft: str, path: str) -> None:
        link(place.put(place.home / "faster", HOMES), path)
        link(draft, path)

    monkeypatch.setattr(os, "link", slower)
    assert place.find(IN_SLURM).material == HOMES.encode()
    assert os.listdir(place.of_home.parent) == ["key"]


ROOT = ("/", "ext4")


@pytest.mark.parametrize(
    ("mounts", "place", "shared"),
    [
        *(([ROOT, ("", kind), ("x", "xfs")], "/a/b", True) for kind in ("nfs4", "lustre", "fuse.sshfs")),
        *(([ROOT, ("", kind)], "/a/b", False) for kind in ("fuse.fuse-overlayfs", "ext4", "overlay", "nfsd")),
        ([ROOT, ("/home", "nfs")], "/home/alice", True),
        ([ROOT, ("/home", "nfs")], "/home2/alice", False),
        ([ROOT, ("", "autofs"), ("", "nfs4")], "", True),
        ([ROOT, ("/my\\040home", "lustre")], "/my home", True),
        ([], "", False),
    ],
    ids=str,
)
def test_a_path_is_shared_by_the_kind_of_the_deepest_and_latest_mount(
    tmp_path: Path, mounts: list[tuple[str, str]], place: str, *, shared: bool
) -> None:
    """The kernel's table of mounts lists them; without it nothing is shared."""
    table = tmp_path / "mountinfo"
    for at, kind in mounts:
        with table.open("a") as file:
            file.write(f"1 0 0:1 / {at if at == '/' else f'{tmp_path}{at}'} rw master:1 - {kind} server:/x rw\n")
    assert bool(network_type(f"{tmp_path}{place}", str(table))) is shared
