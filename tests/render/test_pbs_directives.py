"""Values in #PBS directives: each arrives as it is, or is refused by its field's name before there is a script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cluster.real_pbs import RealPbs

# What OpenPBS 23.06 was seen to take, or to spoil, as a value of one option or another.
NASTY = [
    *("plain", "a b", "a  b", "it's", 'say "hi"', "$HOME", "$(touch pwned)", "`touch pwned`", "a;b", "a&b", "a|b"),
    *("-x", "-", "--", "é 漢", "back\\slash", "end\\", "a\\,b", "*", "a?b", "[1]", "a,b", "a:b", "node2:/y", "my_x:/y"),
    *("a=b", "#c", " lead", "trail ", "(x)", "<x>", "!x", "%J", "^x", "{x}", "a@b", "~x", "'", '"', '"\'"', "0"),
    *("%", "%%", "50%z", "%x.out", "%a", "%j", "%x-%j.out"),
    *("a\tb", "a\nb", "a\r", "tab\\tn", "x" * 200, "user@host.example", "R12@server"),
]
# What Slurm's patterns in a path become.
TRANSLATED = {"%%": "%", "%x.out": "true.out", "%a": "^array_index^"}
FIELDS = {
    "job-name": "-N",
    "partition": "-q",
    "reservation": "-q",
    "account": "-A",
    "output": "-o",
    "error": "-e",
    "mail-user": "-M",
    "dependency": "-W",
    "constraint": "-l",
    "array": "-J",
}
ATTRIBUTES = {
    "job-name": "Job_Name",
    "account": "Account_Name",
    "output": "Output_Path",
    "error": "Error_Path",
    "mail-user": "Mail_Users",
}


def carried(field: str, value: str) -> str:
    """Return the value in PBS's words."""
    return TRANSLATED.get(value, value) if field in ("output", "error") else value


def arguments(line: str) -> list[str]:
    """Return the words of a directive as make_argv() of qsub's source does."""
    words: list[str] = []
    word, quote, begun = "", "", False
    characters = iter(line)
    for char in characters:
        if quote:
            quote, word = ("", word) if char == quote else (quote, word + char)
        elif char in "\"'":
            quote, begun = char, True
        elif char.isspace():
            words, word, begun = ([*words, word], "", False) if begun else (words, word, begun)
        else:
            word, begun = word + (next(characters) if char == "\\" else char), True
    assert not quote, line
    return [*words, word] if begun else words


def script_of(options: Mapping[str, object]) -> str:
    """Return a script for PBS that ends at once."""
    return render("pbs", describe({"nodes": "1", "launcher": "plain", **options}, ["true"]))


def accepted(field: str) -> dict[str, str]:
    """Return a script for each value that the field takes."""
    scripts = {}
    for value in NASTY:
        try:
            scripts[value] = script_of({field: value})
        except UsageError as wrong:
            if f"--{field}" not in str(wrong):
                raise
    return scripts


@pytest.mark.parametrize("field", FIELDS)
def test_a_value_is_carried_or_refused_by_name(field: str) -> None:
    """What qsub reads from the directive is the value, on one line that continues on no other."""
    for value, script in accepted(field).items():
        lines = [line for line in script.splitlines() if line.startswith("#PBS ")]
        assert not [line for line in lines if line.rstrip().endswith("\\")]
        words = [arguments(line.removeprefix("#PBS ")) for line in lines]
        assert all(len(each) == 2 for each in words), words
        wanted = carried(field, value)
        assert [option for option, its in words if wanted in its and option == FIELDS[field]], (value, words)


@pytest.mark.parametrize(
    ("field", "takes", "refuses"),
    [
        ("account", ["a b", "it's", 'say "hi"', "é 漢", "$HOME", "a;b", "-x", "back\\slash"], ["--", "a\\,b", "a\nb"]),
        (
            "output",
            ["a b", 'say "hi"', "$HOME", "-x", "node2:/y", "%", "%%", "%x.out", "%a"],
            ["é 漢", "a:b", " lead", "my_x:/y", "%J", "%j", "%x-%j.out", "%a%a", "--", "a\tb"],
        ),
        ("mail-user", ["a@b", "user@host.example", "it's"], ["#c", "é 漢", '"']),
        ("partition", ["plain", "R12@server"], ["a,b", "a b", "-x", "*", "--"]),
        ("array", [], ["3-3", "5-1", "1-2,4-5", "7"]),
    ],
)
def test_what_the_real_one_spoils_is_refused(field: str, takes: list[str], refuses: list[str]) -> None:
    """The rule for each field is what a real qsub was seen to do."""
    assert not set(takes) - set(accepted(field))
    for value in refuses:
        with pytest.raises(UsageError, match=f"--{field}"):
            script_of({field: value})


@pytest.mark.parametrize("text", ["-h \\", "-h \\  ", "-A a\n#PBS -h"])
def test_a_free_directive_stays_on_its_line(text: str) -> None:
    """A real qsub looks for the backslash that goes on to the next line before any spaces at the end."""
    with pytest.raises(UsageError, match="--directive"):
        script_of({"directive": [text]})


def test_an_array_may_be_rerun() -> None:
    """A real qsub takes no array with -r n."""
    assert "#PBS -r y" in script_of({"array": "0-3"})
    assert "#PBS -r n" in script_of({})


def held(pbs: RealPbs, script: str) -> dict[str, str]:
    """Return what a real PBS holds of a script's job."""
    done = pbs.run("bin/qsub", "-f", "-h", user="alice", input=script, cwd="/home/alice")
    assert done.returncode == 0, (done.stderr, script)
    told = pbs.run("bin/qstat", "-f", "-w", done.stdout.strip(), check=True).stdout
    pbs.run("bin/qdel", done.stdout.strip(), check=True)
    return dict(re.findall(r"^    (\S+) = (.*)$", told, re.MULTILINE))


@pytest.mark.parametrize("field", ATTRIBUTES)
def test_a_real_qsub_takes_every_value_as_it_is(real_pbs: RealPbs, field: str) -> None:
    """What was not refused stands in the job's attribute."""
    for value, script in accepted(field).items():
        attribute = held(real_pbs, script)[ATTRIBUTES[field]]
        if field in ("output", "error"):
            attribute = attribute.removeprefix("node1:/home/alice/")
        if value.isascii():  # qstat shows others its own way
            assert attribute == carried(field, value)


def test_values_arrive_in_real_jobs(real_pbs: RealPbs, tmp_path: Path) -> None:
    """Output goes to the file of that name, the account is the job's own, and no text is run."""
    places = {}
    for number, value in enumerate(NASTY):
        if value in accepted("output") and ":" not in value and value not in TRANSLATED:
            places[value] = tmp_path / str(number)
            places[value].mkdir()
            places[value].chmod(0o777)
            options = {"output": f"{places[value]}/{value}", "account": value, "setup": ['echo "$PBS_ACCOUNT"; exit']}
            real_pbs.submit(script_of(options), cwd="/home/alice", output=False)
    shown = accepted("account")["é 漢"].replace("\n\n", '\n\necho "$PBS_ACCOUNT"; exit\n\n', 1)
    job = real_pbs.submit(shown, cwd="/home/alice")
    real_pbs.wait_idle()
    assert real_pbs.output(job) == "é 漢\n"
    for value, place in places.items():
        written = {file.name: file.read_text() for file in place.iterdir()}
        assert written == {value: f"{value}\n"}
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("array", ["0-3", "0-3%2", "0-9:2%4", "00-03"])
def test_a_real_qsub_takes_arrays(real_pbs: RealPbs, array: str) -> None:
    """Ranges with steps and with a most."""
    assert held(real_pbs, script_of({"array": array}))["array"] == "True"


@pytest.mark.parametrize(
    "options",
    [
        {
            "time": "1:00:00",
            "mem": "100M",
            "cpus-per-task": "2",
            "exclusive": True,
            "mail-type": "ALL",
            "requeue": True,
        },
        {"nodes": "1+2", "ntasks-per-node": "2+1", "constraint": "vnode=node1+host=node2"},
        {"nodes": "2", "partition": "workq", "dependency": "afterany:0.node1"},
        {"partition": "workq@node1", "mail-type": "NONE", "mail-user": "a@b,c"},
    ],
)
def test_a_real_qsub_takes_the_other_directives(real_pbs: RealPbs, options: dict[str, object]) -> None:
    """Resources, places, mail and dependencies are as qsub wants them."""
    real_pbs.submit("#!/bin/sh\n", cwd="/home/alice")
    assert held(real_pbs, script_of(options))["job_state"] == "H"
