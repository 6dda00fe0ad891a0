"""What a job script requests, and what it starts: where, by which programs, and with which words."""

import pytest

from mingle_hooks.scripts import shell
from mingle_hooks.scripts.launches import Launch, read_jobs, requested

HEAD = "#SBATCH -N2\n"
R = "cat > d/r.sh <<E\ntorchrun x.py\nE\n"


def started(launch: Launch) -> str:
    """Return what is known of a launch: `PLACE PROGRAM <- STARTERS: HEAD | ARGS [STEP]`."""
    head, args, step = (
        " ".join(f"'{arg.text}'" if " " in arg.text else arg.text for arg in words)
        for words in (launch.head, launch.args, launch.step)
    )
    return f"{launch.place} {launch.program} <- {'>'.join(launch.chain)}: {head} | {args} [{step}]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  #SBATCH --nodes=4-2 # -n 9", (4, None, "slurm")), ("#SBATCH -n 8 --ntasks-per-node=3", (3, 8, "slurm")),
        ("#SBATCH --nodes 2 --ntasks-per-node=9\n#SBATCH -N3 --tasks-per-node 3", (3, 9, "slurm")),
        ("#!/bin/sh\n\n# c\n#SBATCH -N3\n \nls\n#SBATCH -N4 -n9", (3, None, "slurm")),
        ("#SBATCH -N1 -n1\n#SBATCH hetjob\n#SBATCH -N4\n#SBATCH packjob\n#SBATCH -N2", (4, None, "slurm")),
        ("#PBS -l select=2:ncpus=4:mpiprocs=3+4:mpiprocs=5+ncpus=1:mpiprocs=2+mpiprocs=1", (8, 29, "pbs")),
        ("#PBS -l select=1\n#PBS -l select=9:mpiprocs=2", (1, 18, "pbs")), ("#BSUB -nnodes 3 -N 4", (3, None, "lsf")),
        ("#PBS -l walltime=1,nodes=3:ppn=8 -N 9", (3, None, "pbs")), ("#PBS -lnodes=3:ppn=8", (3, None, "pbs")),
        ("#SBATCH -N2 --ntasks-per-n=4", (2, 8, "slurm")),
        ("srun -N9 x", (0, None, "")), ("#SBATCH -n2", (0, 2, "slurm")), ("#SBATCH -n 1", (1, 1, "slurm")),
    ],
)  # fmt: skip
def test_what_a_job_requests(text: str, expected: tuple[int, int | None, str]) -> None:
    """Nodes, tasks and the scheduler, by the last of sbatch's directives before a command, by the first of others."""
    assert requested(text) == expected
    assert requested(text, 5).nodes == 5


def test_a_submission_requests_what_its_words_and_directives_do() -> None:
    """Words of other commands are none."""
    script = "sbatch -N4 <<E\n#SBATCH -N2 -n8\nE\nqsub -l select=3 <<E\n#PBS -l select=2\nE\n"
    script += "cat -N4 <<E\n#PBS -l nodes=5\nE\nbsub -nnodes 4 <<E\n#BSUB -nnodes 2\nE\n"
    found = [job.requested for job in read_jobs(script)[1:]]
    assert found == [(4, 8, "slurm"), (3, None, "pbs"), (5, None, "pbs"), (4, None, "lsf")]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # Programs that start each other, with words in between; modules and scripts of Python.
        ("ray start", "batch ray start <- : ray start |  []"), ("srun bash -c", ""), ("eval", ""), ("mingle", ""),
        ("srun singularity exec i.sif sh -xc 'a; torchrun x.py' b",
         "step torchrun <- srun>singularity>exec>sh: torchrun | x.py [srun]"),
        ("mpiexec python -m pkg x", "step python <- mpiexec: python -m | pkg x [mpiexec]"), ("python -m", ""),
        # One host or all of them; what is srun's own, and what is a program of the user's.
        ("srun -N1 -n1 torchrun x.py", "host torchrun <- srun: torchrun | x.py [srun -N1 -n1]"),
        ("pbsdsh -v -n 1 torchrun x.py", "host torchrun <- pbsdsh: torchrun | x.py [pbsdsh -v -n 1]"),
        ("pbsdsh -n1 torchrun x.py", "host torchrun <- pbsdsh: torchrun | x.py [pbsdsh -n1]"),
        ("mpirun -np 1 torchrun x.py", "host torchrun <- mpirun: torchrun | x.py [mpirun -np 1]"),
        ("mpiexec -n1 torchrun x.py", "host torchrun <- mpiexec: torchrun | x.py [mpiexec -n1]"),
        ("mpirun -n2 -N 1 torchrun x.py", "step torchrun <- mpirun: torchrun | x.py [mpirun -n2 -N 1]"),
        # argparse takes the beginning of an option's name; those of the training script are its own.
        ("srun torchrun --nnod=2 --master_p 1 --m x.py --max 5 --stand",
         "step torchrun <- srun: torchrun | --nnodes=2 --master-port 1 --m x.py --max 5 --stand [srun]"),
        ("srun ray start --addr=a", "step ray start <- srun: ray start | --addr=a [srun]"),
        ("/bin/blaunch -z 'a b' torchrun x.py", "host torchrun <- blaunch: torchrun | x.py [/bin/blaunch -z 'a b']"),
        ("srun --job-name torchrun -J python3 -x $H $D torchrun x.py",
         "step torchrun <- srun: torchrun | x.py [srun --job-name torchrun -J python3 -x $H $D]"),
        ("srun -w h ./a b torchrun x.py", ""), ("srun --export=ALL,A= torchrun x.py", ""),
        # Texts that a shell reads.
        ("ssh h <<E\ntorchrun x.py\nE", "host torchrun <- ssh: torchrun | x.py [ssh h]"),
        ("pdsh -R ssh -w $L 'cd a; torchrun x.py'",
         "step torchrun <- pdsh: torchrun | x.py [pdsh -R ssh -w $L 'cd a; torchrun x.py']"),
        ("bash <<E\ntorchrun x.py\nE", "batch torchrun <- bash: torchrun | x.py [bash]"),
        ("srun bash <<E\ntorchrun \\$X x.py\nE", "step torchrun <- srun: torchrun | $X x.py [srun bash]"),
        ("tee <<E\ntorchrun x.py\nE", ""), ("f() { torchrun x.py; }\n", ""),
        ("f() { torchrun x.py; }\nsrun -n9 bash -c f", "step torchrun <- srun: torchrun | x.py [srun -n9 bash -c f]"),
        ("f() { torchrun x.py; }\ng() { f; }\nsrun sh -c g", "step torchrun <- : torchrun | x.py []"),
        (f"{R}chmod +x d/r.sh; rm d/r.sh", ""), (f"{R}bash r.sh", "batch torchrun <- : torchrun | x.py []"),
        (f"{R}srun -n2 bash ./r.sh", "step torchrun <- srun: torchrun | x.py [srun -n2 bash ./r.sh]"),
        # Values of variables.
        ("C=torchrun\nC+=' -a'\nC=(deepspeed # -b\n -c)\n${C[*]} x.py\nC+=d",
         "batch deepspeed <- : deepspeed | -c x.py []"),
        ("torchrun $C $D x.py\nC=a\nC=b\nD=$(e)", "batch torchrun <- : torchrun | b $D x.py []"),
        ("C='a b'\nD=(c d)\nE=$C\ntorchrun \"$C\" \"$D\" $E", "batch torchrun <- : torchrun | 'a b' c d a b []"),
        ("C=a\n: ${C:=torchrun}\n$C x.py", "batch torchrun <- : torchrun | x.py []"),
        ("C=$D\nD=$C\ntorchrun $C x.py", "batch torchrun <- : torchrun | $C x.py []"),
        (": ${C:=torchrun -a} ${D=b}\n$C $D x.py", "batch torchrun <- : torchrun | -a b x.py []"),
        # Jobs that this one submits.
        ("sbatch -N4 <<E\nsrun torchrun y.py\nE", "step torchrun <- srun: torchrun | y.py [srun]"),
        ("sbatch --wrap 'srun torchrun y.py'", "step torchrun <- srun: torchrun | y.py [srun]"),
        ("sbatch --wrap", ""), ("cat <<E\nsrun torchrun y.py\nE", ""),
    ],
)  # fmt: skip
def test_what_a_script_starts(script: str, expected: str) -> None:
    """Once each, with the words that it gets."""
    found = [started(one) for job in read_jobs(HEAD + script) for one in job.launches]
    assert found == ([expected] if expected else [])


def test_jobs_of_a_script_share_its_lines() -> None:
    """There may be as many jobs as lines, and each would take as long as the whole script."""
    jobs = read_jobs("cat > a <<E\n#SBATCH -N2\nE\n" * 3)
    assert len({id(job._line_ends) for job in jobs}) == 1
    assert [job.line(job.source.start) for job in jobs] == [1, 2, 5, 8]


@pytest.mark.parametrize("use", ['bash -c "$A"', "srun $A"])
@pytest.mark.parametrize("value", ["#" + "x" * 7000, "a;" * 3500])
def test_a_long_value_is_not_read_at_each_of_many_uses(use: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read grows with the script's length, not with its square."""
    read, sizes = shell.read, []

    def counted(source: shell.Text, frames: tuple[shell.Frame, ...] = ()) -> shell.Script:
        sizes.append(len(source.text))
        return read(source, frames)

    monkeypatch.setattr(shell, "read", counted)
    script = f"A='{value}'\n" + f"{use}\n" * 500
    read_jobs(script)
    assert sum(sizes) < 20 * len(script)


def test_options_of_a_launch_are_found_by_their_names() -> None:
    """With - or _, joined or apart; and each word where the script has it."""
    script = "C=--x\ntorchrun --a_b=1 $C 2 $D --standalone x.py --last"
    (found,) = read_jobs(script)[0].launches
    options = [found.option(*names) for names in (("--a-b",), ("--no", "--x"), ("--last",), ("--none",))]
    assert [one and one.text for one in options] == ["1", "2", "--last", None]
    assert (found.has("--x"), found.has("--y")) == (True, False)
    assert (found.has_value("--x", "2"), found.has_value("--x", "3")) == (True, False)
    assert (found.script, found.is_open, found.standalone == found.args[4], found.is_mingle) == (5, True, True, False)
    places = [script[place.start : place.end] for place in (found.at, found.args[1].use, found.args[1].word)]
    assert places == ["torchrun", "$C", "--x"]


def test_a_job_knows_its_variables_steps_and_conditions() -> None:
    """Those that are used or exported, and where a command may not run."""
    conditions = ["if j; then k; case l in m) n;; esac; fi", "if p; then q; fi"]
    script = f"A=1 b\nC=1\nexport D=$E\nsrun F=${{G}} h\nsrun srun i\n{conditions[0]}\no\nsh -c '{conditions[1]}'\n"
    (job,) = read_jobs(script)
    exported = {"A", "D", "F", "export", "srun", "h", "i"}
    assert (job.referred, job.exported, job.used) == ({"E", "G"}, exported, {"E", "G", *exported})
    assert [script[one.start : one.end] for one in job.steps] == ["srun F=${G} h", "srun srun i"]
    assert [script[start:end] for start, end in job.conditions] == conditions
    assert "".join(char for at, char in enumerate(script) if job.is_conditional(at)) == "".join(conditions)
    values = {name: [one.value.text for one in found] for name, found in job.assignments.items()}
    assert values == {"A": ["1"], "C": ["1"], "D": ["$E"], "F": ["${G}"]}
