"""The fields of a job description: the command line, the TOML file, the checks and the help are made from this table.

Names are sbatch's long options where it has one. A reader takes what was typed or what TOML holds, returns
the value, or raises UsageError.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.render import quantities
from mingle_hooks.render.quoting import NOT_CARRIED
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.values import whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

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


def text(value: object) -> str:
    """Read text. What its place cannot carry is refused there, by this field's name."""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_TEXT:
        raise UsageError(f"1 to {LONGEST_TEXT} characters of text", repr(value), "another text")
    return carried(value)


def carried(value: str) -> str:
    """Return text that a shell can carry."""
    if NOT_CARRIED.intersection(value):
        raise UsageError("text without NUL, SOH and DEL", repr(value), "leaving out the control characters")
    return value


def line(value: object) -> str:
    """Read one line of shell. A comment could be taken for a directive, and does nothing else."""
    given = text(value)
    if given.lstrip().startswith("#"):
        raise UsageError("a shell command", f"the comment {given!r}", "leaving it out")
    if not given.replace("\t", " ").isprintable():
        raise UsageError("one printable line of shell", repr(given), "a line for each, or a script that the line calls")
    return given


def directory(value: object) -> str:
    """Read a path to change to. With ./ in front, `cd` neither takes - for the last one nor looks in CDPATH."""
    path = text(value)
    return path if path.split("/", 1)[0] in ("", ".", "..") else f"./{path}"


def count(value: object, *, least: int = 1, most: int = MOST_PER_NODE) -> int:
    """Read a whole number."""
    return whole(value, least=least, most=most)


def gpus(value: object, *, most: int = MOST_PER_NODE) -> Gpus:
    """Read [TYPE:]COUNT."""
    kind, _, number = str(value).rpartition(":")
    if not re.fullmatch(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?", kind):
        raise UsageError("[TYPE:]COUNT", repr(value), "4 or a100:4")
    return Gpus(count(number, most=most), kind)


def gres(value: object) -> Gpus:
    """Read gpu[:TYPE][:COUNT], which is the one generic resource that a script knows of."""
    kind, *rest = str(value).removeprefix("gres/").removeprefix("gres:").split(":")
    number = rest.pop() if rest and rest[-1].isdecimal() else "1"
    if kind != "gpu" or "" in rest or "," in str(value):
        raise UsageError("gpu[:TYPE][:COUNT]", repr(value), "gpu:4; other resources by --directive '--gres=…'")
    return gpus(":".join([*rest, number]))


def flag(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise UsageError("true or false", repr(value), "true")
    return value


def matching(value: object, *, pattern: re.Pattern[str], like: str) -> str:
    """Read text of one form."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or not pattern.fullmatch(value):
        raise UsageError(f"a value such as {like}", repr(value), like)
    return value


def array(value: object, *, pattern: re.Pattern[str], like: str) -> str:
    """Read ranges of an array, of which none runs backwards."""
    ranges = matching(value, pattern=pattern, like=like)
    for first, last in re.findall("([0-9]+)-([0-9]+)", ranges):
        if int(first) > int(last):
            raise UsageError("ascending ranges FIRST-LAST", repr(value), f"{last}-{first}")
    return ranges


def mail(value: object) -> tuple[str, ...]:
    """Read sbatch's list of events."""
    names = tuple(name.strip().upper() for name in str(value).split(","))
    wrong = [name for name in names if name not in MAIL]
    if wrong:
        raise UsageError(f"events out of {', '.join(MAIL)}", repr(value), "END,FAIL")
    return names


def signal(value: object) -> tuple[str, int | None]:
    """Read SIGNAL[@SECONDS], as sbatch does; the letter in front of a colon is ours to choose."""
    match = re.fullmatch(r"(?:[RB]{1,2}:)?(?:SIG)?([A-Z0-9]+)(?:@([0-9]{1,5}))?", str(value).upper())
    if not match or match[1] not in SIGNALS:
        raise UsageError(f"one of {', '.join(SIGNALS)} and seconds", repr(value), "USR1@120")
    return match[1], count(match[2], most=65_535) if match[2] else None


def variable(value: object) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, its = str(value).partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or len(its) > 32 * LONGEST_TEXT:
        raise UsageError("NAME=VALUE", repr(value), "OMP_NUM_THREADS=8")
    if _BASHS.fullmatch(name) or _SCRIPTS.fullmatch(name):
        only = f"-- env {name}=… python3 train.py, which sets it for the training only"
        raise UsageError("a variable that neither bash nor the script sets", repr(name), only)
    return name, carried(its)


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


_NODES = partial(count, most=MOST_NODES)
_ARRAY_TEXT = partial(array, pattern=_ARRAY, like="0-9%2")
_RESTARTS = partial(count, least=0, most=1000)
_ADDRESS = partial(matching, pattern=re.compile(r"[^\s,;\x00]{1,255}(,[^\s,;\x00]{1,255})*"), like="me@example.org")
_FRAMEWORK = partial(matching, pattern=re.compile(r"[a-z][a-z-]{0,30}(,[a-z][a-z-]{0,30})*"), like="jax,ucx")

TABLE = (
    Field("job-name", text, "once", "NAME", "job name; by default the script's name", "-J"),
    Field("nodes", _NODES, "each", "N", "number of nodes; 1+2 asks for two groups of nodes", "-N"),
    Field("gpus-per-node", gpus, "each", "[TYPE:]N", "GPUs per node; 8+4 for two groups"),
    Field("ntasks-per-node", count, "each", "N", "training processes per node; by default one per GPU"),
    Field("ntasks", partial(count, most=_MOST_TASKS), "once", "N", "training processes on all nodes together", "-n"),
    Field("gpus", partial(gpus, most=_MOST_TASKS), "once", "[TYPE:]N", "GPUs on all nodes together", "-G"),
    Field("gres", gres, "each", "gpu[:TYPE]:N", "GPUs per node, in Slurm's form"),
    Field("cpus-per-task", count, "each", "N", "CPUs per training process", "-c"),
    Field("mem", quantities.mebibytes, "each", "SIZE", "memory per node: 64G, 65536 (MiB)"),
    Field("constraint", text, "each", "FEATURE", "features that nodes must have; NAME=VALUE for PBS", "-C"),
    Field("time", quantities.seconds, "once", "TIME", "time limit: 90 (minutes), 5:00, 4:00:00, 1-12, 1h30m", "-t"),
    Field("partition", text, "once", "NAME", "partition or queue", "-p"),
    Field("account", text, "once", "NAME", "account to charge", "-A"),
    Field("qos", text, "once", "NAME", "quality of service", "-q"),
    Field("reservation", text, "once", "NAME", "reservation to run in"),
    Field("exclusive", flag, "flag", "", "do not share nodes with other jobs"),
    Field("output", text, "once", "PATH", "file for the output", "-o"),
    Field("error", text, "once", "PATH", "file for error messages; by default the output's", "-e"),
    Field("mail-user", _ADDRESS, "once", "ADDRESS", "address for mail"),
    Field("mail-type", mail, "once", "EVENT,…", "when to send mail: BEGIN, END, FAIL, ALL"),
    Field("array", _ARRAY_TEXT, "once", "RANGE", "job array: 0-9, 0-9:2, 0-99%4", "-a"),
    Field("dependency", text, "once", "LIST", "jobs to wait for: afterok:123", "-d"),
    Field("signal", signal, "once", "SIGNAL@S", "warning before the time limit; by default USR1@120"),
    Field("requeue", flag, "flag", "", "requeue the job after the warning, to continue from a checkpoint"),
    Field("chdir", directory, "once", "PATH", "working directory; by default that of the submission", "-D"),
    Field("module", text, "many", "NAME", "module to load"),
    Field("env", variable, "many", "NAME=VALUE", "variable to export"),
    Field("setup", line, "many", "COMMAND", "shell line to run before training, such as one that activates a venv"),
    Field("no-environment", flag, "flag", "", "do not use the active environment and this mingle"),
    Field("container", text, "once", "IMAGE", "container image: image.sif or docker://… (Apptainer), x.sqsh (pyxis)"),
    Field("bind", text, "many", "SRC[:DST]", "path to mount in the container"),
    Field("launcher", text, "once", "NAME", "what starts the processes; see `mingle template list`"),
    Field("max-restarts", _RESTARTS, "once", "N", "restarts of torchrun-elastic; 3 by default"),
    Field("for", _FRAMEWORK, "many", "F,…", "further frameworks whose variables to set, such as jax"),
    Field("directive", text, "many", "TEXT", "a directive of the scheduler, copied as is"),
)  # fmt: skip
FIELDS = {field.name: field for field in TABLE}
MOST_ENTRIES = _MOST_ENTRIES
