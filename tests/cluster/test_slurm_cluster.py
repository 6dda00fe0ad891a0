from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.slurm import SlurmCluster

SHOW = 'echo "$SLURM_JOB_NUM_NODES $SLURM_NODEID $(hostname) $(id -un)"'


def test_every_host_is_idle_at_the_start(slurm: SlurmCluster) -> None:
    """A test gets four idle hosts."""
    assert slurm.sinfo() == {f"node{i}": "idle" for i in (1, 2, 3, 4)}


def test_srun_runs_one_task_on_each_host_as_alice(slurm: SlurmCluster, alice: str) -> None:
    """`srun -N4` runs on all hosts, as the user who called it."""
    done = slurm.srun("-N4", "sh", "-c", SHOW, user=alice)
    assert sorted(done.stdout.splitlines()) == [f"4 {i} node{i + 1} alice" for i in range(4)]
    assert done.returncode == 0


def test_srun_hands_on_the_status_of_its_tasks(slurm: SlurmCluster) -> None:
    """A failing task is srun's failure."""
    assert slurm.srun("-N2", "sh", "-c", "exit 7").returncode == 7


def test_a_batch_script_runs_on_the_first_host_and_its_steps_on_all(slurm: SlurmCluster, alice: str) -> None:
    """A job that alice gives in writes its output to her home."""
    job = slurm.submit("hostname; srun hostname | sort", "-N3", user=alice)
    assert slurm.wait(job) == "COMPLETED"
    output = slurm.hosts[2].outside(f"/home/alice/slurm-{job}.out")
    assert output.read_text().split() == ["node1", "node1", "node2", "node3"]
    assert output.stat().st_uid == 61001


def test_a_failing_batch_script_is_a_failed_job(slurm: SlurmCluster) -> None:
    """`wait` returns the state that Slurm gives the job."""
    assert slurm.wait(slurm.submit("exit 3")) == "FAILED"


def test_two_jobs_run_on_the_same_hosts_at_once(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Two jobs of half the processors each share all hosts: each waits for the other and both end."""
    wait_for = 'touch "$0.$1"; until [ -e "$0.$2" ]; do sleep 0.05; done'
    meet = f"srun sh -c '{wait_for}' {tmp_path}/here"
    jobs = [slurm.submit(f"{meet} {one}", "-N4", "-c2") for one in ("one two", "two one")]
    assert [slurm.wait(job) for job in jobs] == ["COMPLETED", "COMPLETED"]


def test_a_requeued_job_runs_again_and_knows_it(slurm: SlurmCluster, tmp_path: Path, alice: str) -> None:
    """After `scontrol requeue` the job runs once more with SLURM_RESTART_COUNT=1."""
    script = f'echo "${{SLURM_RESTART_COUNT-first}}" >>{tmp_path}/runs; [ "$SLURM_RESTART_COUNT" ] || sleep 1000'
    job = slurm.submit(script, "-N2", "--requeue", user=alice)
    slurm.until((tmp_path / "runs").exists, "first run")
    slurm.requeue(job)
    assert slurm.wait(job) == "COMPLETED"
    assert (tmp_path / "runs").read_text().split() == ["first", "1"]


def test_a_heterogeneous_job_spans_its_groups(slurm: SlurmCluster, alice: str) -> None:
    """Both groups of a het job start together, each on its own hosts."""
    done = slurm.srun(
        *(
            "-N1",
            "sh",
            "-c",
            "echo $SLURM_HET_SIZE $(hostname)",
            ":",
            "-N2",
            "sh",
            "-c",
            "echo $SLURM_HET_SIZE $(hostname)",
        ),
        user=alice,
    )
    assert sorted(done.stdout.splitlines()) == ["2 node1", "2 node2", "2 node3"]


def test_each_task_of_an_array_is_waited_for(slurm: SlurmCluster) -> None:
    """An array is over when all its tasks are, and its state is that of a task that failed, if one did."""
    assert slurm.wait(slurm.submit("exit $((SLURM_ARRAY_TASK_ID == 2))", "--array=1-3")) == "FAILED"


def test_hooks_run_after_a_reconfigure(slurm: SlurmCluster, alice: str) -> None:
    """Lines given to `reconfigure` count from then on: a Prolog on each host, and a TaskProlog."""
    slurm.hosts[0].write("/etc/slurm/prolog.sh", "#!/bin/sh\nid -u >/run/prolog-was-here\n", mode=0o755)
    slurm.hosts[0].write("/etc/slurm/task_prolog.sh", "#!/bin/sh\necho export X=from-hook\n", mode=0o755)
    slurm.reconfigure("PrologFlags=Alloc", "Prolog=/etc/slurm/prolog.sh", "TaskProlog=/etc/slurm/task_prolog.sh")
    done = slurm.srun("-N4", "sh", "-c", "echo $X $(cat /run/prolog-was-here)", user=alice)
    assert done.stdout == "from-hook 0\n" * 4


def test_a_drained_host_is_told_by_its_state_and_works_again_when_resumed(slurm: SlurmCluster) -> None:
    """`sinfo` tells a drained host, and cancel_all brings it back."""
    slurm.hosts[0].run(["scontrol", "update", "nodename=node2", "state=drain", "reason=test"], check=True)
    assert slurm.sinfo()["node2"] == "drained"
    slurm.cancel_all()
    assert slurm.sinfo()["node2"] == "idle"


def test_a_slurm_of_its_own_has_the_size_and_lines_asked_for(
    fresh_slurm: Callable[..., SlurmCluster],
) -> None:
    """A fresh cluster takes a number of hosts, processors on each, and lines of slurm.conf."""
    cluster = fresh_slurm(2, cpus=8, conf_lines=["TaskProlog=/etc/slurm/none.sh"])
    assert len(cluster.sinfo()) == 2
    shown = cluster.hosts[1].run(["scontrol", "show", "config"], check=True).stdout
    assert "/etc/slurm/none.sh" in shown
    assert cluster.srun("-N2", "-n16", "true").returncode != 0  # the TaskProlog is not there


def test_one_test_after_another_finds_the_first_settings(slurm: SlurmCluster) -> None:
    """No line of another test's reconfigure is left."""
    shown = slurm.hosts[0].run(["scontrol", "show", "config"], check=True).stdout
    assert "prolog.sh" not in shown
    assert slurm.conf_lines == []
