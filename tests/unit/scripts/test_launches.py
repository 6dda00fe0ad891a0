"""What a job script requests, and what it starts: where, by which programs, and with which words."""

import pytest

from mingle_hooks.scripts.launches import Launch, Requested, read_jobs, requested

HEAD = "#SBATCH -N2\n"
F = "f() { torchrun x.py; }\n"
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
        ("srun -N9 x", (0, None, "")), ("#SBATCH -N2\n#SBATCH -N 3 -n 4", (2, 4, "slurm")),
        ("  #SBATCH --nodes=4-2 # -n 9", (4, None, "slurm")),
        ("#SBATCH --nodes 2 --ntasks-per-node 3", (2, 6, "slurm")),
        ("#SBATCH -n 8 --ntasks-per-node=3", (3, 8, "slurm")),
        ("#SBATCH --tasks-per-node=9\n#SBATCH --tasks-per-node=2\n#SBATCH --ntasks=3\n#SBATCH -n4", (2, 4, "slurm")),
        ("#SBATCH -n 1", (1, 1, "slurm")), ("#SBATCH -n2", (0, 2, "slurm")),
        ("#SBATCH --ntasks-per-node=2", (0, None, "slurm")),
        ("#PBS -l select=2:ncpus=4:mpiprocs=3+4:mpiprocs=5+ncpus=1:mpiprocs=2+mpiprocs=1", (8, 29, "pbs")),
        ("#PBS -l select=1\n#PBS -l select=9:mpiprocs=2", (1, 18, "pbs")),
        ("#PBS -l walltime=1,nodes=3:ppn=8 -N 9", (3, None, "pbs")),
        ("#BSUB -nnodes 3 -N 4\n#PBS -l nodes=2", (3, None, "lsf")), ("#BSUB -n 8", (0, None, "lsf")),
        ("#$ -N 8", (0, None, "sge")),
    ],
)  # fmt: skip
def test_what_a_job_requests(text: str, expected: tuple[int, int | None, str]) -> None:
    """Nodes, tasks and the scheduler, of which the first directive counts, and of srun's tasks the last."""
    assert requested(text) == Requested(*expected)


def test_a_submission_requests_what_its_words_and_directives_do() -> None:
    """Words of other commands are none."""
    script = "sbatch -N4 <<E\n#SBATCH -n8\nE\nqsub -l select=3 <<E\nE\ncat -N4 <<E\n#PBS -l nodes=5\nE\n"
    assert [job.requested for job in read_jobs(script)[1:]] == [(4, 8, "slurm"), (3, None, "pbs"), (5, None, "pbs")]


def test_a_word_is_used_where_the_script_has_it() -> None:
    """A variable's one word where the variable stands, and several where each of them stands."""
    script = "C=torchrun\nD='a b'\n$C $D ${C}"
    (found,) = read_jobs(script)[0].launches
    words = (*found.head, *found.args)
    assert [script[arg.use.start : arg.use.end] for arg in words] == ["$C", "a", "b", "${C}"]
    assert [script[arg.word.start : arg.word.end] for arg in words] == ["torchrun", "a", "b", "torchrun"]


def test_nodes_of_the_command_line_come_first() -> None:
    """As sbatch has it."""
    assert requested("#SBATCH -N2 --ntasks-per-node=3", 5) == (5, 15, "slurm")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # Programs that start each other, with words and values in between.
        ("A=b env C=d nice torchrun --a=1 x.py", "batch torchrun <- env>nice: torchrun | --a=1 x.py []"),
        ("A=b C=d", ""), ("time", ""), ("mingle", ""), ("accelerate config x.py", ""),
        ("mingle run torchrun x.py", "batch torchrun <- mingle run>run: torchrun | x.py []"),
        ("ray start", "batch ray start <- : ray start |  []"),
        ("ray start --head", "batch ray start <- : ray start | --head []"),
        ("accelerate launch x.py", "batch accelerate <- : accelerate launch | x.py []"),
        ("X=torchrun; $X x.py", "batch torchrun <- : torchrun | x.py []"),
        ("srun singularity exec i.sif sh -xc 'a; torchrun x.py' b",
         "step torchrun <- srun>singularity>exec>sh: torchrun | x.py [srun]"),
        ("srun bash -x x.sh", ""), ("srun bash -c", ""), ("echo $(torchrun x.py)", ""),
        ("eval torchrun x.py", "batch torchrun <- eval: torchrun | x.py []"),
        ("eval", ""), ("eval 'torchrun x.py'", "batch torchrun <- eval: torchrun | x.py []"),
        # Modules and scripts of Python.
        ("mpirun -np 2 python3 -u -m torch.distributed.run x.py",
         "step torchrun <- mpirun: python3 -u -m torch.distributed.run | x.py [mpirun -np 2]"),
        ("mpiexec python -m pkg x", "step python <- mpiexec: python -m | pkg x [mpiexec]"),
        ("python $S", "batch python <- : python | $S []"), ("python -u x.py", "batch python <- : python -u | x.py []"),
        ("python -c x.py", ""), ("python -c 1", ""), ("python a.sh x.py", ""), ("python -m", ""), ("python", ""),
        # One host or all of them.
        ("srun -N1 -n1 torchrun x.py", "host torchrun <- srun: torchrun | x.py [srun -N1 -n1]"),
        ("srun -n 1 torchrun x.py", "host torchrun <- srun: torchrun | x.py [srun -n 1]"),
        ("srun -n 2 torchrun x.py", "step torchrun <- srun: torchrun | x.py [srun -n 2]"),
        ("srun -N2 -n1 torchrun x.py", "step torchrun <- srun: torchrun | x.py [srun -N2 -n1]"),
        ("aprun -n 1 torchrun x.py", "step torchrun <- aprun: torchrun | x.py [aprun -n 1]"),
        ("pbsdsh -v -n 1 torchrun x.py", "host torchrun <- pbsdsh: torchrun | x.py [pbsdsh -v -n 1]"),
        ("/bin/blaunch -z 'a b' torchrun x.py", "host torchrun <- blaunch: torchrun | x.py [/bin/blaunch -z 'a b']"),
        ("blaunch torchrun x.py", "step torchrun <- blaunch: torchrun | x.py [blaunch]"),
        ("pbs_tmrsh h torchrun x.py", "host torchrun <- pbs_tmrsh: torchrun | x.py [pbs_tmrsh h]"),
        ("ssh h torchrun", "host torchrun <- ssh: torchrun |  [ssh h]"),
        ("ssh h 'a; torchrun x.py'", "host torchrun <- ssh: torchrun | x.py [ssh h 'a; torchrun x.py']"),
        ("ssh h <<E\ntorchrun x.py\nE", "host torchrun <- ssh: torchrun | x.py [ssh h]"),
        # What is srun's own, and what is a program of the user's.
        ("srun --job-name torchrun -J python3 -x $H $D torchrun x.py",
         "step torchrun <- srun: torchrun | x.py [srun --job-name torchrun -J python3 -x $H $D]"),
        ("srun ./a torchrun x.py", ""),
        ("srun -w h ./a b torchrun x.py", ""), ("ssh h a torchrun", "host torchrun <- ssh: torchrun |  [ssh h a]"),
        ("srun --export=ALL,A= torchrun x.py", ""),
        # Texts that a shell reads.
        ("bash <<E\ntorchrun x.py\nE", "batch torchrun <- bash: torchrun | x.py [bash]"),
        ("srun bash <<E\ntorchrun \\$X x.py\nE", "step torchrun <- srun: torchrun | $X x.py [srun bash]"),
        ("tee <<E\ntorchrun x.py\nE", ""), (f"{F}", ""), (f"{F}f", "batch torchrun <- : torchrun | x.py []"),
        (f"{F}srun -n9 bash -c f", "step torchrun <- srun: torchrun | x.py [srun -n9 bash -c f]"),
        (f"{F}g() {{ f; }}\nsrun sh -c g", "step torchrun <- : torchrun | x.py []"),
        (f"{R}chmod +x d/r.sh; rm d/r.sh", ""), (f"{R}bash r.sh", "batch torchrun <- : torchrun | x.py []"),
        (f"{R}srun -n2 bash ./r.sh", "step torchrun <- srun: torchrun | x.py [srun -n2 bash ./r.sh]"),
        # Values of variables.
        ("C='torchrun -a'\nC+=' -b'\nC+=' -c'\n$C x.py", "batch torchrun <- : torchrun | -a -b -c x.py []"),
        ("C=torchrun\nC+=' -a'\nC=(deepspeed # -b\n -c)\n${C[*]} x.py\nC+=d",
         "batch deepspeed <- : deepspeed | -c x.py []"),
        ("torchrun $C $D x.py\nC=a\nC=b\nD=$(e)", "batch torchrun <- : torchrun | b $D x.py []"),
        ("C='a b'\nD=(c d)\nE=$C\ntorchrun \"$C\" \"$D\" $E", "batch torchrun <- : torchrun | 'a b' c d a b []"),
        ("C=a\n: ${C:=torchrun}\n$C x.py", "batch torchrun <- : torchrun | x.py []"),
        ("C=$D\nD=$C\ntorchrun $C x.py", "batch torchrun <- : torchrun | $C x.py []"),
        (": ${C:=torchrun -a} ${D=b}\n$C $D x.py", "batch torchrun <- : torchrun | -a b x.py []"),
        ("export C=torchrun D=e\n$C $D", "batch torchrun <- : torchrun | e []"), ("echo C=torchrun\n$C x.py", ""),
        ("srun bash -c 'C=3; torchrun --n $C x.py'", "step torchrun <- srun>bash: torchrun | --n 3 x.py [srun]"),
        # Jobs that this one submits.
        ("sbatch -N4 <<E\nsrun torchrun y.py\nE", "step torchrun <- srun: torchrun | y.py [srun]"),
        ("sbatch --wrap='srun torchrun y.py'", "step torchrun <- srun: torchrun | y.py [srun]"),
        ("sbatch --wrap 'srun torchrun y.py'", "step torchrun <- srun: torchrun | y.py [srun]"),
        ("sbatch --wrap", ""), ("cat <<E\nsrun torchrun y.py\nE", ""),
        ("cat <<E\n#SBATCH -N1\nsrun torchrun y.py\nE", "step torchrun <- srun: torchrun | y.py [srun]"),
    ],
)  # fmt: skip
def test_what_a_script_starts(script: str, expected: str) -> None:
    """Once each, with the words that it gets."""
    assert [started(one) for job in read_jobs(HEAD + script) for one in job.launches] == (
        [expected] if expected else []
    )


def test_a_function_that_is_called_here_and_in_a_step_starts_twice() -> None:
    """Its step is the one that starts it elsewhere."""
    found = [started(one) for one in read_jobs(f"{HEAD}{F}f\nsrun bash -c f")[0].launches]
    assert sorted(found) == [
        "batch torchrun <- : torchrun | x.py []",
        "step torchrun <- srun: torchrun | x.py [srun bash -c f]",
    ]


@pytest.mark.parametrize(
    ("script", "loop"),
    [
        ("§for h in a; do for i in b; do ssh $h torchrun x.py; done; done", "outer"),
        (f"{F}§for h in a; do f $h; done", "of a call"), ("while a; do b; done\ntorchrun x.py§", "none"),
    ],
)  # fmt: skip
def test_the_loop_that_starts_it_is_known(script: str, loop: str) -> None:
    """The outermost one, also where it calls a function."""
    (found,) = read_jobs(script.replace("§", ""))[0].launches
    assert found.loop == (script.index("§") if loop != "none" else None)


def test_options_of_a_launch_are_found_by_their_names() -> None:
    """With - or _, joined or apart; and what comes before the training script."""
    line = "torchrun --a_b=1 --c 2 $D --standalone x.py --last"
    (found,) = read_jobs(line)[0].launches
    options = [found.option(*names) for names in (("--a-b",), ("--no", "--c"), ("--last",), ("--none",))]
    assert [one and one.text for one in options] == ["1", "2", "--last", None]
    assert [found.has("--c"), found.has("--d"), found.has_value("--c", "2"), found.has_value("--c", "3")] == [
        *(True, False, True, False),
    ]
    assert (found.script, found.standalone and found.standalone.text, found.at.start, found.is_mingle) == (
        *(5, "--standalone", 0, False),
    )


@pytest.mark.parametrize(
    ("line", "is_open", "script"),
    [
        ("torchrun $D x.py", True, 1), ("torchrun ${D[@]} -m $E", True, 1), ("torchrun -a $D --module x", False, 2),
        ("torchrun x.py $D", False, 0), ("torchrun --no-python $D", False, 0), ("torchrun --no_python a", False, 0),
        ("torchrun a$D", False, 1), ("torchrun a b", False, 2),
    ],
)  # fmt: skip
def test_a_word_of_the_shell_may_hold_more_options(line: str, is_open: bool, script: int) -> None:  # noqa: FBT001
    """Unless it is an option's value, or the training script's."""
    (found,) = read_jobs(line)[0].launches
    assert (found.is_open, found.script) == (is_open, script)


def test_a_job_knows_its_variables_steps_and_conditions() -> None:
    """Those that are used or exported, and where a command may not run."""
    script = (
        "A=1 b\nC=1\nexport D=$E\nsrun F=${G} h\nsrun srun i\n"
        "if j; then k; case l in m) n;; esac; fi\no\nsh -c 'if p; then q; fi'\nr() { s; }\n"
    )
    (job,) = read_jobs(script)
    assert (job.referred, job.exported, job.used) == (
        {"E", "G"},
        {"A", "D", "F", "export", "srun", "h", "i"},
        {"E", "G", "A", "D", "F", "export", "srun", "h", "i"},
    )
    assert [script[one.start : one.end] for one in job.steps] == ["srun F=${G} h", "srun srun i"]
    assert [script[start:end] for start, end in job.conditions] == [
        "if j; then k; case l in m) n;; esac; fi",
        "if p; then q; fi",
    ]
    assert "".join(char for at, char in enumerate(script) if job.is_conditional(at)) == "".join(
        script[start:end] for start, end in job.conditions
    )
    assert [
        (name, [(one.value.text, one.is_array, one.is_appended) for one in found])
        for name, found in job.assignments.items()
    ] == [
        *(("A", [("1", False, False)]), ("C", [("1", False, False)]), ("D", [("$E", False, False)])),
        ("F", [("${G}", False, False)]),
    ]


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("echo $SLURM_PROCID; a", "step"), ("#SBATCH -N2\necho $SLURM_PROCID; a", "batch"),
        ("srun x; echo $SLURM_PROCID; a", "batch"), ("a", "batch"), ("ssh h <<E\na\nE", "host"),
        ("srun sh <<E\na\nE", "step"), ("srun sh -c a", "step"),
    ],
)  # fmt: skip
def test_where_a_command_runs(script: str, place: str) -> None:
    """A script without directives and steps that reads a task's rank is one that each task runs."""
    (job,) = read_jobs(script)
    assert [job.place(command) for command in job.commands if command.name == "a"] == [place]
