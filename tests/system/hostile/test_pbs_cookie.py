"""Tasks of PBS: its jobs' cookie tells one run from another, and is no key."""

from subprocess import CompletedProcess

import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from support.members import KEYED, evaluating, failed, members, one_world

# As recorded (openpbs-23.06.06): they follow from the second in which pbs_server started.
COOKIES = ("36A8E3141C32183E0A696B100289B68F", "3512A97B223EF5805F9ADE5D04D5F498")
# (the home, which no two hosts share; each task's exit code; what all are advised to try)
HOMES = {
    "each its own": ("/tmp", (69, 77), "try the same --key-file or MINGLE_KEY on every member"),
    "none": ("/proc", (77, 77), "mingle key > /proc/.config/mingle/key` on one machine, then copying that file"),
}


def of_pbs(host: Host, number: int, cookie: str) -> dict[str, str]:
    """Return a task's environment on one of two hosts, without a key; the home that the hosts share may get one."""
    host.write("/root/nodes", "node1\nnode2\n")
    return {
        "PBS_JOBID": "7.ctl",
        "PBS_NODEFILE": "/root/nodes",
        "PBS_NODENUM": str(number),
        "PBS_TASKNUM": f"{0x20000001 if number else 2:08X}",
        "PBS_JOBCOOKIE": cookie,
    }


@pytest.mark.parametrize("home", HOMES)
def test_tasks_of_pbs_without_a_key_are_told_what_to_do(four: Hosts, home: str) -> None:
    place, codes, advice = HOMES[home]
    results = members(
        list(four)[:2],
        evaluating("--timeout", "3"),
        env=lambda number: {**of_pbs(four[number], number, COOKIES[0]), "HOME": place},
    )
    for done, code in zip(results, codes, strict=True):
        assert advice in failed(done, code)
    four.run_all(["rm", "-rf", "/tmp/.config"])


def test_two_runs_of_one_pbs_job_never_meet_and_say_so(four: Hosts) -> None:
    """Members without the cookie, as shells of ssh, meet each other and none that has it."""

    def run(*cookies: str | None) -> list[CompletedProcess[str]]:
        def env(number: int) -> dict[str, str]:
            cookie = cookies[number]
            variables = {**of_pbs(four[number], number, cookie or ""), **KEYED}
            return {name: value for name, value in variables.items() if name != "PBS_JOBCOOKIE" or cookie}

        return members(list(four)[:2], evaluating("--timeout", "4"), env=env)

    for cookies in (COOKIES, (COOKIES[0], None)):
        for done in run(*cookies):
            assert "PBS_JOBCOOKIE" in done.stderr, done
            assert (done.returncode in (69, 77), done.stdout) == (True, "")
    one_world(run(None, None))
