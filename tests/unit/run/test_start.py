"""What a run is started with: what its options make of its plan, and the members of a world that are one."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mingle_hooks.errors import FactsError, UsageError
from mingle_hooks.files import write_new
from mingle_hooks.job import member_spec
from mingle_hooks.net.addresses import hostname
from mingle_hooks.rendezvous.messages import Assignment, Member, View, World
from mingle_hooks.run import agent, messages, start, starters
from mingle_hooks.run.attempt import NEVER, Plan
from mingle_hooks.run.messages import Silence
from mingle_hooks.run.start import Options, Request
from mingle_hooks.run.starters import Allocation
from mingle_hooks.settings import load

KEY = "0123456789abcdef" * 4
ONE = "a run on all 4 hosts; saw 1 \\(--nodes\\); try no --nodes, --spares 3"


@pytest.mark.parametrize(
    ("nodes", "spares", "hosts", "expected"),
    [
        (None, None, 4, (4, 4)),
        (None, "1", 4, (3, 3)),
        ("2", None, 4, (2, 2)),
        ("4", None, 4, (4, 4)),
        ("2:3", "1", 4, (2, 3)),
        ("2:9", "1", 4, (2, 3)),
        ("1:2", None, 4, (1, 2)),
        ("1", None, 1, (1, 1)),
        ("1", "3", 4, (1, 1)),
        ("1", None, 4, ONE),
        ("5", None, 4, "5 hosts that train; saw 4 of them; try a smaller"),
        ("4", "1", 4, "4 hosts that train; saw 4 of them, 1 of these spares"),
        ("3:2", None, 4, "--nodes A:B with B at least A; saw 3:2; try --nodes 2:3"),
        (None, "4", 4, "a host that trains"),
        ("0", None, 4, "--nodes"),
        ("2:0", None, 4, "--nodes"),
        (None, "x", 4, "--spares"),
    ],
)
def test_how_many_hosts_an_attempt_needs_and_takes(
    nodes: str | None, spares: str | None, hosts: int, expected: tuple[int, int] | str
) -> None:
    options = Options(nodes=nodes, spares=spares)
    if isinstance(expected, tuple):
        assert start._counts(options, hosts) == expected
    else:
        with pytest.raises(UsageError, match=expected):
            start._counts(options, hosts)


def test_silence_is_a_hosts_and_a_processs() -> None:
    silences = {None: (15.0, 600.0), "20": (20.0, 600.0), "700": (700.0, 700.0), "20,30": (20.0, 30.0)}
    assert {text: start._silence(text) for text in silences} == silences


def test_the_limit_is_the_users_or_if_there_is_a_warning_the_schedulers() -> None:
    for options, end_s, expected in (
        (Options(), None, (NEVER, NEVER)),
        (Options(limit="60"), None, (NEVER, 60.0)),
        (Options(limit="60", warn="50"), 90, (10.0, 60.0)),
        (Options(limit="60", warn="70"), None, (0.0, 60.0)),
        (Options(), 90, (NEVER, NEVER)),
        (Options(warn="50"), 90, (40.0, 90.0)),
    ):
        job = starters.Allocation(("a",), (1,), end=None if end_s is None else int(time.time()) + end_s)
        plan = start._plan(options, load({}, {}), starters.TABLE[0], job)
        for seen, wanted in zip((plan.warn_at_s, plan.limit_at_s), expected, strict=True):
            assert seen == pytest.approx(wanted, abs=1.5)


def test_options_become_the_plan() -> None:
    job = starters.Allocation(("a", "b"), (3, 2), is_per_task=True)
    options = Options(restarts="3", grace="9", window="7", stall="20", warn_signal="SIGusr2")
    plan = start._plan(options, load({}, {"timeout": 5.0}), starters.TABLE[0], job)
    assert (plan.hosts, plan.slots, plan.restarts, plan.grace_s, plan.window_s) == (("a", "b"), (3, 2), 3, 9.0, 7.0)
    assert (plan.join_s, plan.stall_s, plan.warn_signal) == (5.0, 20.0, signal.SIGUSR2)
    with pytest.raises(UsageError, match="USR1, USR2, HUP, INT, TERM, QUIT; saw KILL"):
        start._plan(Options(warn_signal="KILL"), load({}, {}), starters.TABLE[0], job)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Request]:
    """Ask for a run of COMMAND in a home with a key, with these variables and settings."""
    (tmp_path / "mingle").mkdir()
    write_new(f"{tmp_path}/mingle/key", KEY.encode())

    def ask(line: str, options: Options, environ: dict[str, str] | None = None, **settings: object) -> Request:
        monkeypatch.setattr(
            os,
            "environ",
            {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PATH": str(tmp_path), **(environ or {})},
        )
        words = ("--verbatim",) if settings.pop("verbatim", False) else ("--quiet",)
        return start.plan_request(tuple(line.split()), options, settings, words)

    return ask


FOUR = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_NODELIST": "n[1-4]"}
ENDING = {**FOUR, "SLURM_JOB_END_TIME": str(2**31)}


def test_what_is_asked_for_is_a_request(asked: Callable[..., Request]) -> None:
    two, here = Options(hosts="a,b", silence="20"), (hostname(),)
    usual = asked("true -v", two)
    assert (usual.plan.hosts, usual.starter.name, usual.is_of_job, usual.id) == (("a", "b"), "ssh", False, None)
    assert (usual.command, usual.exec_options, usual.silence) == (("true", "-v"), ("--quiet",), Silence(20.0, 600.0))
    assert (len(usual.key or ""), usual.options) == (64, two)
    assert usual.keys == (KEY.encode(), (usual.key or "").encode())
    own = asked("true", two, {"MINGLE_KEY": KEY[::-1]}, id="7")
    assert (own.key, own.keys, own.id) == (None, (KEY[::-1].encode(),), "7")
    assert asked("true", two, insecure=True).key is None
    mpi = asked("mpirun -n 2 true", two)
    assert (mpi.plan.hosts, mpi.starter.name, mpi.is_of_job) == (here, "local", True)
    assert mpi.exec_options == ("--quiet", "--verbatim")
    whole = asked("mpirun -n 4 true", Options(), FOUR | {"MINGLE_NODES": "4"})  # not of agents: there is one
    assert (whole.plan.hosts, whole.plan.least, whole.plan.most) == (here, 1, 1)
    for job in (asked("mpirun -n 4 true", Options(warn="60"), ENDING), asked("true", Options(), ENDING, alone=True)):
        assert (job.job.job_id, job.job.end, job.plan.grace_s, job.starter.name) == ("7", 2**31, 28.0, "local")
        assert job.starter.asked_end == starters._BY_NAME["slurm"].asked_end
    verbatim = asked("mpirun -n 2 true", two, verbatim=True)
    assert (verbatim.plan.hosts, verbatim.is_of_job, verbatim.exec_options) == (("a", "b"), False, ("--verbatim",))
    for nodes in (None, "1"):
        alone = asked("true", Options(nodes=nodes), alone=True)
        assert (alone.plan.hosts, alone.plan.slots, alone.starter.name, alone.job.own) == (here, (1,), "local", here[0])
    inside = asked("true", Options(), {"MINGLE_RUN": '{"nodes":1,"node_rank":0,"job_id":"7"}'})
    assert (inside.plan.hosts, inside.starter.name) == (here, "local")


def test_what_cannot_be_run_is_refused(asked: Callable[..., Request]) -> None:
    within = {"MINGLE_RUN": '{"nodes":2,"node_rank":0,"job_id":"7"}'}
    for options, environ, settings, wrong in (
        (Options(), {}, {}, "to train on; saw no job here; try mingle run --hosts"),
        (Options(hosts="a"), {}, {"alone": True}, "with --alone; saw --hosts, --nodes or"),
        (Options(nodes="2"), {}, {"alone": True}, "with --alone; saw --hosts, --nodes or"),
        (Options(spares="1"), {}, {"alone": True}, "with --alone; saw --hosts, --nodes or"),
        (Options(), within, {}, "a command of a run on 2 nodes"),
        (Options(hosts="a,b", start_option=("-v",)), {}, {}, "a starter that takes options"),
        (Options(nodes="2"), FOUR, {"line": "mpirun -n 4 true"}, "all 4 hosts for a launcher of the whole job"),
        (Options(hosts="a,b", warn="60"), {}, {}, "a time limit to warn about; saw none from the scheduler"),
        (Options(hosts="a,b", restarts="1001"), {}, {}, "from 0 to 1000; saw .1001. .--restarts."),
    ):
        with pytest.raises((UsageError, FactsError), match=wrong):
            asked(str(settings.pop("line", "true")), options, environ, **settings)


ROSTER = tuple(Member(n, host, f"10.0.0.{n + 1}", 1) for n, host in enumerate(("a", "a", "a.2")))


def view(rank: int, size: int = 3) -> View:
    world = World("a", size, size, "10.0.0.1", 1, f"{size}", ROSTER[:size])
    return View(world, Assignment(rank, 1, 0, "10.0.0.9"), "node", {})


def test_the_first_member_runs_what_the_others_are_agents_of(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = member_spec({"MINGLE_KEY": KEY}, {"id": "7", "nodes": "3", "timeout": "99", "port_range": "5000-5063"})
    asked: list[Any] = []
    monkeypatch.setattr(start, "run_command", lambda request: asked.append(request) or 5)
    monkeypatch.setattr(agent, "become_program", lambda *how: asked.append(how) or sys.exit())
    assert start.run_together(("true",), spec, view(0), ("--id=7",)) == 5
    (request,) = asked
    hosts, agreed, starter = ("a", "a.2", "a.2.2"), request.agreed, request.starter
    plan, job = Plan(hosts, (1, 1, 1), 3, 3, grace_s=28.0, join_s=99.0), Allocation(hosts, (1, 1, 1), own="a")
    expected = Request(plan, starter, job, ("true",), ("--id=7",), spec.settings)
    assert request == expected._replace(id="7", agreed=agreed, keys=(KEY.encode(),))
    assert (starter.name, starter.kill_wait_s, starter.environment) == ("given", 30.0, "own")
    assert starter.launches(request.job, hosts, ()) == ()
    assert (len(agreed.run), len(agreed.key), len({*agreed.ports})) == (16, 32, 8)
    assert {*agreed.ports} <= {*range(5000, 5064)}
    with pytest.raises(SystemExit):
        start.run_together(("true",), spec, view(2), ())
    program, options, environ = asked[1]
    assert (program, options) == ("agent", agent.Options(host="a.2.2", local="0"))
    assert (environ["MINGLE_RUN_ID"], environ[messages.KEY]) == (agreed.run, agreed.key.hex())
    assert environ[messages.AT] == ",".join(f"10.0.0.1 {port}" for port in agreed.ports)
    start.run_together(("true",), spec, view(0, 2), ())  # another world
    assert not {agreed.run, agreed.key} & {asked[2].agreed.run, asked[2].agreed.key}


def test_typed_options_are_the_runs_or_those_of_mingle_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(start, "run_command", asked.append)
    typed = {"timeout": "7", "explain": True, "verbatim": True, "keep_key": False, "quiet": True, "rank": None}
    start.run(("true",), {**typed, "hosts": "a,b", "no_label": True})
    (request,) = asked
    assert (request.options, request.command) == (Options(hosts="a,b", no_label=True), ("true",))
    assert (request.settings.timeout, request.plan.hosts) == (7.0, ("a", "b"))
    assert sorted(request.exec_options) == ["--explain", "--quiet", "--timeout=7", "--verbatim"]


def test_what_cannot_run_together_is_refused() -> None:
    for scope, starts, no_wait, seen in (
        ("node", None, True, "--no-wait"),
        ("task", None, False, "--scope task"),
        ("node", "job", False, "mingle run"),
    ):
        spec: Any = SimpleNamespace(settings=SimpleNamespace(scope=scope))
        with pytest.raises(UsageError, match=seen):
            start.check_together(spec, starts, no_wait=no_wait)


def test_what_runs_together_ends_before_its_scheduler_kills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that the scheduler itself sends to COMMAND is not sent twice."""
    plans: list[Plan] = []
    monkeypatch.setattr(start, "run_command", lambda request: plans.append(request.plan))
    (tmp_path / "slurm.conf").write_text("KillWait=6\n")
    spec = member_spec({"MINGLE_KEY": KEY, "SLURM_CONF": str(tmp_path / "slurm.conf")}, {"id": "a", "nodes": "3"})
    for scheduler in ("slurm", "flux", "none"):
        start.run_together((), spec._replace(facts=spec.facts._replace(scheduler=scheduler)), view(0), ())
    assert [(plan.grace_s, plan.signals_reach_command) for plan in plans] == [(4.0, True), (3.0, False), (28.0, False)]


def test_members_find_their_world_again_at_rank_0_unless_told_where() -> None:
    for master, via, pinned, expected in (
        (None, "default", {}, {"master": "10.0.0.1"}),
        (None, "option", {}, {}),
        ("b", "default", {}, {}),
        (None, "default", {"MASTER_ADDR": "b"}, {}),
    ):
        settings = SimpleNamespace(master=master, source=lambda _name, via=via: via)
        spec: Any = SimpleNamespace(settings=settings, attempt=SimpleNamespace(id="7"), pinned=pinned)
        assert start.world_options(spec, view(0)) == {"id": "7", "nodes": None, "rank": None, **expected}
