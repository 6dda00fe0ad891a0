"""Values for the fields of a job, and how a directive of each scheduler carries them."""

from __future__ import annotations

import re
from collections.abc import Callable

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.script import describe, render_script


def torque_words(text: str) -> list[str]:
    """Take a directive apart as make_argv() of Torque's qsub does."""
    words: list[str] = []
    word, rest, within = "", iter(text), False
    for char in rest:
        if char in "\"'":
            within = True
            for inner in rest:
                if inner == char:
                    break
                word += inner
            else:
                raise AssertionError(f"qsub: unmatched {char} in {text!r}")
        elif char == "\\":
            word += next(rest)
        elif char in " \t\n\v\f\r":
            words += [word] if word or within else []
            word, within = "", False
        else:
            word += char
    return words + ([word] if word or within else [])


def sge_words(text: str) -> list[str]:
    """Take a directive apart as parse_script_file(), string_list() and sge_strip_quotes() do."""
    words = re.findall(r"""(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|[^ \t\n"'])+""", text.partition("#")[0].rstrip())
    return [re.sub("[\"']", "", word) for word in words]


def lsf_words(text: str) -> list[str]:
    """Take a directive apart as parseLine() and getNextValueQ_() do."""
    read: list[str] = []
    words = text.split()
    while words:
        rest = " ".join(words)
        mark = "'" if "'" in rest and ('"' not in rest or rest.index("'") < rest.index('"')) else '"'
        word = words.pop(0)
        if word.startswith(mark):
            word = words.pop(0) if word == mark else word[1:]
            while mark not in word:
                word += " " + words.pop(0)
            word = word[: word.rindex(mark)]
        if word.startswith("#"):
            return read
        read.append(word)
    return read


# OpenPBS reads as Torque does.
READERS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "pbs": ("#PBS", torque_words),
    "torque": ("#PBS", torque_words),
    "lsf": ("#BSUB", lsf_words),
    "sge": ("#$", sge_words),
}


def lines(scheduler: str, script: str) -> list[list[str]]:
    """Return the words of each directive of a script."""
    marker, reader = READERS[scheduler]
    return [reader(line.removeprefix(marker)) for line in script.split("\n") if line.startswith(marker)]


# fmt: off
VALUES = (
    "a b", " a", "a ", "a  b", "it's", 'say "hi"', "'", '"', "'\"'", "$HOME", "$HOME/x", "${HOME}", "$JOB_ID", "$(x)",
    "`x`", "a;b", "a\nb", "a\rb", "a\tb", "-x", "--", "-", "--requeue", "é ü 漢字", "\\", "a\\nb", "a\\", "\\\\",
    "!x", "*", "~", "#c", "a #c", "a#c", "{a,b}", "=", "a=b", "\x1b[0m", "\x02", "\x7f", "\u200b", "\u2028",
    "b\udcffyte", "|", "&", "<", ">", "(", ")", "?", "[1-2]", "^", "a:b", "a,b", "a, b", "%", "%%", "%j", "%J", "@",
    "%x-%j.out", "%A_%a", "%5j", "50%z", "h:/x", "+", "a/b", "/", "..", "0", "NULL", "none",
    "(null)", "A", "É", "\v", "\f", "\x85", "\xa0", "a\xa0b", "x" * 1024, "x" * 1025, "漢" * 400,
    "afterok:1", "afterany:1:2,afterany:3", "singleton", "1,2", "done(1) && ended(2)", "a=b:c=d", "me@example.org",
    "plain", "a&b", "back\\slash", "a\\,b", "my_x:/y", "node2:/y", "user@host.example", "R12@server", "%x.out", "%a",
    "1-3", "0-9:2%3", "END,FAIL", "TIME_LIMIT", "gpu:2", "a.b:1",
)
# fmt: on
# How the words of each scheduler's directive carry a field; {} is the value. What is absent has to be refused.
_OPTIONS = {
    "pbs": "job-name=-N partition=-q account=-A reservation=-q output=-o error=-e mail-user=-M array=-J",
    "torque": "job-name=-N partition=-q account=-A output=-o error=-e mail-user=-M array=-t",
    "lsf": "job-name=-J partition=-q account=-P qos=-sla reservation=-U output=-o error=-e mail-user=-u dependency=-w",
    "sge": "job-name=-N partition=-q account=-P reservation=-ar constraint=-l output=-o error=-e mail-user=-M array=-t"
    " dependency=-hold_jid",
}
_SLURM = "job-name partition account qos reservation constraint output error mail-user mail-type array dependency"
CARRIED = {
    its: {name: [option, "{}"] for name, option in (pair.split("=") for pair in text.split())}
    for its, text in _OPTIONS.items()
}
CARRIED["slurm"] = {name: [f"--{name}={{}}"] for name in _SLURM.split()}
CARRIED["pbs"] |= {"constraint": ["-l", "select=1:ncpus=1:mpiprocs=1:{}"], "dependency": ["-W", "depend={}"]}
CARRIED["torque"] |= {"constraint": ["-l", "nodes=1:ppn=1:{}"], "dependency": ["-W", "depend={}"]}
CARRIED["torque"] |= {"qos": ["-l", "qos={}"], "reservation": ["-l", "advres={}"]}
CARRIED["lsf"] |= {"constraint": ["-R", "select[{}] span[ptile=1]"]}
# What a scheduler says in other words than the user's.
_PATHS = {
    "pbs": {"%%": "%", "%x.out": "true.out", "%a": "^array_index^"},
    "torque": {"%%": "%", "%x.out": "true.out"},
    "lsf": {"%%": "%", "%j": "%J", "%x.out": "true.out", "%a": "%I", "%x-%j.out": "true-%J.out", "%A_%a": "%J_%I"},
    "sge": {"%%": "%", "%j": "$JOB_ID", "%x.out": "$JOB_NAME.out", "%a": "$TASK_ID", "%A_%a": "$JOB_ID_$TASK_ID"}
    | {"%x-%j.out": "$JOB_NAME-$JOB_ID.out"},
}
TRANSLATED = {
    ("lsf", "array", "1,2"): ["-J", "true[1,2]"],
    ("lsf", "array", "1-3"): ["-J", "true[1-3]"],
    ("lsf", "mail-type", "END,FAIL"): ["-N"],
    ("lsf", "mail-type", "none"): ["-J", "true"],  # and no -N or -B
    ("lsf", "dependency", "afterok:1"): ["-w", "done(1)"],
    ("lsf", "dependency", "afterany:1:2,afterany:3"): ["-w", "ended(1) && ended(2) && ended(3)"],
    ("sge", "dependency", "afterany:1:2,afterany:3"): ["-hold_jid", "1,2,3"],
    **{(its, "mail-type", "END,FAIL"): ["-m", "ea"] for its in ("pbs", "torque", "sge")},
    **{(its, "mail-type", "none"): ["-m", "n"] for its in ("pbs", "torque", "sge")},
    **{
        (its, field, value): [option, text]
        for field, option in (("output", "-o"), ("error", "-e"))
        for its, texts in _PATHS.items()
        for value, text in texts.items()
    },
}
# What only Slurm's patterns say, in a path: these are no values that a directive carries as they are.
ONLY_SLURM = {
    "pbs": {"%j", "%J", "%x-%j.out", "%A_%a", "%5j"},
    "torque": {"%a", "%j", "%J", "%x-%j.out", "%A_%a", "%5j"},
    "lsf": {"%5j"},
    "sge": {"%J", "%5j"},
}


def script_with(scheduler: str, field: str, value: str) -> str | None:
    """Return the script with this value, or None where the field is refused by its name."""
    options: dict[str, object] = {field: [value] if field == "constraint" else value, "launcher": "plain"}
    try:
        return render_script(scheduler, describe(options, ["true"]))
    except UsageError as refused:
        if f"--{field}" not in str(refused):
            raise
        return None


def words_for(scheduler: str, field: str, value: str) -> list[str]:
    """Return the words of the directive that carries a value; none where no directive can."""
    carried = [word.replace("{}", value) for word in CARRIED[scheduler].get(field, [])]
    if (scheduler, field) in (("lsf", "partition"), ("lsf", "mail-user")):
        carried = [word.replace(",", " ") for word in carried]  # its lists have blanks
    return TRANSLATED.get((scheduler, field, value)) or carried
