"""Users of a real Slurm who try what the hooks were not made for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hooked_slurm import all_idle, nothing_left

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

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


def test_bobs_job_on_the_same_nodes_gets_at_nothing_of_alices(hooked: SlurmCluster) -> None:
    """While both run, bob can neither read alice's key nor put anything in its place, or in a later job's."""
    job = hooked.submit("sleep 60", "-N4", "-n4", "-o", "/dev/null", user="alice")
    hooked.wait_state(job, "RUNNING")
    tries = f"""
        cd /run/mingle || exit 9
        for try in "cat {job}/key" "ls {job}" "ln -s /etc/passwd {job}/x" "mv {job} y" "rm -rf {job}" \
            "cat {job}.stamp" "mkdir 99999" "ln -s /tmp 99999" "touch .old.{job}.1" "cat /etc/mingle/key"; do
          ! $try || echo "could: $try"
        done
        cat $SLURM_JOB_ID/key"""
    done = hooked.srun("-N4", "-n4", "/bin/sh", "-c", tries, user="bob")
    assert "could" not in done.stdout
    assert len(set(done.stdout.split())) == 1  # his own key, the same on all nodes
    alices = hooked.controller.outside(f"/run/mingle/{job}/key").read_text().strip()
    assert alices != done.stdout.split()[0]
    hooked.cancel_all()
    nothing_left(hooked)


def test_what_a_user_plants_in_a_job_reaches_nobody_when_it_ends(hooked: SlurmCluster) -> None:
    """Links, special files and a forged list of processes in the job's directory: all is gone, and nothing else is."""
    hooked.controller.run(["sh", "-c", "echo precious >/etc/precious; chmod 0600 /etc/precious"], check=True)
    plant = """
        cd /run/mingle/$SLURM_JOB_ID && rm key && ln -s /etc/precious key && ln -s /etc deep && mkfifo fifo &&
        printf '%s\\n' '1 1' '-1 1' "$PPID 0" >processes && mkdir -p a/b && ln -s /etc/precious a/b/c && chmod 0 a"""
    done = hooked.srun("-N4", "-n4", "/bin/sh", "-c", plant, user="alice")
    assert done.returncode == 0, done.stderr
    nothing_left(hooked)
    precious = hooked.controller.outside("/etc/precious")
    assert (precious.read_text(), precious.stat().st_uid, precious.stat().st_mode & 0o777) == ("precious\n", 0, 0o600)
    hooked.controller.run(["rm", "/etc/precious"], check=True)
