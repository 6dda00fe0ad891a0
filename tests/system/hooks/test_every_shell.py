"""The whole of every hook on hosts where /bin/sh is another shell."""

import shutil
from collections.abc import Callable

import pytest
from cluster.hosts import Host, Hosts
from support.hooks import JOB, SITE_KEY, key_of, run_hook, started_at, with_hooks
from support.needs import need

TORQUE_JOB = "12[3].server.example.org"
TORQUE_BEFORE = (TORQUE_JOB, "alice", "alice", "my job; $(id)", "neednodes=2:ppn=4,nodes=2:ppn=4", "batch", "account x")
TORQUE_AFTER = (*TORQUE_BEFORE[:4], "4711", TORQUE_BEFORE[4], "cput=00:00:01,mem=0kb", *TORQUE_BEFORE[5:], "271")
TORQUE_ENV = {
    "PBS_JOBID": TORQUE_JOB, "PBS_MSHOST": "node1", "PBS_NODENUM": "1", "PBS_NUM_NODES": "2", "PBS_NUM_PPN": "4",
    "PBS_NP": "8", "PBS_NODEFILE": "/var/spool/torque/aux/12", "PBS_RESOURCE_NODES": "2:ppn=4", "PBS_QUEUE": "batch",
    "PBS_O_WORKDIR": "/home/alice/$(touch /run/owned)", "PBS_TASKNUM": "1",
}  # fmt: skip


@pytest.fixture(params=["dash", "bash", "busybox", "ksh"])
def host(hosts: Callable[..., Hosts], request: pytest.FixtureRequest) -> Host:
    """Give a host with every hook, on which /bin/sh is another shell."""
    need(request.param)
    program = str(shutil.which(request.param))
    found = with_hooks(hosts(1)[0])
    # Copied first: where /bin/sh is a link to dash, dash is what is covered.
    found.run(["cp", "-L", program, "/run/shell"], check=True)
    found.run(["mount", "--bind", "/run/shell", "/bin/sh"], check=True)
    return found


# The hook and the arguments at a job's start, those at its end, the environment, the job and its key. Torque's are as
# its manual has them; `.parallel` ones run on the other hosts.
WORK = [
    (("slurm/prolog",), ("slurm/epilog",), JOB, "7", key_of("7")),
    *((
        (f"torque/prologue{part}", *TORQUE_BEFORE), (f"torque/epilogue{part}", *TORQUE_AFTER), TORQUE_ENV, TORQUE_JOB,
        key_of(TORQUE_JOB, cluster=""),
    ) for part in ("", ".parallel")),
]  # fmt: skip


def test_the_scripts_of_a_job_do_all_of_their_work(host: Host) -> None:
    """Directory, key (HMAC-SHA-256, RFC 2104) and stamp are made, a process that was left is ended, nothing stays."""
    place = host.outside("/run/mingle")
    for start, end, env, job, key in WORK:
        its_stamp = {f"{job}.stamp": (0o600, 0)} if job == "7" else {}
        run_hook(host, *start, env=env)
        made = {path.name: path.stat() for path in (place, *place.rglob("*"))}
        assert {name: (its.st_mode & 0o7777, its.st_uid) for name, its in made.items()} == {
            "mingle": (0o755, 0), job: (0o700, 61001), "key": (0o600, 61001), **its_stamp,
        }  # fmt: skip
        assert (place / job / "key").read_text() == key + "\n"
        process = host.popen(["sleep", "60"], user="alice")
        host.write(f"/run/mingle/{job}/processes", f"{process.pid} {started_at(host, process.pid)}\n", user="alice")
        if its_stamp:
            run_hook(host, *start, env=env)  # the second of the same start changes nothing
        run_hook(host, *end, env=env)
        assert process.wait(10) != 0
        process.communicate()
        assert list(place.iterdir()) == []
    assert not host.outside("/run/owned").exists()


def test_no_argument_list_and_no_log_line_holds_a_key_or_a_users_text(host: Host) -> None:
    """What other users can see of the hooks' programs, and what the system log is told, are ids and words of ours."""
    # The log is told what comes in, the others all in their arguments.
    spy = '#!/bin/sh\nprintf \'%s\\n\' "$*" >>/run/said\n{}/run/real.{} "$@"\n'
    for tool in ("logger", "sha256sum", "chown", "mv", "rm", "mount", "cat", "stat"):
        where = host.run(["sh", "-c", f"command -v {tool}"], check=True).stdout.strip()
        more = "tee -a /run/said | " if tool == "logger" else ""
        host.run(["cp", "-L", where, f"/run/real.{tool}"], check=True)
        host.write(f"/run/spy.{tool}", spy.format(more, tool), mode=0o755)
        host.run(["mount", "--bind", f"/run/spy.{tool}", where], check=True)
    run_hook(host, "slurm/epilog")  # as on a node where no Prolog has made anything
    nothing = "job=7 uid=61001 result=cleaned node=node1 status=0\n"
    assert (nothing in host.outside("/run/said").read_text(), host.outside("/run/mingle").exists()) == (True, False)
    hostile = {"SLURM_JOB_COMMENT": "evil comment", "SLURM_JOB_NAME": "evil name", "SLURM_JOB_WORK_DIR": "/evil"}
    run_hook(host, "slurm/prolog", env={**JOB, **hostile})
    run_hook(host, "slurm/epilog", env={**JOB, **hostile})
    output = host.outside("/run/said").read_text()
    assert "job=7 uid=61001 restart=0 result=made key=yes bounded=yes node=node1 status=0\n" in output
    assert output.count(nothing) == 2
    for secret in (SITE_KEY, key_of("7"), "evil"):
        assert secret not in output
