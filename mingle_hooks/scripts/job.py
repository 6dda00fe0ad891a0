"""The description of a job, the same for all schedulers: its fields and launchers, from options and a TOML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.export.launchers import Starts
from mingle_hooks.files import toml
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.values import duration, nearest, whole

# Times and sizes, in every usual form.

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
    """Read a size: 4096 (MiB, as in sbatch), 16G, 16gb, 16 GiB, 1.5T, or 0, which for Slurm is all there is.

    Returns MiB, rounded up. Raises UsageError.
    """
    match = _SIZE.fullmatch(str(value).strip()) if isinstance(value, (str, int)) else None
    found = float(match[1]) * _KIB[(match[2] or "m").lower()] / 1024 if match else -1
    if not 0 <= found <= _MOST_MIB:
        raise UsageError("a size of memory", repr(value), "4096 (MiB), 16G, 16gb or 1.5T")
    return -int(-found // 1)


def as_size(mib: int, units: tuple[str, str]) -> str:
    """Write MiB in the scheduler's units for mebi and gibi, the larger where it comes out whole."""
    return f"{mib}{units[0]}" if mib % 1024 else f"{mib // 1024}{units[1]}"


# The readers of the fields: each takes a typed text or a value of TOML, and returns the value or raises UsageError.

Kind = Literal["once", "each", "many", "flag"]

# bash marks characters with DEL and \001 inside $'…' in `declare -f`; older versions double or drop these two.
NOT_CARRIED = frozenset("\0\x01\x7f")
LONGEST_TEXT = 4096  # PATH_MAX; names and options are shorter
MOST_ENTRIES = 1024  # more modules, variables or set-up lines than anybody has
MOST_PER_NODE = 4096  # GPUs or CPUs of one node, by a wide margin
_MOST_TASKS = MOST_NODES * MOST_PER_NODE
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
# Names that bash reserves, so that a value does not arrive; and those that the scripts set.
_BASHS = re.compile(
    "BASH(?!_ENV$).*|COMP_WORDBREAKS|DIRSTACK|EPOCH(?:REALTIME|SECONDS)|E?UID|FUNCNAME|GROUPS|HISTCMD|IFS|LINENO"
    "|(?:OLD)?PWD|OPTERR|OPTIND|PIPESTATUS|POSIXLY_CORRECT|PPID|PS4|S?RANDOM|SECONDS|SHELLOPTS|SHLVL|_"
)
_SCRIPTS = re.compile("MINGLE_KEY|MINGLE_RUN.*|MINGLE_ATTEMPT|(?:LOCAL_|GROUP_)?RANK")
_RANGE = r"\d{1,9}(?:-\d{1,9}(?::0{0,8}[1-9]\d{0,8})?)?"
ARRAY = re.compile(rf"{_RANGE}(?:,{_RANGE})*(?:%\d{{1,9}})?", re.ASCII)
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
    """Read text. A scheduler or a shell that cannot carry it refuses it later, by this field's name."""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_TEXT:
        raise UsageError(f"1 to {LONGEST_TEXT} characters of text", repr(value), "another text")
    return carried_text(value)


def carried_text(value: str) -> str:
    """Return text that a shell can carry."""
    if NOT_CARRIED.intersection(value):
        raise UsageError("text without NUL, SOH and DEL", repr(value), "leaving out the control characters")
    return value


def line_field(value: object) -> str:
    """Read one line of shell. A comment is refused, as a scheduler could take it for a directive."""
    given = text_field(value)
    if given.lstrip().startswith("#"):
        raise UsageError("a shell command", f"the comment {given!r}", "leaving it out")
    if not given.replace("\t", " ").isprintable():
        raise UsageError("one printable line of shell", repr(given), "a line for each, or a script that the line calls")
    return given


def directory_field(value: object) -> str:
    """Read a directory. With ./ in front, `cd` neither takes - for the last one nor looks in CDPATH."""
    path = text_field(value)
    return path if path.split("/", 1)[0] in ("", ".", "..") else f"./{path}"


count_field = partial(whole, least=1, most=MOST_PER_NODE)


def gpus_field(value: object, *, most: int = MOST_PER_NODE) -> Gpus:
    """Read [TYPE:]COUNT."""
    kind, _, number = str(value).rpartition(":")
    if not re.fullmatch(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?", kind):
        raise UsageError("[TYPE:]COUNT", repr(value), "4 or a100:4")
    return Gpus(count_field(number, most=most), kind)


def gres_field(value: object) -> Gpus:
    """Read gpu[:TYPE][:COUNT]; scripts know no other generic resource."""
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


def array_field(value: object) -> str:
    """Read ranges of an array, of which none runs backwards."""
    ranges = matching_field(value, pattern=ARRAY, like="0-9%2")
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
    """Read SIGNAL[@SECONDS], as sbatch does; a letter in front of a colon is ignored, as the script chooses it."""
    match = re.fullmatch(r"(?:[RB]{1,2}:)?(?:SIG)?([A-Z0-9]+)(?:@([0-9]{1,5}))?", str(value).upper())
    if not match or match[1] not in SIGNALS:
        raise UsageError(f"one of {', '.join(SIGNALS)} and seconds", repr(value), "USR1@120")
    return match[1], count_field(match[2], most=65_535) if match[2] else None


def variable_field(value: object) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, text = str(value).partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or len(text) > 32 * LONGEST_TEXT:
        raise UsageError("NAME=VALUE", repr(value), "OMP_NUM_THREADS=8")
    if _BASHS.fullmatch(name) or _SCRIPTS.fullmatch(name):
        only = f"-- env {name}=… python3 train.py, which sets it for the training only"
        raise UsageError("a variable that neither bash nor the script sets", repr(name), only)
    return name, carried_text(text)


class Field(NamedTuple):
    """One field; `short` is sbatch's letter for it, "" for none.

    `kind`: it is given once; for each group of nodes, as A+B; many times; or as a flag.
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


_NODES = partial(whole, least=1, most=MOST_NODES)
_RESTARTS = partial(whole, least=0, most=1000)
_ADDRESS = partial(
    matching_field, pattern=re.compile(r"[^\s,;\x00]{1,255}(,[^\s,;\x00]{1,255})*"), like="me@example.org"
)
_FRAMEWORK = partial(matching_field, pattern=re.compile(r"[a-z][a-z-]{0,30}(,[a-z][a-z-]{0,30})*"), like="jax,ucx")

# The names are sbatch's long options if it has one. The command line, the TOML file and the help are made from these.
FIELDS = {
    field.name: field
    for field in (
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
        Field("array", array_field, "once", "RANGE", "job array: 0-9, 0-9:2, 0-99%4", "-a"),
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
    )
}


# Totals of a whole job (--ntasks, --gpus), and Slurm's --gres, become values for each node.

Each = dict[str, tuple[Any, ...]]
# The field of the whole job -> the field of one node.
_EACH = {"ntasks": "ntasks-per-node", "gpus": "gpus-per-node"}
SAME = {**_EACH, "gres": "gpus-per-node"}


def _shared(found: Each, total: str, value: Gpus | int, name: str) -> Each:
    """Return what follows from a total for each group of nodes.

    All nodes share it evenly; with a number for each node, it gives the number of nodes. Raises UsageError.
    """
    number = _number(value)
    here = found.get(name)
    if here and len(here) == 1 and "nodes" not in found:
        return {"nodes": (_part(total, number, _number(here[0]), f"{here[0]} on each node", MOST_NODES),)}
    length = max((len(values) for values in found.values()), default=1)
    counts = _long(found.get("nodes", (1,)), length)
    nodes = sum(counts)
    if here:
        added = sum(count * _number(value) for count, value in zip(counts, _long(here, length), strict=False))
        if added != number:
            remedy = f"leaving --{total} out"
            raise UsageError(f"--{total} {added}, as --{name} says", f"--{total} {number}", remedy)
        return {}
    share = _part(total, number, nodes, f"{nodes} nodes", MOST_PER_NODE)
    return {name: (Gpus(share, value.type) if isinstance(value, Gpus) else share,)}


def _number(value: Gpus | int) -> int:
    return value.number if isinstance(value, Gpus) else value


def _long(values: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    return values * length if len(values) == 1 else values


def _part(total: str, number: int, parts: int, by: str, most: int) -> int:
    """Return one of the parts of a total. Raises UsageError, which names the total, if it does not come out even."""
    part, rest = divmod(number, parts)
    if rest:
        lower = number - rest
        works = f"--{total} {lower} or {lower + parts}" if lower else f"--{total} {parts}"
        raise UsageError(f"--{total} that comes out even with {by}", f"--{total} {number}", works)
    if part > most:
        can = f"--{total} that is, for each node, a whole number from 1 to {most}"
        raise UsageError(can, str(part), "more --nodes")
    return part


# The launchers, which start the training processes: one row for each.


class Launcher(NamedTuple):
    """A launcher, and where it has to be started.

    `starts` is "node" for one that runs on every node and starts its processes, "task" for the scheduler, which starts
    every process, and "job" for one that reaches all nodes itself.
    """

    name: str
    starts: Starts
    frameworks: tuple[str, ...]
    help: str
    starter: tuple[str, ...] = ()  # its command line, unless the user typed it
    no_python: tuple[str, ...] = ()  # the options for a program that is no Python script
    module: str = "-m"  # the option for a module
    restarts: str = ""  # the option for how often it may restart processes

    def argv(self, typed: tuple[str, ...], max_restarts: int) -> tuple[str, ...]:
        """Return the arguments in front of the program; the user's own come first."""
        return (*(typed or self.starter), *((f"{self.restarts}={max_restarts}",) if self.restarts else ()))


_TORCHRUN, _ELASTIC, _DEEPSPEED = ("torchrun",), ("torchrun-elastic",), ("deepspeed",)
_ACCELERATE, _RAY, _NO_PYTHON = ("accelerate", "launch"), ("ray", "symmetric-run", "--"), ("--no-python",)
# deepspeed would put --local_rank=N before the program's own arguments.
_NO_LOCAL_RANK = ("--no_local_rank", "--no_python")
_RAYS_HELP = "a Ray head on the first node, workers on the others; the command is the driver"
_STATICS_HELP = "torchrun, static: a failed process ends the job"
_ELASTICS_HELP = "torchrun, c10d: restarts up to --max-restarts times"
_DEEPSPEEDS_HELP = "deepspeed with a hostfile, without ssh"
# The names of frameworks are those of `mingle env --for`.
LAUNCHERS = {
    launcher.name: launcher
    for launcher in (
        Launcher("torchrun", "node", _TORCHRUN, _STATICS_HELP, _TORCHRUN, _NO_PYTHON),
        Launcher("torchrun-elastic", "node", _ELASTIC, _ELASTICS_HELP, _TORCHRUN, _NO_PYTHON, "-m", "--max-restarts"),
        Launcher("accelerate", "node", (), "accelerate launch", _ACCELERATE, ("--no_python",), "--module"),
        Launcher("deepspeed", "node", _DEEPSPEED, _DEEPSPEEDS_HELP, _DEEPSPEED, _NO_LOCAL_RANK, "--module"),
        Launcher("mpirun", "job", (), "Open MPI's mpirun, one process per slot"),
        Launcher("ray", "node", ("ray",), _RAYS_HELP, _RAY),
        Launcher("process", "task", (), "one process per task, with RANK and LOCAL_RANK"),
        Launcher("plain", "node", (), "the command once on every node, with NODE_RANK"),
    )
}


# Of a job file or a script, which are a screenful and a page; sbatch's own limit for scripts is 4 MiB.
LARGEST_BYTES = 1 << 20
MOST_GROUPS = 128  # Slurm's own bound on the components of a job (MAX_HET_JOB_COMPS)
_WARNING_S = 120  # enough to write a large checkpoint; half of a shorter limit
_SBATCHS_WARNING_S = 60  # what sbatch takes for a --signal without seconds
DEFAULT = "default"


@dataclass(frozen=True)
class Group:
    """Nodes that are alike; `ntasks` training processes run on each."""

    nodes: int
    ntasks: int
    gpus: Gpus | None = None
    cpus: int | None = None  # for each process
    mem: int | None = None  # MiB on each node
    constraint: str | None = None


@dataclass(frozen=True)
class Job:
    """A job as the user describes it; None or empty is left to the scheduler.

    `starter` is the user's own command line of the launcher, as in `torchrun train.py`; `command` is what it starts.
    """

    command: tuple[str, ...]
    launcher: Launcher
    groups: tuple[Group, ...]
    job_name: str
    signal: Signal
    starter: tuple[str, ...] = ()
    time: int | None = None  # seconds
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    exclusive: bool = False
    output: str | None = None
    error: str | None = None
    mail_user: str | None = None
    mail_type: tuple[str, ...] = ()
    array: str | None = None
    dependency: str | None = None
    requeue: bool = False
    chdir: str | None = None
    module: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()
    no_environment: bool = False
    container: str | None = None
    bind: tuple[str, ...] = ()
    max_restarts: int = 3
    frameworks: tuple[str, ...] = ()
    directive: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def nodes(self) -> int:
        """All nodes."""
        return sum(group.nodes for group in self.groups)

    @property
    def ntasks(self) -> int | None:
        """Training processes on each node; None if groups differ."""
        counts = {group.ntasks for group in self.groups}
        return counts.pop() if len(counts) == 1 else None

    def source(self, name: str) -> str:
        """Return where a field comes from: its option, the file, or "default"."""
        return self.sources.get(name, DEFAULT)


def read_fields(
    options: Mapping[str, object], spec: str | Mapping[str, object] | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a TOML file or a mapping, and of the options, which take precedence; and their sources.

    The file's command is among the fields. Raises UsageError, which names the field.
    """
    values, sources = _from_tree(_parsed(spec), spec) if isinstance(spec, str) else _from_tree(spec or {}, "the job")
    for name, value in options.items():
        if value not in (None, False, (), []):
            values[name] = _read(FIELDS[name], value, FIELDS[name].option)
            sources[name] = FIELDS[name].option
    # Fields that follow from a total have its source.
    return values, {each: sources[total] for total, each in SAME.items() if total in sources} | sources


def read_groups(values: dict[str, Any]) -> tuple[Group, ...]:
    """Remove the fields of nodes, and return the groups of nodes that they describe. Raises UsageError."""
    each = {name: values.pop(name) for name, field in FIELDS.items() if field.kind == "each" and name in values}
    gres = each.pop("gres", None)
    if gres and each.setdefault("gpus-per-node", gres) != gres:
        seen = " and --gpus-per-node ".join("+".join(map(str, gpus)) for gpus in (gres, each["gpus-per-node"]))
        raise UsageError("--gres that says what --gpus-per-node says", seen, "leaving one of them out")
    for total, name in _EACH.items():
        if total in values:
            each |= _shared(each, total, values.pop(total), name)
    # A single value is for all groups.
    length = max((len(values) for values in each.values()), default=1)
    for name, found in each.items():
        if len(found) not in (1, length):
            raise UsageError(f"{FIELDS[name].option} with 1 or {length} values", str(len(found)), "as many as groups")
    names = ("nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "mem", "constraint")
    columns = (_long(each.get(name, (None,)), length) for name in names)
    return tuple(
        Group(nodes or 1, ntasks or (gpus or Gpus(1)).number, gpus, *rest)
        for nodes, ntasks, gpus, *rest in zip(*columns, strict=True)
    )


def limit_warning(given: tuple[str, int | None] | None, limit_s: int | None) -> Signal:
    """Return the warning before the time limit. Raises UsageError for one at the start, which would end the job."""
    name, before_s = given or ("USR1", None)
    if before_s is None:
        usual_s = _SBATCHS_WARNING_S if given else _WARNING_S
        return Signal(name, min(usual_s, -(-limit_s // 2)) if limit_s else usual_s)
    if limit_s and before_s >= limit_s:
        seen = f"{before_s} s before a limit of {limit_s} s"
        raise UsageError("--signal after the start", seen, f"--signal {name}, which comes half-way or later")
    return Signal(name, before_s)


def _from_tree(tree: Mapping[str, object], path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the fields of a TOML file or a mapping; messages name it by `path`."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = key.replace("_", "-")
        if name == "command":
            found[name] = _command(value, path)
        elif name in FIELDS:
            found[name] = _read(FIELDS[name], value, f"{key} in {path}")
        else:
            near = nearest(key, ["command", *FIELDS])
            raise UsageError("a field of a job", f"{key} in {path}", f"{near}, which is the nearest")
    return found, dict.fromkeys(found, path)


def _command(value: object, path: str) -> list[object]:
    if isinstance(value, str) and len(value.split()) > 1:
        raise UsageError("a list of words", f"command in {path}: {value!r}", 'command = ["train.py", "--lr", "1e-3"]')
    return value if isinstance(value, list) else [value]


def _read(field: Field, value: object, where: str) -> Any:
    try:
        if field.name == "env" and isinstance(value, dict):
            value = [f"{name}={_as_text(text)}" for name, text in value.items()]
        if field.kind == "each":
            parts = value if isinstance(value, list) else value.split("+") if isinstance(value, str) else [value]
            return tuple(field.read(part) for part in _bounded(parts, MOST_GROUPS))
        if field.kind == "many":
            return tuple(field.read(part) for part in _bounded(value, MOST_ENTRIES))
        return field.read(value)
    except UsageError as wrong:
        raise UsageError(wrong.expected, f"{where}: {wrong.seen}", wrong.remedy) from None


def _as_text(value: object) -> str:
    """Return a value of TOML as it was written. Raises UsageError for types that Python writes in another way."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise UsageError("text or a whole number", repr(value), "quotes around it")
    return str(value)


def _bounded(value: object, most: int) -> list[object]:
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    if not 1 <= len(parts) <= most:
        raise UsageError(f"1 to {most} values", str(len(parts)), "a shorter list")
    return parts


def _parsed(path: str) -> dict[str, Any]:
    try:
        return toml(read_file(path, "--spec file", "the path of a TOML file"))
    except ValueError as wrong:
        raise UsageError("a TOML file", f"{path}: {wrong} (--spec)", "correcting that line") from None


def read_file(path: str, what: str, remedy: str) -> bytes:
    """Return the contents of a file that the user names, `what` in messages. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as wrong:
        raise UsageError(f"a readable {what}", f"{path}: {wrong.strerror}", remedy) from None
    if len(data) > LARGEST_BYTES:
        raise UsageError(f"a {what} of at most {LARGEST_BYTES} bytes", f"{path}, which is larger", remedy)
    return data
