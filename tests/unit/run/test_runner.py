"""What one member of an attempt gets, and how often a job is queued again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mingle_hooks.errors import MissingError, UsageError
from mingle_hooks.run import runner as member
from mingle_hooks.run import starters
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.machine import Begin
from mingle_hooks.run.runner import Options, Request, Requeues
from mingle_hooks.schedulers.detect import placed_by_run as placed
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import load
from mingle_hooks.values import to_json as dumps


def request(*, slots: int = 1, job_id: str | None = None) -> Request:
    """Return a run on hosts a, b and c."""
    hosts, each = ("a", "b", "c"), (slots,) * 3
    job = starters.Allocation(hosts, each, job_id=job_id, is_per_task=slots > 1)
    starter = next(row for row in starters.TABLE if row.name == "ssh")
    plan = Plan(hosts, each, least=2, most=3)
    return Request(plan, starter, job, ("true",), (), load({}, {}))


def test_each_attempt_is_a_step_of_its_own() -> None:
    facts = [member.member_facts(request(), Begin(0, n, 0, ("a", "b"), (1, 1)), "5ec4e7") for n in range(2)]
    assert facts[0]["step"] != facts[1]["step"]
    assert {**facts[0], "step": ""} == {**facts[1], "step": ""}


def test_a_member_gets_the_facts_of_a_job() -> None:
    of_host = member.member_facts(request(), Begin(2, 0, 1, ("a", "c"), (1, 1)), "5ec4e7")
    facts = placed(JobFacts(scheduler="none"), {"MINGLE_RUN": dumps(of_host)})
    assert (facts.job_id, facts.node_rank, facts.hosts, facts.nodes) == ("5ec4e7", 1, ("a", "c"), 2)
    of_task = member.member_facts(request(slots=2, job_id="7"), Begin(5, 0, 1, ("a", "c"), (2, 2)), "5ec4e7")
    assert "job_id" not in of_task
    assert [of_task[name] for name in ("task_rank", "task_count", "local_rank", "local_count")] == [3, 4, 1, 2]


def test_a_label_has_host_and_task_and_one_member_has_none() -> None:
    assert member.member_label(request(), Begin(2, 0, 1, ("a", "c"), (1, 1)), 1) == "c: "
    assert member.member_label(request(slots=2), Begin(5, 0, 1, ("a", "c"), (2, 2)), 3) == "3 c: "
    assert member.member_label(request(), Begin(0, 0, 0, ("a",), (1,)), 0) == ""
    unlabelled = request()._replace(options=Options(no_label=True))
    assert member.member_label(unlabelled, Begin(2, 0, 1, ("a", "c"), (1, 1)), 1) == ""


def test_the_directory_is_the_callers_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is a link, which may lead elsewhere on another host."""
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for path, expected in ((f"{tmp_path}/link",) * 2, ("/", str(tmp_path)), ("here", str(tmp_path))):
        monkeypatch.setenv("PWD", path)
        assert member.member_directory() == expected


@pytest.mark.parametrize(("scheduler", "may"), [("pbs", False), ("torque", False), ("slurm", True)])
def test_a_new_job_in_place_of_the_same_one_counts_as_that(tmp_path: Path, scheduler: str, *, may: bool) -> None:
    """PBS lets no user queue a job again: the script submits itself."""
    starter = next(row for row in starters.TABLE if row.name == scheduler)
    jobs = (request()._replace(starter=starter, id=str(number)) for number in range(4))
    assert [Requeues(job, {"XDG_STATE_HOME": str(tmp_path)}).may_go_on() for job in jobs] == [True] * 3 + [may]


@pytest.mark.parametrize(
    ("status", "had_world", "was_warned", "counted", "line", "expected"),
    [
        (0, True, False, "", "echo again", (0, "")),
        (7, True, False, "", "echo again", (7, "")),
        (75, True, False, "", "echo again", (75, "again\n")),
        (75, True, False, "", "exit 99", (99, "")),  # Grid Engine queues again what exits with 99
        (0, True, True, "", "echo again", (75, "again\n")),
        (130, True, True, "", "echo again", (130, "")),  # a person stopped it
        (75, False, False, "..", "echo again", (75, "again\n")),
        (75, True, False, "...", "echo again", (75, "again\n")),
        (75, False, False, "...", "echo again", "4 times in a row"),
    ],
)
def test_the_line_of_again_runs_where_trying_again_makes_sense(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    status: int,
    *,
    had_world: bool,
    was_warned: bool,
    counted: str,
    line: str,
    expected: tuple[int, str] | str,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    of_job = request()._replace(options=Options(again=line))
    for _ in counted:
        Requeues(of_job, {"XDG_STATE_HOME": str(tmp_path)}).may_go_on()
    machine = SimpleNamespace(had_world=had_world, stopping=SimpleNamespace(was_warned=was_warned))
    ended: Any = SimpleNamespace(status=status, machine=machine)
    if isinstance(expected, tuple):
        assert (member._again(of_job, ended), capfd.readouterr().out) == expected
    else:
        with pytest.raises(MissingError, match=expected):
            member._again(of_job, ended)
    if had_world or isinstance(expected, str):  # it counts anew
        assert Requeues(of_job, {"XDG_STATE_HOME": str(tmp_path)}).may_go_on()


@pytest.mark.parametrize(
    ("scope", "starts", "no_wait", "seen"),
    [("node", None, True, "--no-wait"), ("task", None, False, "--scope task"), ("node", "job", False, "mingle run")],
)
def test_what_cannot_run_together_is_refused(scope: str, starts: str | None, *, no_wait: bool, seen: str) -> None:
    spec: Any = SimpleNamespace(settings=SimpleNamespace(scope=scope))
    with pytest.raises(UsageError, match=seen):
        member.check_together(spec, starts, no_wait=no_wait)
