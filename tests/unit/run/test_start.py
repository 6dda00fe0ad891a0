"""What a run is started with: typed options, and the members of a world that are one."""

import sys
from typing import Any

import pytest

from mingle_hooks.job import member_spec
from mingle_hooks.run import agent, messages, start
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.request import Options, Request
from mingle_hooks.run.starters import Allocation
from mingle_hooks.view import Assignment, Member, View, World

KEY = "0123456789abcdef" * 4
ROSTER = tuple(Member(n, host, f"10.0.0.{n + 1}", 1) for n, host in enumerate("aab"))


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
    hosts, agreed, starter = ("a", "a.2", "b"), request.agreed, request.starter
    plan, job = Plan(hosts, (1, 1, 1), 3, 3, grace_s=28.0, join_s=99.0), Allocation(hosts, (1, 1, 1), own="a")
    expected = Request(plan, starter, job, ("true",), ("--id=7",), spec.settings)
    assert request == expected._replace(id="7", agreed=agreed, keys=(KEY.encode(),))
    assert (starter.name, starter.kill_wait_s, starter.environment, starter.launches(request.job, hosts, ())) == (
        "given",
        30.0,
        "own",
        (),
    )
    assert (len(agreed.run), len(agreed.key), len({*agreed.ports})) == (16, 32, 8)
    assert {*agreed.ports} <= {*range(5000, 5064)}
    with pytest.raises(SystemExit):
        start.run_together(("true",), spec, view(2), ())
    program, options, environ = asked[1]
    assert (program, options) == ("agent", agent.Options(host="b", local="0"))
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
