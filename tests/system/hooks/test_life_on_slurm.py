"""The life of an installation, by the commands of docs/admin.md, on a real Slurm with jobs that run meanwhile."""

import os
import re
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent

import pytest
from cluster import hosts as cluster_hosts, slurm as cluster_slurm
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.slurm import CONF, SlurmCluster, conf as conf_text
from support.needs import skip_for_want_of

from mingle_hooks.hooks.files import LOCK_PATH
from mingle_hooks.schedulers.facts import expand

PAGE = Path(__file__).resolve().parents[3] / "docs" / "admin.md"
DATA = Path(__file__).resolve().parents[2] / "data"
NEXT = "/etc/slurm/slurm.conf.next"
# A home of root's that all hosts share holds what is on PATH before this machine's own: clush, and on one host alone
# /run/next, where its mingle is another version.
BIN = "/root/bin"
# In place of the minute that stubs wait.
AGE_STUBS = """clush -a "find /etc/mingle/hooks/manifest.json /etc/slurm -name '*.json' -exec sed -i -E \
's/(\\"stub\\": ?\\"[^ ]+ )[0-9]+/\\10/' '{}' + ; true\""""


def admin(slurm: SlurmCluster) -> None:
    """Give each host an /etc of its own, but for /etc/slurm, and the admin what the page's commands need."""
    slurm.hosts.run_all(["sh", "-ec", (DATA / "own_etc.sh").read_text()], check=True)
    host = slurm.controller
    host.write(f"{BIN}/clush", (DATA / "clush.sh").read_text(), mode=0o755)
    host.write("/root/nodes", "".join(f"{each.name} {each.pid}\n" for each in slurm.hosts))


def lines(heading: str) -> list[str]:
    """Return the commands below a heading of the page."""
    _, _, text = PAGE.read_text().partition(f"\n### {heading}\n")
    section = re.split(r"^##", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = dedent("".join(re.findall(r"^    .*\n", section, re.MULTILINE))).splitlines()
    return [AGE_STUBS if line == "sleep 60" else line for line in found]


def run(slurm: SlurmCluster, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands of the page as the admin; the first that fails ends them."""
    path = f"{BIN}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    env = {"PATH": path, "EDITOR": f"mv -f {NEXT}"}
    return slurm.controller.run(["bash", "-eo", "pipefail", "-c", "\n".join(commands)], env=env, check=True)


def next_conf(slurm: SlurmCluster, *more: str) -> None:
    """Say what slurm.conf is after the admin has edited it."""
    slurm.controller.write(NEXT, conf_text([host.name for host in slurm.hosts], slurm.cpus, more))


def upgraded(slurm: SlurmCluster, count: int) -> None:
    """Put the next version of mingle on so many hosts, and on the others the one that is tested."""
    for number, host in enumerate(slurm.hosts):
        if number < count:
            host.write("/run/next/mingle", (DATA / "next_mingle.sh").read_text(), mode=0o755)
        else:
            host.outside("/run/next/mingle").unlink(missing_ok=True)


def etc(host: Host) -> dict[str, tuple[int, int, int, bytes]]:
    """Return all of a host's /etc: path -> mode, owner, group and content."""
    top, found = str(host.outside("/etc")), {}
    for directory, names, files in os.walk(top):
        for path in (f"{directory}/{name}" for name in (*names, *files)):
            its = os.lstat(path)
            data = os.fsencode(os.readlink(path)) if stat.S_ISLNK(its.st_mode) else b""
            if stat.S_ISREG(its.st_mode):
                data = Path(path).read_bytes()
            found[path.removeprefix(top)] = (its.st_mode, its.st_uid, its.st_gid, data)
    assert CONF.removeprefix("/etc") in found
    return found


OURS = "/etc/mingle/hooks/slurm"
OWN = ("Prolog=/etc/slurm/site.prolog", "Epilog=/etc/slurm/site.epilog", "TaskProlog=/etc/slurm/site.taskprolog")
HOOKS = tuple(
    f"{line.partition('=')[0]}={OURS}/{name}"
    for line, name in zip(OWN, ("prolog", "epilog", "taskprolog-all"), strict=True)
)
ALLOC = "PrologFlags=Alloc"
TOML = "[hooks]\n" + "".join(f'{name} = "/etc/slurm/site.{name}"\n' for name in ("prolog", "epilog", "taskprolog"))
UPGRADE = "Upgrade, and back to the version before"
INSTALL = ["sh", "-c", "PATH=/run/next:$PATH mingle hooks install slurm --yes"]
SLEEP, FOUR = "exec sleep 600", ("-N4", "-n4", "-o", "/dev/null")
# A job waits until its gate is opened for writing, which costs nothing; every fourth one then has a step of four tasks.
JOB = """\
#!/bin/sh
: </home/alice/gate.$((SLURM_ARRAY_TASK_ID * {phases} / 61))
[ $((SLURM_ARRAY_TASK_ID % 4)) != 1 ] || exec srun sh -c 'exit 0'
"""
HOLD = "/home/hold"  # the site's Prolog waits while it is there and nobody writes
MINGLE_ENV = ("env", "HOME=/nonexistent", "sh", "-c", "mingle env >/dev/null")
WORLD = ("sh", "-c", 'echo "$MASTER_ADDR $MASTER_PORT $MINGLE_ID $(cat /run/mingle/$SLURM_JOB_ID/key)"')


@pytest.fixture(scope="module")
def its_slurm() -> Iterator[SlurmCluster]:
    """Start a Slurm whose hosts have an /etc each, with a Prolog, Epilog and TaskProlog of the site's own."""
    skip_for_want_of(cluster_hosts.missing() + cluster_slurm.missing())
    with Hosts(4) as made, SlurmCluster(made, cpus=10) as slurm:
        admin(slurm)
        host = slurm.controller
        for name in ("prolog", "epilog"):
            wait = f"[ ! -p {HOLD} ] || : <{HOLD}\n" if name == "prolog" else ""
            host.write(
                f"/etc/slurm/site.{name}", f"#!/bin/sh\necho $SLURM_JOB_ID >>/run/site.{name}\n{wait}", mode=0o755
            )
        text = "#!/bin/sh\necho $SLURM_JOB_ID >>/home/alice/site.taskprolog\n"
        host.write("/etc/slurm/site.taskprolog", text, mode=0o755)
        host.write("/root/mingle.toml", TOML)
        slurm.reconfigure(*OWN, ALLOC)
        yield slurm


@pytest.fixture
def site(its_slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give it, and take the test's jobs away afterwards; a test that leaves a node drained or down fails."""
    yield its_slurm
    its_slurm.settle()


def in_use(slurm: SlurmCluster) -> None:
    """Roll the hooks out, unless another test has."""
    if not slurm.controller.outside(OURS).exists():
        next_conf(slurm, *HOOKS, ALLOC)
        run(slurm, *(line for line in lines("Rollout") if " report " not in line and " verify " not in line))


def not_in_use(slurm: SlurmCluster) -> None:
    """Uninstall what another test may have rolled out."""
    if slurm.controller.outside(OURS).exists():
        next_conf(slurm, *OWN, ALLOC)
        run(slurm, *lines("Uninstall"))


def running(slurm: SlurmCluster) -> int:
    """Return how many jobs run, and fail where a node is not well."""
    bad = {name: state for name, state in slurm.sinfo().items() if state.startswith(("drain", "down"))}
    assert not bad, slurm.logs()
    return slurm.controller.run(["squeue", "--noheader", "--states=running"], check=True).stdout.count("\n")


def world(slurm: SlurmCluster, *options: str) -> str:
    """Return what all tasks of a step on all four hosts have alike, and fail where they differ."""
    done = slurm.srun("-N4", "-n4", *options, *WORLD, user="alice")
    assert done.returncode == 0, done.stderr
    (same,) = Counter(done.stdout.splitlines()).items()
    assert same[1] == 4
    return same[0]


def test_sixty_jobs_run_through_the_life_of_an_installation(site: SlurmCluster) -> None:
    """Rollout, upgrade, rollback and uninstall: no job and no hook is lost, and /etc is as before."""
    slurm, host = site, site.controller
    rollout, upgrade, uninstall = lines("Rollout"), lines(UPGRADE), lines("Uninstall")
    life = (  # what slurm.conf names, how many hosts have the next version of mingle, and what the admin does
        (HOOKS, 0, rollout[4:]),
        (HOOKS, 2, upgrade[:2]),
        (HOOKS, 4, upgrade[2:]),
        (HOOKS, 0, upgrade[2:3]),
        (OWN, 0, uninstall),
    )
    not_in_use(slurm)
    host.run(["sh", "-c", "rm -f /home/alice/gate.* /home/alice/out.*"], check=True)  # where it is run again
    run(slurm, *rollout[:4])  # key and settings are the admin's
    before = [etc(each) for each in slurm.hosts]
    walker = slurm.submit(SLEEP, *FOUR, user="alice")
    with ExitStack() as gates:
        for number in range(len(life)):
            host.run(["mkfifo", "-m", "0666", f"/home/alice/gate.{number}"], check=True)
        script = JOB.format(phases=len(life))
        jobs = slurm.submit(
            script, "--array=1-60", "-N2", "-n4", "--ntasks-per-node=2", "-o", "/home/alice/out.%a", user="alice"
        )
        for number, (conf, of_next, commands) in enumerate(life):
            slurm.until(lambda: running(slurm) > 5, "running jobs")
            # From here on the jobs of this phase end, and those of the next ones start.
            gates.callback(os.close, os.open(host.outside(f"/home/alice/gate.{number}"), os.O_RDWR))
            next_conf(slurm, *conf, ALLOC)
            upgraded(slurm, of_next)
            run(slurm, *commands)
            if of_next == 2:
                is_one_world_of_two_versions(slurm, walker)
        output = "cat /home/alice/out.*; grep -i prolog /run/slurm/slurmd.log"
        assert slurm.wait(jobs, 120) == "COMPLETED", [its.stdout for its in slurm.hosts.run_all(["sh", "-c", output])]
    host.run(["scancel", walker], check=True)
    slurm.wait_idle()
    assert [etc(each) for each in slurm.hosts] == before
    every_job_has_run_once(slurm, jobs)


def is_one_world_of_two_versions(slurm: SlurmCluster, walker: str) -> None:
    """Look at a job that ran before there were hooks, and at a new one: all tasks see the same, the key as well."""
    newer = [b"99.0" in etc(each)["/mingle/hooks/slurm/prolog"][3] for each in slurm.hosts]
    assert newer == [True, True, False, False]
    assert len(world(slurm, f"--jobid={walker}", "--overlap").split()) == 3  # no key: its Prolog was the site's own
    assert len(world(slurm).split()) == 4


def every_job_has_run_once(slurm: SlurmCluster, jobs: str) -> None:
    """Every job ended well, with the site's Prolog and Epilog once on each of its nodes and TaskProlog in each task."""
    host = slurm.controller
    shown = host.run(["scontrol", "--oneliner", "show", "job", jobs], check=True).stdout
    assert Counter(re.findall(r"JobState=\S+|Restarts=\S+", shown)) == {"JobState=COMPLETED": 60, "Restarts=0": 60}
    # Slurm's own lines: on a busy machine a step waits, ends later than its job, or reports to its controller again.
    of_slurm = "-e '^srun: ' -e 'STEP .* CANCELLED' -e '^slurmstepd.* slurm_msg_sendto'"
    shown_last = host.run(["sh", "-c", f"cat /home/alice/out.* | grep -v {of_slurm}"]).stdout
    assert shown_last == ""
    listed = host.run(["squeue", "--noheader", "--states=all", "--array", "--format=%A %N"], check=True).stdout
    found = re.findall(r"\bJobId=(\d+) .*\bArrayTaskId=(\d+)", shown)
    its = {job for job, _ in found}
    assert len(its) == 60
    rows = (line.partition(" ") for line in listed.splitlines())  # another test's job that never ran has no nodes
    nodes = {job: expand(folded) for job, _, folded in rows if job in its}
    for each in slurm.hosts:
        wanted = Counter(job for job, names in nodes.items() if each.name in names)
        for name in ("prolog", "epilog"):
            path = each.outside(f"/run/site.{name}")

            def is_whole(path: Path = path, wanted: Counter[str] = wanted) -> bool:
                return Counter(job for job in path.read_text().split() if job in its) == wanted

            slurm.until(is_whole, f"{name} of each job on {each.name}")  # the last may be at work yet
    tasks = Counter(host.outside("/home/alice/site.taskprolog").read_text().split())
    assert [tasks[job] for job, _ in found] == [1 + 4 * (int(task) % 4 == 1) for _, task in found]


def test_a_job_that_runs_keeps_its_key_and_a_later_one_has_another(site: SlurmCluster) -> None:
    """The order of the page: no job starts while nodes have two keys, not even one whose Prolog is at work."""
    slurm, host = site, site.controller
    in_use(slurm)
    rotation = lines("Another key")
    before = slurm.submit(SLEEP, *FOUR, user="alice")
    slurm.wait_state(before, "RUNNING")
    key = world(slurm, f"--jobid={before}", "--overlap").split()[-1]
    host.run(["mkfifo", HOLD], check=True)
    with ExitStack() as opened:
        opened.callback(host.outside(HOLD).unlink)
        during = slurm.submit(SLEEP, *FOUR, user="alice")
        slurm.until(lambda: slurm.job(during)["Reason"] == "Prolog", "job in its Prolog")
        run(slurm, *rotation[:2])
        assert host.outside("/root/up").read_text() == "batch\n"
        queued = slurm.submit("true", *FOUR, user="alice")
        run(slurm, rotation[2].removeprefix("while ").partition(";")[0])  # it would wait
        opened.callback(os.close, os.open(host.outside(HOLD), os.O_RDWR))
        run(slurm, rotation[2])
    run(slurm, *rotation[3:-1])
    assert slurm.states(queued) == ["PENDING"]
    run(slurm, rotation[-1])
    states = host.run(["sinfo", "--all", "--noheader", "--format=%R %a"], check=True).stdout
    assert {*states.splitlines()} == {"batch up", "closed down"}
    assert slurm.wait(queued) == "COMPLETED"
    assert world(slurm, f"--jobid={before}", "--overlap").split()[-1] == key
    assert len(world(slurm, f"--jobid={during}", "--overlap").split()) == 4
    step = slurm.srun(f"--jobid={before}", "--overlap", "-N4", "-n4", *MINGLE_ENV, user="alice")
    assert step.returncode == 0, step.stderr
    assert slurm.srun("-N4", *MINGLE_ENV, user="alice").returncode == 0


def test_a_reimaged_node_is_as_the_others_before_it_runs_jobs(site: SlurmCluster) -> None:
    """With just the key and the settings, install writes the same files as on other nodes."""
    slurm = site
    in_use(slurm)
    new = lines("A new or reimaged node")
    run(slurm, new[0])
    slurm.hosts[3].run(["rm", "-rf", "/etc/mingle"], check=True)
    check = f"{new[-2]} || [ $? = 1 ]"
    assert "BAD  node4: " in run(slurm, check).stdout
    run(slurm, *new[1:])
    third, fourth = (
        {path: its for path, its in etc(each).items() if path.startswith("/mingle")} for each in slurm.hosts[2:]
    )
    assert third == fourth
    assert len(world(slurm).split()) == 4


def test_uninstalling_under_a_running_job_leaves_nothing_once_it_has_ended(site: SlurmCluster) -> None:
    """While it runs it keeps its key; no Epilog comes, so the next uninstall after its end removes what it has left."""
    slurm = site
    in_use(slurm)
    job = slurm.submit(SLEEP, *FOUR, user="alice")
    slurm.wait_state(job, "RUNNING")
    not_in_use(slurm)
    assert re.fullmatch("[0-9a-f]{64}", world(slurm, f"--jobid={job}", "--overlap").strip())
    slurm.controller.run(["scancel", job], check=True)
    slurm.wait(job)
    slurm.wait_idle()
    for each in slurm.hosts:
        assert each.outside(f"/run/mingle/{job}.stamp").exists()
        each.run(["mingle", "hooks", "uninstall", "slurm", "--yes"], check=True)
        assert each.outside("/run/site.epilog").read_text().split().count(job) == 1
        assert not any(each.outside(path).exists() for path in ("/run/mingle", LOCK_PATH, "/etc/mingle/hooks"))
