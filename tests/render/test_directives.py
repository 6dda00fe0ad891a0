"""Directives for LSF, Grid Engine and Torque, which no test can run: what their manuals allow, and say they mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import grammar_lsf
import grammar_sge
import grammar_torque
import pytest
from directive_grammar import GrammarError, checked
from directive_words import READERS
from hypothesis import given, settings
from hypothesis import strategies as st

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

MANUALS: dict[str, ModuleType] = {"lsf": grammar_lsf, "sge": grammar_sge, "torque": grammar_torque}
# Values of every field that its readers in fields.py take, and that some manual forbids.
NASTY = [
    *("a b", "it's", 'say "hi"', "$HOME", "$HOME/x", "$JOB_ID", "$(x)", "`x`", "a;b", "-x", "--", "é", "\\", "a\\"),
    *("#c", "a#c", "{a}", "a=b", "|", "&", "a|b", "a&b", "a&&b", "(a", "a)(b", "(a||!b)&&c>=1.5", "a>1&&!b", "a!b"),
    *("[1-2]", "a:b", "a,b", "%", "%%", "%j", "%x-%A_%a.out", "50%z", "h:/x", "/x", "a/b", "0", "1", "1a", "none"),
    *("default", "@", "a@b", "a@b@c", "@server", "all.q@@gpus", "x" * 15, "x" * 16, "x" * 60, "x" * 300, "x" * 4096),
    *("afterok:1", "afterok:1:2.server,afterany:3[].server", "afterok:a", "foo:1", "on:2", "on:0", "singleton"),
    *("aftercorr:1", "expand:1", "after:1,2", "done(1)", "foo(1)", "afterok(1)", "done(1) && ended(a_b*)", "done(1a)"),
    *("exit(1,>=2)||done(3[1-4])", "numdone(1,*)", "done(1 2)", "user1#0", "12", "arch=lx-amd64,h=a*", "infiniband"),
    *("1-3", "3", "5-1", "0-9:2%3", "1-9:0", "1-9:2", "1-9%0", "1,3-5", "1-100%100"),
    *("me@example.org", "me@example.org,you@example.org", "me,", "a100:2", "3090:1", "_x:1", "2"),
]
TEXTS = (
    *("job-name", "partition", "account", "qos", "reservation", "constraint", "output", "error", "mail-user", "array"),
    *("dependency", "gpus-per-node"),
)
# What the manuals show, or the like: no rule of ours may refuse it.
TAKES = {
    "lsf": {
        "job-name": ["myArray", "a.b-c_1", "x" * 300],
        "partition": ["short", "queue1 queue2", "all,other"],
        "account": ["my project", "a/b"],
        "constraint": ["fast", "swp>15 && maxmem>100", "(a||!b)&&c>=1.5", "type==any", "defined(gpu)", "mem>4GB"],
        "output": ["out.%j", "/scratch/%x-%A_%a.out", "a b"],
        "mail-user": ["me", "me@example.org,you@example.org"],
        "array": ["1-100", "1,3-5", "1-9:2%3"],
        "dependency": ["done(1)", "exit(1, >= 2)||done(3[1-4])", "numdone(1,*)", "done(1) && ended(a_b*)", "afterok:1"],
        "gpus-per-node": ["4", "a100:2", "NVIDIA-A100-40GB:1"],
    },
    "sge": {
        "job-name": ["train", "_x+1"],
        "partition": ["all.q", "all.q@@gpus,long.q", "*.q@node1", "!short.q"],
        "account": ["physics", "a.b-c"],
        "reservation": ["12"],
        "constraint": ["arch=lx-amd64", "ib,h=a*"],
        "output": ["/x/$USER.$JOB_ID", "logs/%x-%j.out", "a b"],
        "mail-user": ["me@example.org,you"],
        "array": ["1-100", "5", "1-9:2%3"],
        "dependency": ["12,13", "afterany:12:13"],
        "gpus-per-node": ["4"],
    },
    "torque": {
        "job-name": ["train", "x" * 15],
        "partition": ["batch", "batch@server.example", "@server"],
        "account": ["my project", 'say "hi"'],
        "qos": ["high"],
        "reservation": ["maint.1"],
        "constraint": ["infiniband", "fast:bigmem"],
        "output": ["node2:/y", "$HOME/%x.out", "logs/out"],
        "mail-user": ["me@example.org,you"],
        "array": ["0-9", "1,10,50-100%5", "7"],
        "dependency": ["afterok:123.big.iron.com", "before:234.a:235.a", "on:2", "synccount:1", "afterokarray:12[]"],
        "gpus-per-node": ["4", "k80:2"],
    },
}

FORBIDDEN = {
    "lsf": [
        *('-J "a b"', "-J a[0-3]", "-J a[3-1]", f"-J {'x' * 251}[1-9]", "-n 0", "-n", "-W 0:00", "-W 1:00:00", "-M"),
        *("-q a,b", "-q default", "-q a -q b", '-u "a,b"', "-W 5 -wa USR1 -wt 5", "-wa USR1", '-gpu "num=0"'),
        *('-R "span[ptile=2]affinity[core(1)]"', '-R "span[ptile=1] span[ptile=1]"', '-R "select[a&b]"'),
        *('-R "select[a b]"', '-R "select[(a]"', '-R "select[a!b]"', '-w "afterok(1)"', '-w "done(1) & done(2)"'),
    ],
    "sge": [
        *("-N 1a", "-N a:b", "-N a@b", "-pe mpi", "-pe mpi 0", "-l h_rt=90m", "-l h_vmem=1GB", "-P a/b", '-P "a b"'),
        *("-t 0-3", "-t 3-1", "-t 1-3,5", "-tc 2", "-o a:b:c", "-o /x/$PWD", "-m x", "-m na", "-r maybe", "-q a/b"),
        *("-hold_jid a:b", "-j y -e /x", "-M a@", "-z"),
    ],
    "torque": [
        *(
            f"-N {'x' * 16}",
            "-N 1a",
            '-N "a b"',
            "-l nodes=0",
            "-l nodes=1:ppn=0",
            "-l nodes=1:ppn=1:3090",
            "-l mem=1G",
        ),
        *("-l walltime=1h", "-q a@b@c", "-t 3-1", "-t 1-3%0", "-W depend=aftercorr:1", "-W depend=on:0", "-m an", "-z"),
    ],
}


def script(scheduler: str, options: Mapping[str, object]) -> str:
    """Return the script for these options."""
    return render(scheduler, describe({"launcher": "plain", **options}, ["true"]))


def reading(scheduler: str, text: str) -> dict[str, Any]:
    """Return what a script's directives ask for. Raises GrammarError."""
    manual = MANUALS[scheduler]
    asked: dict[str, Any] = manual.asked(checked(manual.GRAMMAR, text))
    return asked


@pytest.mark.parametrize(
    ("scheduler", "lines"),
    [
        ("lsf", ['-J "a[1-3,5-9:2]%2"', "-n 4,8", '-R "select[swp>15 && maxmem>100] span[hosts=1]"', "-W 210"]),
        ("lsf", ["-q short", "-W 60", "-wt 2 -wa URG", '-gpu "num=2:mode=shared:j_exclusive=yes"', "-x"]),
        ("lsf", ["-W 3:30", '-R "rusage[mem=10/job] affinity[core(2)]"', '-w "done(1) || exit(a*, > 3)"']),
        (
            "sge",
            ["-pe mpi 4-8,16-", "-l h_vmem=1.5G,h_rt=4:0:0", "-l arch=lx*", "-q all.q@@big,long.q", "-t 1-9:2 -tc 2"],
        ),
        ("sge", ["-N a.b", "-o node1:/x/$JOB_NAME.o$JOB_ID", "-j y -cwd", "-m beas -M me@a,you"]),
        ("torque", ["-l nodes=2:ppn=4:gpus=1:blue+1:red", "-l walltime=10:30,mem=320kb", "-m be", "-N Job_name"]),
        ("torque", ["-t 1,10,50-100%5", "-q @server", "-W depend=afterok:123.big.iron.com,on:2", "-o h:/x -e /y"]),
    ],
)
def test_the_checker_takes_what_the_manuals_show(scheduler: str, lines: list[str]) -> None:
    """Examples of the vendors, or the like."""
    marker, _ = READERS[scheduler]
    assert checked(MANUALS[scheduler].GRAMMAR, "".join(f"{marker} {line}\n" for line in lines))


@pytest.mark.parametrize(("scheduler", "line"), [(name, line) for name in MANUALS for line in FORBIDDEN[name]])
def test_the_checker_refuses_what_the_manuals_forbid(scheduler: str, line: str) -> None:
    """One thing wrong in each."""
    with pytest.raises(GrammarError):
        checked(MANUALS[scheduler].GRAMMAR, f"{READERS[scheduler][0]} {line}\n")


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("scheduler", MANUALS)
def test_a_value_is_within_the_grammar_or_refused_by_name(scheduler: str, field: str) -> None:
    """No script has a directive that its scheduler would not take."""
    for value in NASTY:
        try:
            text = script(scheduler, {field: [value] if field == "constraint" else value})
        except UsageError as refused:
            if f"--{field}" not in str(refused):
                raise
        else:
            reading(scheduler, text)


@pytest.mark.parametrize(("scheduler", "field"), [(name, field) for name in MANUALS for field in TAKES[name]])
def test_what_the_manuals_show_is_not_refused(scheduler: str, field: str) -> None:
    """The rules are as wide as what is documented, where our fields can say it."""
    for value in TAKES[scheduler][field]:
        reading(scheduler, script(scheduler, {field: [value] if field == "constraint" else value}))


def test_lsf_takes_a_long_name_but_not_with_an_array() -> None:
    """The name and the indices of an array have 255 characters together."""
    fits = {"job-name": "x" * 250, "array": "1-9"}
    reading("lsf", script("lsf", fits))
    with pytest.raises(UsageError, match="--job-name"):
        script("lsf", fits | {"job-name": "x" * 251})


@pytest.mark.parametrize("time_s", [1, 59, 60, 61, 119, 120, 121, 239, 240, 241, 3600, 86_400 * 30])
def test_lsf_warns_after_the_start_or_not_at_all(time_s: int) -> None:
    """Whole minutes, rounded up, do not put the warning where the job has done nothing yet."""
    asked = checked(grammar_lsf.GRAMMAR, script("lsf", {"time": f"{time_s}s"}))
    assert ("-wa" in asked) is (time_s > 60)


COUNTS = st.integers(1, 300)
WORDS = st.text("abXY01_.-", min_size=1, max_size=17) | st.sampled_from(NASTY)
DESCRIPTIONS = st.fixed_dictionaries(
    {"nodes": COUNTS, "ntasks-per-node": COUNTS},
    optional={
        "cpus-per-task": COUNTS,
        "mem": st.integers(1, 1 << 22),  # MiB
        "time": st.integers(1, 86_400 * 60),  # s
        "exclusive": st.just(value=True),
        "requeue": st.just(value=True),
        **dict.fromkeys(TEXTS, WORDS),
        "array": st.sampled_from(["1-9", "0-9", "3", "1,3-5", "1-9:2%3", "2-8%2"]) | WORDS,
        "gpus-per-node": st.tuples(st.integers(1, 16), st.sampled_from(["", "a100", "3090", "V100-SXM2"])),
    },
)


def typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as a user types them."""
    words = {name: value if value is True else str(value) for name, value in options.items()}
    if "time" in options:
        words["time"] = f"{options['time']}s"
    if "constraint" in options:
        words["constraint"] = [options["constraint"]]
    if "gpus-per-node" in options:
        number, kind = options["gpus-per-node"]
        words["gpus-per-node"] = f"{kind}:{number}" if kind else f"{number}"
    return words


def taken(scheduler: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return those of the options that are not refused by their name, and their script."""
    kept = dict(options)
    while True:
        try:
            return kept, script(scheduler, typed(kept))
        except UsageError as refused:
            named = [name for name in kept if re.search(rf"--{name}\b(?!-)", str(refused))]
            if not named:
                raise
            del kept[named[0]]


def wanted_by_lsf(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what LSF should read: limits in minutes, rounded up, and lists with blanks."""
    return {
        "nodes": job["nodes"],
        "ntasks-per-node": job["ntasks-per-node"],
        "cpus-per-task": job.get("cpus-per-task", 0),
        "mem": job.get("mem", 0),
        "time": -(-job.get("time", 0) // 60) * 60,
        "gpus-per-node": job.get("gpus-per-node"),
        "partition": re.split("[ ,]", job["partition"]) if "partition" in job else [],
        "mail-user": job["mail-user"].split(",") if "mail-user" in job else [],
        "constraint": job.get("constraint", ""),
    }


def wanted_by_sge(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Grid Engine should read: a slot for each CPU, and memory for each slot."""
    each = job["ntasks-per-node"] * job.get("cpus-per-task", 1)
    pairs = [pair.partition("=") for pair in job.get("constraint", "").split(",") if pair]
    return {
        "slots": job["nodes"] * each,
        "mem": -(-job.get("mem", 0) // each),
        "time": job.get("time", 0),
        "gpus-per-node": job.get("gpus-per-node", (0,))[0],
        "partition": job.get("partition", ""),
        "mail-user": job.get("mail-user", ""),
        "constraint": {name: its for name, _, its in pairs},
    }


def wanted_by_torque(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Torque should read: a processor for each CPU, types as properties, and memory of all nodes."""
    gpus, kind = job.get("gpus-per-node", (0, ""))
    group = {
        "nodes": job["nodes"],
        "ppn": job["ntasks-per-node"] * job.get("cpus-per-task", 1),
        "gpus": gpus,
        "properties": ([kind] if kind else []) + (job["constraint"].split(":") if "constraint" in job else []),
    }
    return {
        "groups": [group],
        "mem": job.get("mem", 0) * job["nodes"],
        "time": job.get("time", 0),
        "partition": job.get("partition", ""),
        "mail-user": job.get("mail-user", ""),
        "qos": job.get("qos", ""),
    }


WANTED = {"lsf": wanted_by_lsf, "sge": wanted_by_sge, "torque": wanted_by_torque}


@pytest.mark.parametrize("scheduler", MANUALS)
@settings(max_examples=200, deadline=None, derandomize=True)
@given(options=DESCRIPTIONS)
def test_the_directives_ask_for_what_the_user_asked(scheduler: str, options: dict[str, Any]) -> None:
    """Nodes, tasks, CPUs, GPUs, memory, time, queue, account, name, output and the rest come back with their values."""
    job, text = taken(scheduler, options)
    wanted = {"job-name": "true", **{name: job.get(name, "") for name in ("account", "reservation", "array")}}
    wanted |= {"job-name": job["job-name"]} if "job-name" in job else {}
    wanted |= {name: job.get(name, False) for name in ("exclusive", "requeue")}
    wanted["requeue"] |= scheduler == "torque" and "array" in job  # which takes no array that may not run again
    wanted |= {name: job.get(name, "") for name in ("output", "error") if "%" not in job.get(name, "")}
    asked = reading(scheduler, text)
    for name, value in {**wanted, **WANTED[scheduler](job)}.items():
        assert asked[name] == value, (name, text)


@pytest.mark.parametrize("array", ["5-1", "1-9:0"])
@pytest.mark.parametrize("scheduler", ["slurm", "pbs", *MANUALS])
def test_an_array_that_runs_backwards_or_stands_still_is_refused(scheduler: str, array: str) -> None:
    """As the real sbatch was seen to do."""
    with pytest.raises(UsageError, match="--array"):
        script(scheduler, {"array": array})


def test_no_limit_in_slurms_words_is_slurms_alone() -> None:
    """The real sbatch takes %0; the others document numbers from 1 and are told what means the same."""
    assert "#SBATCH --array=1-9%0\n" in script("slurm", {"array": "1-9%0"})
    for scheduler in MANUALS:
        with pytest.raises(UsageError, match="try --array 1-9, which"):
            script(scheduler, {"array": "1-9%0"})


def test_groups_of_nodes_for_torque() -> None:
    """Each group has its processors, GPUs and properties; the memory of one for all is the job's."""
    options = {"nodes": "1+2", "ntasks-per-node": "2+1", "cpus-per-task": "4", "gpus-per-node": "a100:2+1"}
    groups = reading("torque", script("torque", options))["groups"]
    assert groups == [
        {"nodes": 1, "ppn": 8, "gpus": 2, "properties": ["a100"]},
        {"nodes": 2, "ppn": 4, "gpus": 1, "properties": []},
    ]
