"""The fields of a job description: the command line, the TOML file, the checks and the help are made from this table.

Names are sbatch's long options where it has one. A reader takes what was typed or what TOML holds, returns
the value, or raises UsageError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.values import duration, whole

# Times and sizes in every usual spelling, and as each scheduler writes them.

_DAY_S = 86_400
# Ten years: beyond any scheduler's longest job, and within the 32-bit minutes that Slurm counts in.
_LONGEST_S = 3650 * 86_400
# sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].
_CLOCK = re.compile(r"(?:(?P<days>[0-9]{1,5})-)?(?P<clock>[0-9]{1,9}(?::[0-9]{1,9}){0,2})")
# Schedulers count in powers of two, whatever the letter case and with or without the "i" and "B".
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?:([kmgtp])(?:i?b)?)?", re.IGNORECASE)
_KIB = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3, "p": 1024**4}
_MOST_MIB = 1 << 40  # an exbibyte


def seconds_of(value: object) -> int:
    """Read a duration: what sbatch reads (90, 5:00, 1:00:00, 1-12, 1-12:00:00), or 90s, 30m, 1h30m, 1.5h, 2d.

    A number without a unit is minutes, as in sbatch. Returns seconds, rounded up. Raises UsageError.
    """
    text = str(value).strip().lower()
    found = 0.0
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        found = _clock(text) if _CLOCK.fullmatch(text) else duration(text)
    if not 0 < found <= _LONGEST_S:
        raise UsageError("a duration", repr(value), "90 (minutes), 1:30:00, 1-12:00:00, 30m, 1.5h or 2d")
    return -int(-found // 1)


def _clock(text: str) -> float:
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # After days come hours; alone, a number is minutes.
    units: tuple[int, ...] = (3600, 60, 1) if days else ((60,), (60, 1), (3600, 60, 1))[len(parts) - 1]
    return int(days or 0) * _DAY_S + sum(part * unit for part, unit in zip(parts, units, strict=False))


def as_hms(duration_s: int) -> str:
    """Write seconds as HH:MM:SS, which every scheduler reads the same."""
    return f"{duration_s // 3600:02}:{duration_s // 60 % 60:02}:{duration_s % 60:02}"


def mebibytes_of(value: object) -> int:
    """Read a size: 4096 (MiB, as in sbatch), 16G, 16gb, 16 GiB, 1.5T. Returns MiB, rounded up. Raises UsageError."""
    match = _SIZE.fullmatch(str(value).strip()) if isinstance(value, (str, int)) else None
    found = float(match[1]) * _KIB[(match[2] or "m").lower()] / 1024 if match else 0
    if not 0 < found <= _MOST_MIB:
        raise UsageError("a size of memory", repr(value), "4096 (MiB), 16G, 16gb or 1.5T")
    return -int(-found // 1)


def as_size(mib: int, units: tuple[str, str]) -> str:
    """Write MiB in the scheduler's units for mebi and gibi, the larger where it comes out whole."""
    return f"{mib}{units[0]}" if mib % 1024 else f"{mib // 1024}{units[1]}"


# Values as text for their place: a word of bash, or a comment. Each scheduler has its own for its directives.
#
# The result is always one line without control characters, so it cannot end a comment, a directive or a
# function, and it can be read. bash's `$'…'` carries what has to be written as an escape.

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)
# `a=b` as the first word of a command would be an assignment; as an argument it is not, and is quoted too.
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}
# A literal DEL or \001 is bash's own mark inside $'…' in `declare -f`; older ones double or drop it.
NOT_CARRIED = frozenset("\0\x01\x7f")


def quote_word(value: object) -> str:
    """Return `value` as one word of bash in which nothing is special. Raises UsageError for NUL, SOH and DEL."""
    text = str(value)
    if _PLAIN.fullmatch(text) and "=" not in text:
        return text
    if NOT_CARRIED.intersection(text):
        raise UsageError("text that a shell can carry", repr(text), "leaving out the control characters")
    if text.isprintable():
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + "".join(_escaped(char) for char in text) + "'"


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    # surrogateescape: what was not UTF-8 on the command line goes back to the byte that it was
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def quote_words(values: Iterable[object]) -> str:
    """Return a command line. `=` is special in the first word only, and --lr=3 reads better without quotes.

    Raises UsageError.
    """
    first, *rest = values
    return " ".join([quote_word(first), *(quote_argument(value) for value in rest)])


def quote_argument(value: object) -> str:
    """Return one word that is not the first of a command. Raises UsageError."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else quote_word(text)


Kind = Literal["once", "each", "many", "flag"]

LONGEST_TEXT = 4096  # PATH_MAX; names and options are shorter
_MOST_ENTRIES = 1024  # more modules, variables or set-up lines than anybody has
MOST_PER_NODE = 4096  # GPUs or CPUs of one node, by a wide margin
_MOST_TASKS = MOST_NODES * MOST_PER_NODE
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
# Names that bash keeps for itself, so that a value given to them does not arrive; and those that the scripts set.
_BASHS = re.compile(
    "BASH(?!_ENV$).*|COMP_WORDBREAKS|DIRSTACK|EPOCH(?:REALTIME|SECONDS)|E?UID|FUNCNAME|GROUPS|HISTCMD|IFS|LINENO"
    "|(?:OLD)?PWD|OPTERR|OPTIND|PIPESTATUS|POSIXLY_CORRECT|PPID|PS4|S?RANDOM|SECONDS|SHELLOPTS|SHLVL|_"
)
_SCRIPTS = re.compile("MINGLE_KEY|MINGLE_RUN.*|MINGLE_ATTEMPT|(?:LOCAL_|GROUP_)?RANK")
_RANGE = r"\d{1,9}(?:-\d{1,9}(?::0{0,8}[1-9]\d{0,8})?)?"
_ARRAY = re.compile(rf"{_RANGE}(?:,{_RANGE})*(?:%\d{{1,9}})?", re.ASCII)
SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP")
# What sbatch calls them; PBS knows three.
MAIL = ("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "TIME_LIMIT", "ALL")


class Gpus(NamedTuple):
    """GPUs on a node; the type is empty where any will do."""

    number: int
    type: str = ""

    def __str__(self) -> str:
        """Write them as sbatch does."""
        return f"{self.type}:{self.number}" if self.type else str(self.number)


class Signal(NamedTuple):
    """The warning before the time limit."""

    name: str  # without SIG
    before_s: int


def text_field(value: object) -> str:
    """Read text. What its place cannot carry is refused there, by this field's name."""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_TEXT:
        raise UsageError(f"1 to {LONGEST_TEXT} characters of text", repr(value), "another text")
    return carried_text(value)


def carried_text(value: str) -> str:
    """Return text that a shell can carry."""
    if NOT_CARRIED.intersection(value):
        raise UsageError("text without NUL, SOH and DEL", repr(value), "leaving out the control characters")
    return value


def line_field(value: object) -> str:
    """Read one line of shell. A comment could be taken for a directive, and does nothing else."""
    given = text_field(value)
    if given.lstrip().startswith("#"):
        raise UsageError("a shell command", f"the comment {given!r}", "leaving it out")
    if not given.replace("\t", " ").isprintable():
        raise UsageError("one printable line of shell", repr(given), "a line for each, or a script that the line calls")
    return given


def directory_field(value: object) -> str:
    """Read a path to change to. With ./ in front, `cd` neither takes - for the last one nor looks in CDPATH."""
    path = text_field(value)
    return path if path.split("/", 1)[0] in ("", ".", "..") else f"./{path}"


def count_field(value: object, *, least: int = 1, most: int = MOST_PER_NODE) -> int:
    """Read a whole number."""
    return whole(value, least=least, most=most)


def gpus_field(value: object, *, most: int = MOST_PER_NODE) -> Gpus:
    """Read [TYPE:]COUNT."""
    kind, _, number = str(value).rpartition(":")
    if not re.fullmatch(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?", kind):
        raise UsageError("[TYPE:]COUNT", repr(value), "4 or a100:4")
    return Gpus(count_field(number, most=most), kind)


def gres_field(value: object) -> Gpus:
    """Read gpu[:TYPE][:COUNT], which is the one generic resource that a script knows of."""
    kind, *rest = str(value).removeprefix("gres/").removeprefix("gres:").split(":")
    number = rest.pop() if rest and rest[-1].isdecimal() else "1"
    if kind != "gpu" or "" in rest or "," in str(value):
        raise UsageError("gpu[:TYPE][:COUNT]", repr(value), "gpu:4; other resources by --directive '--gres=…'")
    return gpus_field(":".join([*rest, number]))


def flag_field(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise UsageError("true or false", repr(value), "true")
    return value


def matching_field(value: object, *, pattern: re.Pattern[str], like: str) -> str:
    """Read text of one form."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or not pattern.fullmatch(value):
        raise UsageError(f"a value such as {like}", repr(value), like)
    return value


def array_field(value: object, *, pattern: re.Pattern[str], like: str) -> str:
    """Read ranges of an array, of which none runs backwards."""
    ranges = matching_field(value, pattern=pattern, like=like)
    for first, last in re.findall("([0-9]+)-([0-9]+)", ranges):
        if int(first) > int(last):
            raise UsageError("ascending ranges FIRST-LAST", repr(value), f"{last}-{first}")
    return ranges


def mail_field(value: object) -> tuple[str, ...]:
    """Read sbatch's list of events."""
    names = tuple(name.strip().upper() for name in str(value).split(","))
    wrong = [name for name in names if name not in MAIL]
    if wrong:
        raise UsageError(f"events out of {', '.join(MAIL)}", repr(value), "END,FAIL")
    return names


def signal_field(value: object) -> tuple[str, int | None]:
    """Read SIGNAL[@SECONDS], as sbatch does; the letter in front of a colon is ours to choose."""
    match = re.fullmatch(r"(?:[RB]{1,2}:)?(?:SIG)?([A-Z0-9]+)(?:@([0-9]{1,5}))?", str(value).upper())
    if not match or match[1] not in SIGNALS:
        raise UsageError(f"one of {', '.join(SIGNALS)} and seconds", repr(value), "USR1@120")
    return match[1], count_field(match[2], most=65_535) if match[2] else None


def variable_field(value: object) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, its = str(value).partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or len(its) > 32 * LONGEST_TEXT:
        raise UsageError("NAME=VALUE", repr(value), "OMP_NUM_THREADS=8")
    if _BASHS.fullmatch(name) or _SCRIPTS.fullmatch(name):
        only = f"-- env {name}=… python3 train.py, which sets it for the training only"
        raise UsageError("a variable that neither bash nor the script sets", repr(name), only)
    return name, carried_text(its)


class Field(NamedTuple):
    """One field. `kind` tells how it is given: once, each (A+B: one for each group of nodes), many, or flag.

    `short` is sbatch's letter for it, "" for none.
    """

    name: str
    read: Callable[[Any], Any]
    kind: Kind
    metavar: str
    help: str
    short: str = ""

    @property
    def option(self) -> str:
        """The option's long name."""
        return f"--{self.name}"

    @property
    def attribute(self) -> str:
        """The name in Python."""
        return self.name.replace("-", "_")


_NODES = partial(count_field, most=MOST_NODES)
_ARRAY_TEXT = partial(array_field, pattern=_ARRAY, like="0-9%2")
_RESTARTS = partial(count_field, least=0, most=1000)
_ADDRESS = partial(
    matching_field, pattern=re.compile(r"[^\s,;\x00]{1,255}(,[^\s,;\x00]{1,255})*"), like="me@example.org"
)
_FRAMEWORK = partial(matching_field, pattern=re.compile(r"[a-z][a-z-]{0,30}(,[a-z][a-z-]{0,30})*"), like="jax,ucx")

TABLE = (
    Field("job-name", text_field, "once", "NAME", "job name; by default the script's name", "-J"),
    Field("nodes", _NODES, "each", "N", "number of nodes; 1+2 asks for two groups of nodes", "-N"),
    Field("gpus-per-node", gpus_field, "each", "[TYPE:]N", "GPUs per node; 8+4 for two groups"),
    Field("ntasks-per-node", count_field, "each", "N", "training processes per node; by default one per GPU"),
    Field("ntasks", partial(count_field, most=_MOST_TASKS), "once", "N", "training processes on all nodes", "-n"),
    Field("gpus", partial(gpus_field, most=_MOST_TASKS), "once", "[TYPE:]N", "GPUs on all nodes together", "-G"),
    Field("gres", gres_field, "each", "gpu[:TYPE]:N", "GPUs per node, in Slurm's form"),
    Field("cpus-per-task", count_field, "each", "N", "CPUs per training process", "-c"),
    Field("mem", mebibytes_of, "each", "SIZE", "memory per node: 64G, 65536 (MiB)"),
    Field("constraint", text_field, "each", "FEATURE", "features that nodes must have; NAME=VALUE for PBS", "-C"),
    Field("time", seconds_of, "once", "TIME", "time limit: 90 (minutes), 5:00, 4:00:00, 1-12, 1h30m", "-t"),
    Field("partition", text_field, "once", "NAME", "partition or queue", "-p"),
    Field("account", text_field, "once", "NAME", "account to charge", "-A"),
    Field("qos", text_field, "once", "NAME", "quality of service", "-q"),
    Field("reservation", text_field, "once", "NAME", "reservation to run in"),
    Field("exclusive", flag_field, "flag", "", "do not share nodes with other jobs"),
    Field("output", text_field, "once", "PATH", "file for the output", "-o"),
    Field("error", text_field, "once", "PATH", "file for error messages; by default the output's", "-e"),
    Field("mail-user", _ADDRESS, "once", "ADDRESS", "address for mail"),
    Field("mail-type", mail_field, "once", "EVENT,…", "when to send mail: BEGIN, END, FAIL, ALL"),
    Field("array", _ARRAY_TEXT, "once", "RANGE", "job array: 0-9, 0-9:2, 0-99%4", "-a"),
    Field("dependency", text_field, "once", "LIST", "jobs to wait for: afterok:123", "-d"),
    Field("signal", signal_field, "once", "SIGNAL@S", "warning before the time limit; by default USR1@120"),
    Field("requeue", flag_field, "flag", "", "requeue the job after the warning, to continue from a checkpoint"),
    Field("chdir", directory_field, "once", "PATH", "working directory; by default that of the submission", "-D"),
    Field("module", text_field, "many", "NAME", "module to load"),
    Field("env", variable_field, "many", "NAME=VALUE", "variable to export"),
    Field("setup", line_field, "many", "COMMAND", "shell line to run before training, such as activating a venv"),
    Field("no-environment", flag_field, "flag", "", "do not use the active environment and this mingle"),
    Field("container", text_field, "once", "IMAGE", "container image: image.sif, docker://… (Apptainer), x.sqsh"),
    Field("bind", text_field, "many", "SRC[:DST]", "path to mount in the container"),
    Field("launcher", text_field, "once", "NAME", "what starts the processes; see `mingle template list`"),
    Field("max-restarts", _RESTARTS, "once", "N", "restarts of torchrun-elastic; 3 by default"),
    Field("for", _FRAMEWORK, "many", "F,…", "further frameworks whose variables to set, such as jax"),
    Field("directive", text_field, "many", "TEXT", "a directive of the scheduler, copied as is"),
)  # fmt: skip
FIELDS = {field.name: field for field in TABLE}
MOST_ENTRIES = _MOST_ENTRIES
