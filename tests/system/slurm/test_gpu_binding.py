"""GPUs that a real Slurm gives one to a task: seen, noted, and shown to all tasks of the node with --bind gpu."""

from collections.abc import Callable
from pathlib import Path

from cluster.slurm import SlurmCluster
from support.executables import executable
from support.members import KEYED

# A host's /dev is the machine's own: each task gets one with the GPUs that its host would have.
WITH_GPUS = """\
#!/bin/sh -e
mount -t tmpfs none /mnt
for name in null zero full random urandom tty; do mknod /mnt/$name c $(stat -c '0x%t 0x%T' /dev/$name); done
for number in 0 1 2 3; do mknod /mnt/nvidia$number c 195 $number; done
ln -s /proc/self/fd /mnt/fd
mount --move /mnt /dev
exec "$@"
"""
SHOW = 'echo "$RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES $ZE_AFFINITY_MASK $MINGLE_EXPORTS" >>$0.$SLURM_PROCID'
PER_TASK = ("--ntasks-per-node=4", "--gpus-per-task=1", "--mem-per-cpu=100")
NOTE = "this task sees one of the node's 4 GPUs (CUDA_VISIBLE_DEVICES=1)"


def test_each_task_sees_the_gpus_of_its_node(fresh_slurm: Callable[..., SlurmCluster], tmp_path: Path) -> None:
    """LOCAL_RANK selects one of them; without --bind gpu one task of the job tells of it, and nothing changes."""
    cluster = fresh_slurm(2, cpus=8, gpus=4, conf_lines=["GresTypes=gpu", "SelectTypeParameters=CR_CPU_Memory"])
    program = executable(tmp_path / "with-gpus", WITH_GPUS)
    inside = ("unshare", "--mount", str(program), "mingle", "exec", "--scope", "task")

    def step(name: str, *mingle: str) -> tuple[list[str], list[str]]:
        done = cluster.srun("-N2", *PER_TASK, *inside, *mingle, "sh", "-c", SHOW, str(tmp_path / name), env=KEYED)
        assert done.returncode == 0, done.stderr
        paths = sorted(tmp_path.glob(f"{name}.*"))
        notes = [line for line in done.stderr.splitlines() if "GPU" in line]  # others wait on a busy machine
        return [" ".join(path.read_text().split()[:4]) for path in paths], notes

    every = "0,1,2,3"
    seen, notes = step("as-it-is")
    assert seen == [f"{rank} {rank % 4} {rank % 4} {rank % 4}" for rank in range(8)]
    assert [NOTE in line for line in notes] == [True]
    bound, notes = step("bound", "--bind", "gpu")
    assert bound == [f"{rank} {rank % 4} {every} {every}" for rank in range(8)]
    assert notes == []
    assert "VISIBLE" not in (tmp_path / "bound.0").read_text().partition(every)[2]
