"""What one member of an attempt gets, and how often a job is queued again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
    job = starters.Allocation("ssh", hosts, each, job_id=job_id, is_per_task=slots > 1)
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
    starter, environ = SimpleNamespace(name=scheduler), {"XDG_STATE_HOME": str(tmp_path)}
    for number in range(4):
        of_job: Any = SimpleNamespace(starter=starter, id=str(number), command=("train",))
        last = Requeues(of_job, environ).may_go_on()
    assert last == may


def test_a_job_is_queued_again_three_times_in_a_row(tmp_path: Path) -> None:
    """Other jobs, and a job after a world, count anew."""
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    starter = SimpleNamespace(name="slurm")
    first, other = (
        Requeues(SimpleNamespace(starter=starter, id=name, command=("train",)), environ)  # type: ignore[arg-type]
        for name in "12"
    )
    assert [first.may_go_on() for _ in range(4)] == [True, True, True, False]
    assert other.may_go_on()
    first.reset()
    assert first.may_go_on()
