"""Every field with every nasty value: either it is refused by name, or the scheduler reads what was given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from directive_words import lines

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.slurm import SlurmCluster

# fmt: off
NASTY = (
    "a b", " a", "a ", "a  b", "it's", 'say "hi"', "'", '"', "'\"'", "$HOME", "$HOME/x", "${HOME}", "$JOB_ID", "$(x)",
    "`x`", "a;b", "a\nb", "a\rb", "a\tb", "-x", "--", "-", "--requeue", "é ü 漢字", "\\", "a\\nb", "a\\", "\\\\",
    "!x", "*", "~", "#c", "a #c", "a#c", "{a,b}", "=", "a=b", "\x1b[0m", "\x02", "\x7f", "\u200b", "\u2028",
    "b\udcffyte", "|", "&", "<", ">", "(", ")", "?", "[1-2]", "^", "a:b", "a,b", "a, b", "%", "%%", "%j", "%J", "@",
    "%x-%j.out", "%A_%a", "%5j", "50%z", "h:/x", "+", "a/b", "/", "..", "0", "NULL", "none",
    "(null)", "A", "É", "\v", "\f", "\x85", "\xa0", "a\xa0b", "x" * 1024, "x" * 1025, "漢" * 400,
    "afterok:1", "afterany:1:2,afterany:3", "singleton", "1,2", "done(1) && ended(2)", "a=b:c=d", "me@example.org",
    "1-3", "0-9:2%3", "END,FAIL", "TIME_LIMIT", "gpu:2", "a.b:1",
)
# fmt: on
# How the words of each scheduler's directive carry a field; {} is the value. What is absent has to be refused.
CARRIED = {
    "slurm": {
        **{
            name: [f"--{name}={{}}"]
            for name in ("job-name", "partition", "account", "qos", "reservation", "constraint")
        },
        **{name: [f"--{name}={{}}"] for name in ("output", "error", "mail-user", "mail-type", "array", "dependency")},
        "gpus-per-node": ["--gpus-per-node={}"],
    },
    "torque": {
        "job-name": ["-N", "{}"],
        "partition": ["-q", "{}"],
        "account": ["-A", "{}"],
        "qos": ["-l", "qos={}"],
        "reservation": ["-l", "advres={}"],
        "constraint": ["-l", "nodes=1:ppn=1:{}"],
        "output": ["-o", "{}"],
        "error": ["-e", "{}"],
        "mail-user": ["-M", "{}"],
        "array": ["-t", "{}"],
        "dependency": ["-W", "depend={}"],
    },
    "lsf": {
        "job-name": ["-J", "{}"],
        "partition": ["-q", "{}"],
        "account": ["-P", "{}"],
        "qos": ["-sla", "{}"],
        "reservation": ["-U", "{}"],
        "constraint": ["-R", "select[{}] span[ptile=1]"],
        "output": ["-o", "{}"],
        "error": ["-e", "{}"],
        "mail-user": ["-u", "{}"],
        "dependency": ["-w", "{}"],
    },
    "sge": {
        "job-name": ["-N", "{}"],
        "partition": ["-q", "{}"],
        "account": ["-P", "{}"],
        "reservation": ["-ar", "{}"],
        "constraint": ["-l", "{}"],
        "output": ["-o", "{}"],
        "error": ["-e", "{}"],
        "mail-user": ["-M", "{}"],
        "array": ["-t", "{}"],
        "dependency": ["-hold_jid", "{}"],
    },
}
# What a scheduler says in other words than the user's.
TRANSLATED = {
    ("torque", "mail-type", "END,FAIL"): ["-m", "ea"],
    ("torque", "mail-type", "none"): ["-m", "n"],
    ("torque", "gpus-per-node", "gpu:2"): ["-l", "nodes=1:ppn=2:gpus=2:gpu"],
    ("torque", "gpus-per-node", "a.b:1"): ["-l", "nodes=1:ppn=1:gpus=1:a.b"],
    ("torque", "gpus-per-node", "afterok:1"): ["-l", "nodes=1:ppn=1:gpus=1:afterok"],  # a type like any other
    ("lsf", "gpus-per-node", "afterok:1"): ["-gpu", "num=1/host:gmodel=afterok"],
    ("lsf", "array", "1,2"): ["-J", "true[1,2]"],
    ("lsf", "array", "1-3"): ["-J", "true[1-3]"],
    ("lsf", "mail-type", "END,FAIL"): ["-N"],
    ("lsf", "mail-type", "none"): ["-J", "true"],  # and no -N or -B
    ("lsf", "gpus-per-node", "gpu:2"): ["-gpu", "num=2/host:gmodel=gpu"],
    ("lsf", "gpus-per-node", "a.b:1"): ["-gpu", "num=1/host:gmodel=a.b"],
    ("lsf", "dependency", "afterok:1"): ["-w", "done(1)"],
    ("lsf", "dependency", "afterany:1:2,afterany:3"): ["-w", "ended(1) && ended(2) && ended(3)"],
    ("sge", "mail-type", "END,FAIL"): ["-m", "ea"],
    ("sge", "mail-type", "none"): ["-m", "n"],
    ("sge", "dependency", "afterany:1:2,afterany:3"): ["-hold_jid", "1,2,3"],
    **{
        (scheduler, field, value): [letter, text]
        for field, letter in (("output", "-o"), ("error", "-e"))
        for scheduler, value, text in (
            ("torque", "%%", "%"),
            ("lsf", "%%", "%"),
            ("lsf", "%j", "%J"),
            ("lsf", "%x-%j.out", "true-%J.out"),
            ("lsf", "%A_%a", "%J_%I"),
            ("sge", "%%", "%"),
            ("sge", "%j", "$JOB_ID"),
            ("sge", "%x-%j.out", "$JOB_NAME-$JOB_ID.out"),
            ("sge", "%A_%a", "$JOB_ID_$TASK_ID"),
        )
    },
}
# What only Slurm's patterns say, in a path: these are no values that a directive carries as they are.
ONLY_SLURM = {
    "torque": {"%j", "%J", "%x-%j.out", "%A_%a", "%5j"},
    "lsf": {"%5j"},
    "sge": {"%J", "%5j"},
}


def script(scheduler: str, field: str, value: str) -> str | None:
    """Return the script with this value, or None where the field is refused by its name."""
    options: dict[str, object] = {field: [value] if field == "constraint" else value, "launcher": "plain"}
    try:
        return render(scheduler, describe(options, ["true"]))
    except UsageError as refused:
        if f"--{field}" not in str(refused):
            raise
        return None


@pytest.mark.parametrize("field", [*CARRIED["slurm"]])
@pytest.mark.parametrize("scheduler", ["torque", "lsf", "sge"])
def test_a_directive_is_read_as_it_was_given(scheduler: str, field: str) -> None:
    """By the rules in the scheduler's own source, a value that was not refused stands in the directive's words."""
    for value in NASTY:
        text = script(scheduler, field, value)
        if text is None:
            continue
        assert field not in ("output", "error") or value not in ONLY_SLURM[scheduler]
        carried = [word.replace("{}", value) for word in CARRIED[scheduler].get(field, [])]
        if (scheduler, field) in (("lsf", "partition"), ("lsf", "mail-user")):
            carried = [word.replace(",", " ") for word in carried]  # its lists have blanks
        wanted = TRANSLATED.get((scheduler, field, value)) or carried
        assert wanted, f"{scheduler} took {value!r} for --{field}, which it cannot carry"
        assert lines(scheduler, text).count(wanted) == 1, (value, text)


def test_a_quote_in_a_directive_of_sbatch_is_escaped() -> None:
    """Else it would end the value, and what follows it would be options."""
    text = script("slurm", "account", 'a" --uid=0 \\')
    assert text is not None
    assert '#SBATCH --account="a\\" --uid=0 \\\\"' in text.splitlines()


def test_sbatch_reads_every_value_as_it_was_given(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The options that the real sbatch tells with -v are, for every field and value, what was given."""
    wanted: dict[str, dict[str, str]] = {}
    for number, value in enumerate(NASTY):
        # One script for each value, with the directives of all fields that take it.
        taken = {field: text for field in CARRIED["slurm"] if (text := script("slurm", field, value)) is not None}
        options = {field: [value] if field == "constraint" else value for field in taken}
        whole = render("slurm", describe({**options, "launcher": "plain"}, ["true"]))
        (tmp_path / f"{number}.sh").write_bytes(os.fsencode(whole))
        wanted[str(number)] = dict.fromkeys(taken, value)
    loop = 'cd "$1"; for f in *.sh; do sbatch -v --test-only "$f" >"${f%.sh}.out" 2>&1; done; true'
    slurm.controller.run(["bash", "-c", loop, "bash", tmp_path], user="alice", check=True)
    for which, fields in wanted.items():
        told = os.fsdecode((tmp_path / f"{which}.out").read_bytes())
        for field, value in fields.items():
            exact = value.upper() if field == "mail-type" else value
            if field in ("output", "error"):  # sbatch has a word of its own there
                exact = "/dev/null" if value == "none" else os.path.join(tmp_path, value)
            assert f"sbatch: {field:<19} : {exact}\n" in told, (field, value, told)
    assert sum(map(len, wanted.values())) > 800  # of about 95 values and 13 fields


def test_slurm_keeps_every_name_as_it_was_given(fresh_slurm: Callable[..., SlurmCluster]) -> None:
    """Partitions, features and reservations with nasty names are found by the job that asks for them, and it runs."""
    names = ["it's", "é漢", "$HOME", "a;b", "-x", "~", "{a}", "%j", "`x`"]
    slurm = fresh_slurm(1, conf_lines=[f"PartitionName={name} Nodes=ALL" for name in names])
    control, features = ["scontrol", "update", "nodename=node1"], ",".join(names)
    slurm.controller.run([*control, f"availablefeatures={features}", f"activefeatures={features}"], check=True)
    for name in names:  # before any job, which would keep the node busy
        made = ["scontrol", "create", "reservation", f"reservationname={name}", "users=alice", "nodes=node1"]
        slurm.controller.run([*made, "starttime=now", "duration=10", "flags=overlap"], check=True)
    jobs = {}
    for name in names:
        fields: dict[str, object] = dict.fromkeys(
            ("job-name", "account", "partition", "reservation", "constraint"), name
        )
        fields |= {"output": "/home/alice/out", "launcher": "plain", "directive": ['--comment="it\'s $x é"']}
        jobs[name] = slurm.submit(render("slurm", describe(fields, ["true"])), user="alice", cwd="/home/alice")
    for name, job in jobs.items():
        assert slurm.wait(job) == "COMPLETED"
        command = ["squeue", "--noheader", "--states=all", "--job", job]
        shown = slurm.controller.run([*command, "--format=%j|%a|%P|%v|%f|%k"])
        # Slurm itself writes accounts in small letters.
        assert shown.stdout == f"{name}|{name.lower()}|{name}|{name}|{name}|it's $x é\n", slurm.logs()
        slurm.controller.run(["scontrol", "delete", f"reservationname={name}"], check=True)
    groups = {"nodes": "1+1", "constraint": names[:2], "mem": "100+200", "launcher": "process"}
    job = slurm.submit(render("slurm", describe(groups, ["true"])), "--hold", user="alice", cwd="/home/alice")
    parts = slurm.controller.run(["squeue", "--noheader", "--sort=i", "--job", job, "--format=%f|%m"], check=True)
    assert parts.stdout == f"{names[0]}|100M\n{names[1]}|200M\n"
