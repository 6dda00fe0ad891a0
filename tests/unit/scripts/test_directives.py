"""Directives: each value is carried as the scheduler reads it, or refused by its field's name."""

import re
from ast import literal_eval

import pytest
from hypothesis import example, given, strategies as st
from support.directives import CARRIED, ONLY_SLURM, READERS, REFUSES, TAKES, VALUES, lines, script_with, words_for

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts import directives
from mingle_hooks.scripts.script import describe, render_script as render


@pytest.mark.parametrize("field", [*CARRIED["slurm"]])
@pytest.mark.parametrize("scheduler", READERS)
def test_a_value_is_carried_or_refused_by_name(scheduler: str, field: str) -> None:
    """By the rules in the scheduler's own source, a value that was not refused stands in the directive's words."""
    for value in VALUES:
        text = script_with(scheduler, field, value)
        if text is None:
            continue
        assert field not in ("output", "error") or value not in ONLY_SLURM[scheduler]
        wanted = words_for(scheduler, field, value)
        assert wanted, f"{scheduler} took {value!r} for --{field}, which it cannot carry"
        assert lines(scheduler, text).count(wanted) == 1, (value, text)
        # qsub of PBS and Torque goes on to the next line.
        assert not [line for line in text.splitlines() if line.startswith("#PBS") and line.rstrip().endswith("\\")]


@pytest.mark.parametrize(
    ("scheduler", "field", "values", "is_taken"),
    [(name, *row, table is TAKES) for table in (TAKES, REFUSES) for name in table for row in table[name].items()],
)
def test_what_the_manuals_show_is_taken(scheduler: str, field: str, values: list[str], *, is_taken: bool) -> None:
    """The rules are as wide as what is documented, and what cannot be carried is refused by the field's name."""
    assert [value for value in values if (script_with(scheduler, field, value) is not None) is not is_taken] == []


@pytest.mark.parametrize(
    ("scheduler", "options", "field"),
    [
        ("slurm", {"array": "1-2", "nodes": "1+1"}, "array"), ("pbs", {"output": "x" * 513}, "output"),
        ("slurm", {"ntasks-per-node": "1+2", "nodes": "1+1"}, "ntasks-per-node"),
        ("slurm", {"ntasks-per-node": "1+2", "nodes": "1+1", "gpus-per-node": "4"}, "ntasks-per-node"),
        ("pbs", {"array": "1-2", "requeue": True}, "requeue"), ("pbs", {"partition": "a", "reservation": "b"}, "res"),
        ("lsf", {"job-name": "x" * 251, "array": "1-9"}, "job-name"),  # 255 characters with the indices
    ],
)  # fmt: skip
def test_fields_that_exclude_each_other_are_refused(scheduler: str, options: dict[str, object], field: str) -> None:
    """The error names one of them."""
    with pytest.raises(UsageError, match=f"--{field}"):
        render(scheduler, describe(options, ["train.py"]))


@pytest.mark.parametrize(
    ("scheduler", "options", "works"),
    [
        ("pbs", {"array": "1-3,5"}, {"array": "1-3"}), ("pbs", {"array": "7"}, {"array": "1-2"}),
        ("pbs", {"job-name": "3dgan"}, {"job-name": "job3dgan"}),
        ("pbs", {"job-name": "my job"}, {"job-name": "my_job"}),
        ("pbs", {"mail-type": "END,TIME_LIMIT"}, {"mail-type": "END,FAIL"}),
        ("pbs", {"output": "logs/%x-%j.out"}, {"output": "logs/"}), ("pbs", {"output": "%j"}, {"output": "./"}),
        ("pbs", {"output": "a:é"}, {"output": "a__"}), ("pbs", {"mail-user": "é"}, {"mail-user": "me@example.org"}),
        ("torque", {"output": "/logs/%j"}, {"output": "/logs/"}),
        ("torque", {"output": "${HOME}/x"}, {"output": "$HOME/x"}),
        ("torque", {"constraint": "a b"}, {"constraint": "infiniband"}),
        ("lsf", {"array": "0-9:2,12%3"}, {"array": "1-10:2,13%3"}),
        ("lsf", {"job-name": "my job"}, {"job-name": "my_job"}), ("lsf", {"output": "%t-%5j"}, {"output": "%j-%j"}),
        ("lsf", {"mail-type": "TIME_LIMIT"}, {"mail-type": "FAIL"}), ("lsf", {"nodes": "1+2"}, {"nodes": "3"}),
        ("sge", {"array": "0-9%2"}, {"array": "1-10%2"}),
        ("sge", {"dependency": "afterok:12"}, {"dependency": "afterany:12"}),
        ("sge", {"output": "%5a"}, {"output": "%a"}), ("sge", {"gpus-per-node": "a100:4"}, {"gpus-per-node": "4"}),
        ("slurm", {"output": "a\\b"}, {"output": "a_b"}),
    ],
)  # fmt: skip
def test_the_remedy_works(scheduler: str, options: dict[str, object], works: dict[str, object]) -> None:
    """The error tells a value that the scheduler takes."""
    (field, value), *_ = works.items()
    with pytest.raises(UsageError) as refused:
        render(scheduler, describe(options, ["train.py"]))
    assert f"{refused.value.remedy}, ".startswith((f"--{field} {value}, ", f"leaving --{field} out, "))
    assert render(scheduler, describe(works, ["train.py"]))


@given(st.text("ab1()&|!=< ", max_size=12))
@example("a&b")
@example("(a&b")
def test_an_expression_that_is_advised_for_lsf_is_taken(text: str) -> None:
    """Its parentheses come out even, too."""
    try:
        assert directives._lsf_selection(text).count("(") == text.count(")")
    except UsageError as refused:
        if found := re.match("--constraint ('.*'),", f"{refused.remedy},"):
            directives._lsf_selection(literal_eval(found[1]))


@pytest.mark.parametrize(
    ("scheduler", "options", "directives"),
    [
        # A group has its processors, GPUs and properties; memory and time are the job's.
        ("torque", {"nodes": "1+2", "ntasks-per-node": "2+1", "cpus-per-task": "4", "gpus-per-node": "a100:2+1"},
         ["-l nodes=1:ppn=8:gpus=2:a100+2:ppn=4:gpus=1"]),
        ("torque", {"nodes": "2", "mem": "3G", "time": "1-0", "exclusive": True},
         ["-l mem=6gb", "-l naccesspolicy=singlejob", "-l walltime=24:00:00"]),
        ("torque", {"qos": "high", "reservation": "maint.1"}, ["-l qos=high", "-l advres=maint.1"]),
        # Limits in whole minutes, rounded up; lists with blanks; memory for each host.
        ("lsf", {"nodes": "2", "ntasks-per-node": "3", "time": "61s"}, ["-n 6", "-W 0:02"]),
        ("lsf", {"job-name": "x" * 300}, [f"-J {'x' * 300}"]),
        ("lsf", {"ntasks-per-node": "3", "cpus-per-task": "4", "mem": "1000", "constraint": ["a||b"]},
         ['-R "select[a||b] span[ptile=3] affinity[core(4)] rusage[mem=1000MB/host]"']),
        ("lsf", {"gpus-per-node": "a100:2", "partition": "a,b", "array": "1-9:2%3", "exclusive": True, "requeue": True},
         ['-gpu "num=2/host:gmodel=a100"', '-q "a b"', '-J "true[1-9:2]%3"', "-x", "-r"]),
        # A slot for each CPU, and memory for each slot.
        ("sge", {"nodes": "2", "ntasks-per-node": "3", "cpus-per-task": "2", "mem": "1000", "array": "1-9%2"},
         ["-pe mpi 12", "-l h_vmem=167M", "-t 1-9", "-tc 2"]),
        ("sge", {"gpus-per-node": "4", "exclusive": True, "time": "90", "constraint": ["arch=lx"], "requeue": True},
         ["-l gpu=4", "-l exclusive=true", "-l h_rt=01:30:00", "-l arch=lx", "-r y"]),
        ("pbs", {"array": "0-3"}, ["-r y"]),  # a real qsub takes no array with -r n
        ("pbs", {"nodes": "1+2", "gpus-per-node": "a100:4+v100:2"}, ["-r n", "-l place=scatter",
         "-l select=1:ncpus=4:mpiprocs=4:ngpus=4:gpu_type=a100+2:ncpus=2:mpiprocs=2:ngpus=2:gpu_type=v100"]),
        ("slurm", {"nodes": "1+2", "gpus-per-node": "a100:4+v100:2"},
         ["--nodes=1", "--gpus-per-node=a100:4", "hetjob", "--nodes=2", "--gpus-per-node=v100:2"]),
        ("pbs", {"exclusive": True, "mem": "3G"}, ["-l place=scatter:excl", "-l select=1:ncpus=1:mpiprocs=1:mem=3gb"]),
        ("slurm", {"nodes": "1+1", "mem": "0+2G"}, ["--mem=0", "--mem=2G"]),
        ("slurm", {"array": "1-9%0"}, ["--array=1-9%0"]),  # the real sbatch takes %0
    ],
)  # fmt: skip
def test_what_a_job_asks_for_stands_in_the_directives(
    scheduler: str, options: dict[str, object], directives: list[str]
) -> None:
    """Each in the scheduler's own units and words."""
    text = render(scheduler, describe({"launcher": "process", **options}, ["true"])).splitlines()
    marker = "#SBATCH" if scheduler == "slurm" else READERS[scheduler][0]
    assert [line for line in directives if f"{marker} {line}" not in text] == [], text


@pytest.mark.parametrize("time_s", [1, 59, 60, 61, 119, 120, 121, 239, 240, 241, 3600, 86_400 * 30])
def test_lsf_warns_after_the_start_or_not_at_all(time_s: int) -> None:
    """Whole minutes, rounded up, do not put the warning where the job has done nothing yet."""
    text = render("lsf", describe({"time": f"{time_s}s"}, ["true"]))
    assert ("#BSUB -wa" in text) is (time_s > 60)
    if found := re.search(r"-wt (\d+)", text):
        assert int(found[1]) < -(-time_s // 60)


def test_a_directive_is_given_without_its_mark() -> None:
    """To sbatch a second # is a comment."""
    with pytest.raises(UsageError, match=r"without the #SBATCH, which the script adds; .*; try --directive -C x$"):
        render("slurm", describe({"directive": ["#SBATCH -C x"]}, ["true"]))


def test_a_quote_in_a_directive_of_sbatch_is_escaped() -> None:
    """Else it would end the value, and what follows it would be options."""
    text = render("slurm", describe({"account": 'a" --uid=0 \\'}, ["true"]))
    assert '#SBATCH --account="a\\" --uid=0 \\\\"' in text.splitlines()
