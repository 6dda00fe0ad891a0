"""Values for the fields of a job, and how a directive of each scheduler carries them."""

import re
from collections.abc import Callable

from support.recorded import FOLDER

from mingle_hooks.errors import UsageError
from mingle_hooks.files import toml
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
    "(null)", "A", "É", "\v", "\f", "\x85", "\xa0", "a\xa0b", "x" * 512, "x" * 1024, "x" * 1025, "漢" * 400,
    "afterok:1", "afterany:1:2,afterany:3", "singleton", "1,2", "done(1) && ended(2)", "a=b:c=d", "me@example.org",
    "plain", "a&b", "back\\slash", "a\\,b", "my_x:/y", "node2:/y", "user@host.example", "R12@server", "%x.out", "%a",
    "1-3", "0-9:2%3", "END,FAIL", "TIME_LIMIT", "gpu:2", "a.b:1",
)
# fmt: on
TABLE = toml((FOLDER.parent / "directives.toml").read_bytes())
CARRIED: dict[str, dict[str, list[str]]] = TABLE["carried"]
ONLY_SLURM: dict[str, list[str]] = TABLE["only_slurm"]
TAKES: dict[str, dict[str, list[str]]] = TABLE["takes"]
REFUSES: dict[str, dict[str, list[str]]] = TABLE["refuses"]


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
    words = CARRIED[scheduler].get(field, [])
    translated = TABLE["translated"].get(scheduler, {}).get(field, {})
    if field in ("output", "error") and value in (paths := TABLE["paths"].get(scheduler, {})):
        value = paths[value]
    if (scheduler, field) in (("lsf", "partition"), ("lsf", "mail-user")):
        value = value.replace(",", " ")  # its lists have blanks
    return translated.get(value) or [word.replace("{}", value) for word in words]
