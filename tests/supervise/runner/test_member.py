"""What one member of an attempt is told."""

from __future__ import annotations

from mingle_hooks.run import runner as member
from mingle_hooks.run import starters
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.machine import Begin
from mingle_hooks.run.runner import Options, Request
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.schedulers.platforms import placed_by_run as placed
from mingle_hooks.settings import load
from mingle_hooks.values import to_json as dumps


def request(*, slots: int = 1, job_id: str | None = None) -> Request:
    """Return a run on hosts a, b and c."""
    hosts, each = ("a", "b", "c"), (slots,) * 3
    job = starters.Allocation("ssh", hosts, each, job_id=job_id, is_per_task=slots > 1)
    starter = next(its for its in starters.TABLE if its.name == "ssh")
    plan = Plan(hosts, each, least=2, most=3)
    return Request(plan, starter, job, ("true",), (), load({}, {}))


def test_each_attempt_is_a_step_of_its_own() -> None:
    """Its world has another name than any earlier one's, and other ports."""
    told = [member.member_facts(request(), Begin(0, attempt, 0, ("a", "b"), (1, 1)), "5ec4e7") for attempt in range(2)]
    assert told[0]["step"] != told[1]["step"]
    assert {**told[0], "step": ""} == {**told[1], "step": ""}


def test_what_a_member_is_told_are_facts_of_a_job() -> None:
    """Of a host that has another rank than place, and of a task; the scheduler's own id is kept."""
    of_host = member.member_facts(request(), Begin(2, 0, 1, ("a", "c"), (1, 1)), "5ec4e7")
    facts = placed(JobFacts(scheduler="none"), {"MINGLE_RUN": dumps(of_host)})
    assert (facts.job_id, facts.node_rank, facts.hosts, facts.nodes) == ("5ec4e7", 1, ("a", "c"), 2)
    of_task = member.member_facts(request(slots=2, job_id="7"), Begin(5, 0, 1, ("a", "c"), (2, 2)), "5ec4e7")
    assert "job_id" not in of_task
    assert [of_task[name] for name in ("task_rank", "task_count", "local_rank", "local_count")] == [3, 4, 1, 2]


def test_a_label_tells_host_and_task_and_one_member_has_none() -> None:
    assert member.member_label(request(), Begin(2, 0, 1, ("a", "c"), (1, 1)), 1) == "c: "
    assert member.member_label(request(slots=2), Begin(5, 0, 1, ("a", "c"), (2, 2)), 3) == "3 c: "
    assert member.member_label(request(), Begin(0, 0, 0, ("a",), (1,)), 0) == ""
    assert (
        member.member_label(request()._replace(options=Options(no_label=True)), Begin(2, 0, 1, ("a", "c"), (1, 1)), 1)
        == ""
    )


def test_the_directory_is_the_callers_way_there() -> None:
    assert member.member_directory().startswith("/")
