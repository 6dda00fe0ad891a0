"""The installed hooks on a real Slurm: what jobs get, and that no node is ever drained."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from cluster.slurm import SlurmCluster

PROJECT = Path(__file__).parent.parent.parent
SITE_KEY = "36" * 16 + "5c" * 8 + "00ff" * 4  # the octets that HMAC's pads turn into NUL, and others
MINGLE_HOOKS = ["mingle", "hooks"]
SHOW = "/home/alice/show.py"
SHOW_TEXT = """
import json, os, sys
names = ["MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
         "SLURM_PROCID", "SLURMD_NODENAME", "MINGLE_ID"]
names += sorted(n for n in os.environ if n.startswith("PET_"))
print(json.dumps({n: os.environ.get(n) for n in names}), flush=True)
"""
# Plain torch.distributed, as a user would write it: all from the environment, and a sum that needs everybody.
TRAIN = "/home/alice/train.py"
TRAIN_TEXT = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} sum {total.item():.0f}\\n".encode())
dist.destroy_process_group()
"""


def installed(slurm: SlurmCluster, *more: str, key: str | None = SITE_KEY, settings: str = "") -> None:
    """Install the hooks on all hosts (they share /etc) and let Slurm use the lines that install prints."""
    host = slurm.controller
    if key is not None:
        host.write("/etc/mingle/key", key + "\n", mode=0o400)
    if settings:
        host.write("/etc/mingle/mingle.toml", settings)
    done = host.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    lines = [line.partition(" ")[0] for line in done.stdout.splitlines() if "=/" in line or "Flags=" in line]
    assert [line.partition("=")[0] for line in lines] == ["Prolog", "Epilog", "TaskProlog", "PrologFlags"]
    slurm.reconfigure(*lines, *more)
    host.write(SHOW, SHOW_TEXT)
    host.write(TRAIN, TRAIN_TEXT)


@pytest.fixture
def hooked(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the shared Slurm with the hooks installed, and take them away afterwards."""
    installed(slurm)
    yield slurm
    host = slurm.controller
    slurm.cancel_all()
    slurm.reconfigure()
    host.run([*MINGLE_HOOKS, "uninstall", "slurm", "--yes"], check=True)
    host.run(["rm", "-rf", "/etc/mingle", SHOW, TRAIN], check=True)
    for each in slurm.hosts:
        each.run(["rm", "-rf", "/run/mingle"], check=True)


def shown(done: subprocess.CompletedProcess[str]) -> list[dict[str, str | None]]:
    """Return what every task saw, in rank order."""
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda seen: int(seen["SLURM_PROCID"]))


def all_idle(slurm: SlurmCluster) -> None:
    """Fail unless every node is idle and takes a job."""
    slurm.wait_idle()
    assert set(slurm.sinfo().values()) == {"idle"}


def test_one_task_per_node_gets_what_torchrun_reads(hooked: SlurmCluster) -> None:
    """A step of one task on each node has the whole set of PET_*, one address and one port."""
    seen = shown(hooked.srun("-N4", "python", SHOW, user="alice"))
    assert [s["PET_NODE_RANK"] for s in seen] == [s["NODE_RANK"] for s in seen] == list("0123")
    assert {s["MASTER_ADDR"] for s in seen} == {s["PET_MASTER_ADDR"] for s in seen} == {"node1"}
    assert len({s["MASTER_PORT"] for s in seen}) == len({s["PET_MASTER_PORT"] for s in seen}) == 1
    assert {s["PET_NNODES"] for s in seen} == {"4"}


def test_several_tasks_per_node_get_ranks_and_no_torchrun(hooked: SlurmCluster) -> None:
    """A step of two tasks on each node has every rank once, and no PET_*."""
    seen = shown(hooked.srun("-N4", "--ntasks-per-node=2", "python", SHOW, user="alice"))
    assert [s["RANK"] for s in seen] == [str(i) for i in range(8)]
    assert [s["LOCAL_RANK"] for s in seen] == list("01") * 4
    assert {s["WORLD_SIZE"] for s in seen} == {"8"}
    assert not [name for s in seen for name in s if name.startswith("PET_")]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("argv", "ranks"),
    [(("-N4", "torchrun", TRAIN), 4), (("-N4", "--ntasks-per-node=2", "python", TRAIN), 8)],
    ids=["torchrun", "python"],
)
def test_an_unchanged_torch_script_trains(hooked: SlurmCluster, argv: tuple[str, ...], ranks: int) -> None:
    """A torch script whose user never heard of the project reduces over all nodes."""
    pytest.importorskip("torch", reason="for want of torch")
    done = hooked.srun(*argv, user="alice", timeout=200)
    total = ranks * (ranks + 1) // 2
    found = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert found == [f"rank {i} of {ranks} sum {total}" for i in range(ranks)], done.stderr


def test_a_step_on_part_of_a_job_has_its_own_world(hooked: SlurmCluster) -> None:
    """In a batch job, the batch script has no NODE_RANK, and a relative step starts at its own first host."""
    script = f"python {SHOW}\nsrun -N2 -n2 -r1 python {SHOW}\nsrun -N4 python {SHOW}\n"
    job = hooked.submit(script, "-N4", "--ntasks-per-node=1", "-o", "/home/alice/out", user="alice")
    assert hooked.wait(job) == "COMPLETED"
    seen = [json.loads(line) for line in hooked.controller.outside("/home/alice/out").read_text().splitlines()]
    batch, part, whole = seen[0], seen[1:3], seen[3:]
    assert batch["NODE_RANK"] is None
    assert batch["RANK"] is None
    assert (batch["MASTER_ADDR"], batch["NNODES"]) == ("node1", "4")
    assert {(s["MASTER_ADDR"], s["NNODES"]) for s in part} == {("node2", "2")}
    assert {(s["MASTER_ADDR"], s["NNODES"]) for s in whole} == {("node1", "4")}
    assert sorted(s["NODE_RANK"] for s in part) == ["0", "1"]
    assert len({part[0]["MASTER_PORT"], whole[0]["MASTER_PORT"]}) == 2


def test_what_the_user_set_stays(hooked: SlurmCluster) -> None:
    """A user's own MASTER_ADDR and MASTER_PORT reach every task, and torchrun is given the same."""
    env = {"MASTER_ADDR": "10.77.0.2", "MASTER_PORT": "4242"}
    seen = shown(hooked.srun("-N2", "python", SHOW, user="alice", env=env))
    assert {(s["MASTER_ADDR"], s["MASTER_PORT"]) for s in seen} == {("10.77.0.2", "4242")}
    assert {(s["PET_MASTER_ADDR"], s["PET_MASTER_PORT"]) for s in seen} == {("10.77.0.2", "4242")}
    assert {s["MINGLE_ID"] for s in seen} == {None}


def test_two_jobs_at_once_have_two_ports(hooked: SlurmCluster) -> None:
    """Two jobs on the same nodes share the address and not the port."""
    script = f"srun -N4 --overlap python {SHOW}; sleep 1"
    jobs = [hooked.submit(script, "-N4", "-n4", "-o", f"/home/alice/two.{i}", user="alice") for i in range(2)]
    assert [hooked.wait(job) for job in jobs] == ["COMPLETED"] * 2
    seen = [
        json.loads(line)
        for i in range(2)
        for line in hooked.controller.outside(f"/home/alice/two.{i}").read_text().splitlines()
    ]
    assert len(seen) == 8
    assert {s["MASTER_ADDR"] for s in seen} == {"node1"}
    assert len({s["MASTER_PORT"] for s in seen}) == 2


def test_a_step_over_het_groups_starts_at_group_zero(hooked: SlurmCluster) -> None:
    """Slurm sorts such a step's host list by name, but rank 0 is on the first group's host."""
    argv = ["salloc", "-N1", "-w", "node4", ":", "-N2", "-w", "node2,node3"]
    key = "cat /run/mingle/$SLURM_JOB_ID/key"
    tasks = ["srun", "--het-group=0,1", "bash", "-c", f"python {SHOW}; {key}"]
    done = hooked.controller.run([*argv, *tasks], user="alice", timeout=60)
    seen = shown(done)
    assert [(s["MASTER_ADDR"], s["NODE_RANK"], s["SLURMD_NODENAME"]) for s in seen] == [
        ("node4", "0", "node4"),
        ("node4", "1", "node2"),
        ("node4", "2", "node3"),
    ]
    keys = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_arrays_have_a_port_for_each_task(hooked: SlurmCluster) -> None:
    """The jobs of an array differ in their ports."""
    script = f"srun -N2 python {SHOW}"
    job = hooked.submit(script, "--array=1-2", "-N2", "-n2", "-o", "/home/alice/array.%a", user="alice")
    assert hooked.wait(job) == "COMPLETED"
    texts = [hooked.controller.outside(f"/home/alice/array.{i}").read_text() for i in (1, 2)]
    ports = [{json.loads(line)["MASTER_PORT"] for line in text.splitlines()} for text in texts]
    assert [len(each) for each in ports] == [1, 1]
    assert ports[0] != ports[1]


def test_a_batch_job_given_in_by_a_step_is_not_taken_for_a_step(hooked: SlurmCluster) -> None:
    """Slurm 22.05 leaves the outer step's variables in such a job's environment."""
    inner = f"#!/bin/sh\\npython {SHOW}\\n"
    command = f"printf '{inner}' | sbatch --wait -N3 -n3 -o /home/alice/inner"
    done = hooked.srun("-N1", "bash", "-c", command, user="alice")
    assert done.returncode == 0, done.stderr
    seen = json.loads(hooked.controller.outside("/home/alice/inner").read_text())
    assert (seen["NNODES"], seen["NODE_RANK"], seen.get("PET_NNODES")) == (
        "3", None, None,
    )  # fmt: skip


def test_every_node_has_the_jobs_key_and_nobody_else_reads_it(hooked: SlurmCluster) -> None:
    """The key is HMAC-SHA-256 of the site's key, the same on all nodes, the user's alone, gone afterwards."""
    command = "cat /run/mingle/$SLURM_JOB_ID/key; stat -c '%a %U' /run/mingle/$SLURM_JOB_ID{,/key}; ls /run/mingle"
    done = hooked.srun("-N4", "bash", "-c", f"echo $SLURM_JOB_ID; {command}", user="alice")
    lines = done.stdout.split("\n")
    job, uid = lines[0], hooked.controller.run(["id", "-u", "alice"]).stdout.strip()
    text = f"mingle job key 1|cluster|mingle|{job}|{uid}|0"
    key = hmac.new(bytes.fromhex(SITE_KEY), text.encode(), hashlib.sha256).hexdigest()
    assert lines.count(key) == 4
    assert lines.count("700 alice") == lines.count("600 alice") == 4
    hooked.wait_idle()
    hooked.until(
        lambda: not any(p.name for host in hooked.hosts for p in host.outside("/run/mingle").iterdir()),
        "empty",
    )


def test_a_requeued_job_has_its_variables_and_another_key(hooked: SlurmCluster) -> None:
    """The restart count is part of the key, so an attempt never meets its own past."""
    script = f"""
        python {SHOW} >> /home/alice/requeued
        cat /run/mingle/$SLURM_JOB_ID/key >> /home/alice/keys.${{SLURM_RESTART_COUNT:-0}}
        [ -n "$SLURM_RESTART_COUNT" ] || exec sleep 60
        """
    job = hooked.submit(script, "-N2", "--requeue", "-o", "/dev/null", user="alice")
    first = hooked.controller.outside("/home/alice/keys.0")
    hooked.until(lambda: first.exists() and first.read_text().endswith("\n"), "first key")
    # Not at once: slurmd revokes the first credential, and all that are made within the same second.
    for argv in (["requeue", job], ["update", f"jobid={job}", "starttime=now+3"]):
        hooked.controller.run(["scontrol", *argv], check=True)
    assert hooked.wait(job) == "COMPLETED"
    seen = hooked.controller.outside("/home/alice/requeued")
    shown = [json.loads(line) for line in seen.read_text().splitlines()]
    second = hooked.controller.outside("/home/alice/keys.1")
    keys = [first.read_text(), second.read_text()]
    for path in (seen, first, second):
        path.unlink()
    assert [(each["MASTER_ADDR"], each["NNODES"]) for each in shown] == [("node1", "2")] * 2
    assert keys[0] != keys[1]
    assert [len(key) for key in keys] == [65, 65]
    all_idle(hooked)


BROKEN: dict[str, Callable[[SlurmCluster], object]] = {
    "no site key": lambda slurm: slurm.controller.run(["rm", "-f", "/etc/mingle/key"]),
    "a site key that others read": lambda slurm: slurm.controller.run(["chmod", "0644", "/etc/mingle/key"]),
    "a site key that is a directory": lambda slurm: slurm.controller.run(
        ["sh", "-c", "rm -f /etc/mingle/key; mkdir /etc/mingle/key"]
    ),
    "a site key of garbage": lambda slurm: slurm.controller.write("/etc/mingle/key", "\x00$(reboot)\n", mode=0o400),
    "a site key that is a FIFO": lambda slurm: slurm.controller.run(
        ["sh", "-c", "rm -f /etc/mingle/key; mkfifo -m 0400 /etc/mingle/key"]
    ),
    "garbage settings": lambda slurm: slurm.controller.write("/etc/mingle/mingle.toml", "[[[ \x00 $(reboot)"),
    "the kill switch": lambda slurm: slurm.controller.write("/etc/mingle/disabled", ""),
    "/run/mingle is a link": lambda slurm: [
        h.run(["sh", "-c", "rm -rf /run/mingle; mkdir -p /run/elsewhere; ln -s /run/elsewhere /run/mingle"])
        for h in slurm.hosts
    ],
    "/run/mingle is a file": lambda slurm: [
        h.run(["sh", "-c", "rm -rf /run/mingle; touch /run/mingle"]) for h in slurm.hosts
    ],
    "/run/mingle is for all to write": lambda slurm: [
        h.run(["sh", "-c", "mkdir -p /run/mingle; chmod 1777 /run/mingle"]) for h in slurm.hosts
    ],
    "/run/mingle is read-only": lambda slurm: [
        h.run(["sh", "-c", "mkdir -p -m 0755 /run/mingle; mount -t tmpfs -o ro,mode=0755 none /run/mingle"])
        for h in slurm.hosts
    ],
    "/run/mingle is full": lambda slurm: [
        h.run(
            [
                "sh",
                "-c",
                "mkdir -p -m 0755 /run/mingle; mount -t tmpfs -o size=4k,nr_inodes=2,mode=0755 none /run/mingle",
            ]
        )
        for h in slurm.hosts
    ],
    "no name service": lambda slurm: slurm.controller.write("/etc/resolv.conf", "nameserver 10.77.0.99\n"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_no_node_is_drained_and_no_job_lost_when_broken(hooked: SlurmCluster, how: str) -> None:
    """Whatever is broken, jobs run, and all nodes are idle afterwards."""
    resolv = hooked.controller.outside("/etc/resolv.conf")
    before = resolv.read_text() if resolv.exists() else ""
    BROKEN[how](hooked)
    try:
        done = hooked.srun("-N4", "--ntasks-per-node=2", "python", SHOW, user="alice")
        assert len(shown(done)) == 8
        job = hooked.submit(f"srun python {SHOW}", "-N2", "-n2", "-o", "/dev/null", user="alice")
        assert hooked.wait(job) == "COMPLETED"
        all_idle(hooked)
        assert not any(list(host.outside("/run/elsewhere").glob("*")) for host in hooked.hosts)
    finally:
        for host in hooked.hosts:
            host.run(["sh", "-c", "umount /run/mingle; rm -rf /run/mingle /run/elsewhere"])
        hooked.controller.write("/etc/resolv.conf", before)
        hooked.controller.run(["rm", "-rf", "/etc/mingle/key", "/etc/mingle/mingle.toml", "/etc/mingle/disabled"])


HOSTILE = "$(touch /run/lock/owned);`touch /run/lock/owned`'\"\n\x1b[2J;touch /run/lock/owned #"


def test_hostile_text_of_a_user_runs_nowhere(hooked: SlurmCluster) -> None:
    """Comment, job name, working directory and environment go through the hooks without being run."""
    host = hooked.controller
    place = "/home/alice/a $(touch &)'\";`b`"
    host.run(["mkdir", "-p", place], user="alice", check=True)
    names = (
        "MINGLE_EXPORTS",
        "CUDA_VISIBLE_DEVICES",
        "SLURM_JOB_COMMENT",
        "SPANK_X",
        "IFS",
        "ENV",
        "BASH_ENV",
        "PS4",
    )
    env = dict.fromkeys(names, HOSTILE)
    text = HOSTILE.replace("\n", " ")
    job_options = ["--comment", text, "-J", text, "--chdir", place]
    done = hooked.srun("-N4", *job_options, "/bin/sh", "-c", "echo $MASTER_ADDR", user="alice", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["node1"] * 4
    all_idle(hooked)
    assert not any(each.outside("/run/lock/owned").exists() for each in hooked.hosts)


def test_without_python_and_mingle_jobs_get_the_same(hooked: SlurmCluster) -> None:
    """The hooks need /bin/sh and nothing of what installed them: here every Python and the project are hidden."""
    found = hooked.controller.run(["sh", "-c", "ls -d /usr/bin/python3* /usr/bin/mingle /usr/local/bin/mingle"])
    hidden = [*found.stdout.split(), sys.prefix, sys.base_prefix, str(PROJECT)]
    hide = "[ -d {0} ] && mount -t tmpfs none {0} || mount --bind /dev/null {0}"
    for host in hooked.hosts:
        for path in hidden:
            host.run(["/bin/sh", "-c", hide.format(path)], check=True)
    try:
        assert hooked.controller.run(["/bin/sh", "-c", "python3 -c pass || mingle --version"]).returncode != 0
        show = "echo $MASTER_ADDR $NODE_RANK $RANK; cat /run/mingle/$SLURM_JOB_ID/key"
        done = hooked.srun("-N4", "/bin/sh", "-c", show, user="alice")
        lines = done.stdout.splitlines()
        assert sorted(line for line in lines if " " in line) == [f"node1 {i} {i}" for i in range(4)]
        assert len(lines) == 8
        all_idle(hooked)
    finally:
        for host in hooked.hosts:
            for path in reversed(hidden):
                host.run(["/bin/sh", "-c", f"umount {path}"], check=True)


def test_opt_in_acts_where_the_comment_asks(slurm: SlurmCluster, request: pytest.FixtureRequest) -> None:
    """With opt_in, only jobs whose comment holds the word get anything."""
    hooked = request.getfixturevalue("hooked")
    hooked.controller.write("/etc/mingle/mingle.toml", '[hooks]\nopt_in = "please"\n')
    hooked.controller.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    show = ("/bin/sh", "-c", "echo ${MASTER_ADDR-none}")
    for comment, address in (("a please, b", "node1"), ("pleased", "none"), ("", "none")):
        done = hooked.srun("-N2", f"--comment={comment}", *show, user="alice")
        assert done.stdout.split() == [address] * 2
    assert slurm is hooked


def test_many_jobs_at_once_leave_every_node_idle(hooked: SlurmCluster) -> None:
    """Forty jobs through four nodes, with steps, and hooks for each: all end well, and nothing is left."""
    script = "srun --overlap -n2 /bin/sh -c '[ -n \"$MASTER_ADDR\" ]'"
    job = hooked.submit(script, "--array=1-40", "-N1", "-n2", "-o", "/dev/null", user="alice")
    assert hooked.wait(job, timeout=240) == "COMPLETED"
    all_idle(hooked)
    hooked.until(lambda: not any(list(h.outside("/run/mingle").iterdir()) for h in hooked.hosts), "empty /run/mingle")
