"""The directives of each scheduler. TABLE has a row for each scheduler; one template serves all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.job import Group, Job, as_hms, as_size
from mingle_hooks.values import nearest


class Directive(NamedTuple):
    """One directive without its marker, and the field of the job that it carries; `also` has further fields."""

    text: str
    field: str
    also: tuple[str, ...] = ()


class Scheduler(NamedTuple):
    """A scheduler, the command that submits its scripts, and how its jobs are started."""

    name: str
    submit: str
    marker: str  # what begins a directive
    help: str
    directives: Callable[[Job], tuple[Directive, ...]]
    # It can start every training process itself, not only one on each node, and in enroot's images, by pyxis.
    runs_tasks: bool = False
    again: str = ""  # a shell word: the command that requeues the job
    submitted_in: str = ""  # the variable with the directory that the job was submitted in
    also: tuple[str, ...] = ()  # other names


Row = tuple[str, str, object]  # the option with what separates it from its value, the field, and the value


def rows_of(quote: Callable[[str, str], str], *rows: Row) -> tuple[Directive, ...]:
    """Return a directive for each row that has a value; True stands for an option without one. Raises UsageError."""
    return tuple(
        Directive(option if value is True else option + quote(field, str(value)), field)
        for option, field, value in rows
        if value not in (None, "", False)
    )


# Values that a directive cannot carry are refused by the field's name, with a value that works if one is known.


def refused(field: str, value: object, can: str, remedy: str = "") -> UsageError:
    """Return the error for a field whose value the scheduler's directive cannot carry."""
    seen = f"--{field}" if value is True else repr(value)
    return UsageError(f"--{field} as {can}", seen, remedy or f"another value for --{field}, or leaving it out")


def name_of(job: Job, pattern: re.Pattern[str], can: str) -> str:
    """Return the job's name. Raises UsageError, with the nearest name that every scheduler takes."""
    safe = re.sub("[^A-Za-z0-9_.-]", "_", job.job_name)[:200]
    return matching("job-name", job.job_name, pattern, can, safe if safe[:1].isalpha() else f"job{safe}")


def without_qos(job: Job, scheduler: str) -> None:
    """Raise UsageError if the job has a quality of service, which the scheduler has not."""
    if job.qos:
        can = f"nothing, because {scheduler} has none"
        raise refused("qos", job.qos, can, "leaving --qos out; a queue is --partition")


def only_group(job: Job) -> Group:
    """Return the job's group of nodes. Raises UsageError if there are several."""
    if len(job.groups) > 1:
        nodes, works = "+".join(str(group.nodes) for group in job.groups), f"--nodes {job.nodes}"
        raise refused("nodes", nodes, "one group of nodes", f"{works}, and one value for each other option")
    return job.groups[0]


def refused_array(array: str, can: str, least: int) -> UsageError:
    """Return the error for an array, with its first range, from `least` on, as what works."""
    found = re.search(r"([0-9]+)-([0-9]+)(:[0-9]+)?", array)
    if not found or int(found[1]) >= int(found[2]):
        return refused("array", array, can, "leaving --array out, or a range such as --array 1-2")
    more = max(0, least - int(found[1]))
    works = f"--array {int(found[1]) + more}-{int(found[2]) + more}{found[3] or ''}{''.join(array.partition('%')[1:])}"
    return refused("array", array, can, works + (", and another script for the rest" if "," in array else ""))


def array_with_limit(array: str) -> str:
    """Return an array. Raises UsageError for %0, which only Slurm takes, for no limit of jobs at once."""
    if re.search("%0+$", array):
        works = f"--array {array.partition('%')[0]}, which is all at once"
        raise refused("array", array, "ranges with 1 or more jobs at once", works)
    return array


def matching(field: str, value: str | None, pattern: re.Pattern[str], can: str, works: str = "") -> str:
    """Return the value, "" for None. Raises UsageError, with a value that `works`, if it does not match."""
    if value is not None and not pattern.fullmatch(value):
        raise refused(field, value, can, works and f"--{field} {works}")
    return value or ""


def list_of(one: str, separator: str = ",") -> re.Pattern[str]:
    """Return the pattern of a list in which each item matches `one`."""
    return re.compile(f"(?:{one})(?:{separator}(?:{one}))*", re.ASCII)


def mail_letters(job: Job, known: Mapping[str, str]) -> str:
    """Return the scheduler's letters for the events on which mail is sent, each once. Raises UsageError."""
    for event in job.mail_type:
        if event not in known:
            works = dict.fromkeys(event if event in known else "FAIL" for event in job.mail_type)
            raise refused("mail-type", event, ", ".join(known), f"--mail-type {','.join(works)}")
    return "".join(dict.fromkeys("".join(known[event] for event in job.mail_type)))


# Slurm's patterns in the name of an output file, such as logs/%x-%j.out, as other schedulers write them.
#
# Source: sbatch(1), "filename pattern". A % that begins no pattern stands for itself.

_FILENAME = re.compile("%(?:%|([0-9]*)([AabJjNnstux]))")


def _translated(field: str, path: str, patterns: Mapping[str, str]) -> str:
    """Return the path with the text that `patterns` has for each letter, and % for %%.

    Raises UsageError for other letters and for a number of digits, which only Slurm has.
    """

    def text(match: re.Match[str]) -> str:
        digits, letter = match.groups()
        if letter is None:
            return "%"
        if digits or letter not in patterns:
            works = f"--{field} {_translatable(path, patterns)}"
            raise refused(field, path, f"a path without Slurm's {match[0]}", works)
        return patterns[letter]

    return _FILENAME.sub(text, path)


def _translatable(path: str, patterns: Mapping[str, str]) -> str:
    """Return a path that can be translated: with the job's number, or only its directory."""
    if "j" not in patterns:
        directory, slash, _ = path.partition("%")[0].rpartition("/")
        return f"{directory}{slash or './'}, a directory (with the /), where the file is named after the job"
    return _FILENAME.sub(
        lambda match: match[0] if match[2] is None else f"%{match[2] if match[2] in patterns else 'j'}", path
    )


# Directives for sbatch. Source: sbatch(1); get_argument() in Slurm's src/sbatch/opt.c for the quoting.

_SLURM_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./&|\[\]^~-]+", re.ASCII)
# _validate_job_desc() in slurmctld's job_mgr.c refuses what is longer.
_SLURM_LONGEST_BYTES = {"output": 4095, "error": 4095, "array": 4096, "dependency": 131_072}
_SLURM_LONGEST_OTHERS = 1024
_SLURM_AS_GIVEN = ("account", "qos", "reservation", "output", "error", "mail_user")


def _slurm(job: Job) -> tuple[Directive, ...]:
    """Return the directives; for several groups of nodes those of a heterogeneous job. Raises UsageError."""
    if len(job.groups) > 1 and job.array:
        can = "nothing, because Slurm has no arrays of heterogeneous jobs"
        raise refused("array", job.array, can, "leaving --array out, or one group of nodes")
    first, *others = (_slurm_group(job, group) for group in job.groups)
    whole = _slurm_rows(
        time=job.time and as_hms(job.time),
        **{name: getattr(job, name) for name in _SLURM_AS_GIVEN},
        mail_type=",".join(job.mail_type),
        array=job.array,
        dependency=job.dependency,
        # To `mingle run`, which is the batch script, and not to all processes: a launcher would die of it.
        signal=f"B:{job.signal.name}@{job.signal.before_s}",
    )
    requeue = (Directive("--requeue", "requeue"), Directive("--open-mode=append", "requeue")) if job.requeue else ()
    het = [directive for group in others for directive in (Directive("hetjob", "nodes"), *group)]
    return (*_slurm_rows(job_name=job.job_name), *first, *whole, *requeue, *het)


def _slurm_group(job: Job, group: Group) -> tuple[Directive, ...]:
    by_node = job.launcher.starts == "node"  # then Slurm starts one task, and that the others
    found = _slurm_rows(
        nodes=group.nodes,
        ntasks_per_node=1 if by_node else group.ntasks,
        cpus_per_task=group.cpus and group.cpus * (group.ntasks if by_node else 1),
        gpus_per_node=group.gpus,
        mem="0" if group.mem == 0 else group.mem and as_size(group.mem, ("M", "G")),
        constraint=group.constraint,
        partition=job.partition,
    )
    return (*found, *([Directive("--exclusive", "exclusive")] if job.exclusive else []))


def _slurm_rows(**values: object) -> tuple[Directive, ...]:
    """Return the directives of these fields, which are named after the options of sbatch."""
    fields = {name.replace("_", "-"): value for name, value in values.items()}
    return rows_of(_slurm_quoted, *((f"--{field}=", field, value) for field, value in fields.items()))


def _slurm_quoted(name: str, value: str) -> str:
    """Quote as sbatch reads it: a backslash escapes, also within quotes; a line feed cannot be escaped."""
    if "\n" in value or "\r" in value:
        raise refused(name, value, "one line, which a #SBATCH directive is", f"--{name} without the line feed")
    longest = _SLURM_LONGEST_BYTES.get(name, _SLURM_LONGEST_OTHERS)
    if len(value.encode("utf-8", "surrogateescape")) > longest:
        raise refused(name, value, f"at most {longest} bytes, which is Slurm's own limit", f"a shorter --{name}")
    if name in ("output", "error") and "\\" in value:
        works = f"--{name} {value.replace(chr(92), '_')}"
        raise refused(name, value, "a path without a backslash, which Slurm drops", works)
    if _SLURM_PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


# Directives for OpenPBS's qsub.
#
# Source: PBS User's Guide; make_argv() and process_opts() in OpenPBS's src/cmds/qsub.c for the quoting,
# prepare_path() for paths, parse_at_list() for addresses. All of it was tried on OpenPBS 23.06.

_PBS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,229}", re.ASCII)
_PBS_RESOURCE = list_of("[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9_.-]+", ":")
_PBS_ARRAY = re.compile(r"[0-9]+-[0-9]+(?::[0-9]+)?(?:%[0-9]+)?", re.ASCII)
# qsub(1B), -W depend: what depends on jobs
_PBS_ON_JOBS = "(?:after|before)(?:ok|notok|any)?"
_PBS_JOB = r"[0-9]+(?:\[[0-9]*\])?(?:\.[A-Za-z0-9.-]+)?(?:@[A-Za-z0-9.-]+)?"
_PBS_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(@[A-Za-z0-9.-]{1,64})?", re.ASCII)
# qsub wants printable ASCII, drops spaces in front, and takes what stands before a colon for a host.
_PBS_PATH = re.compile(r"(?:[A-Za-z0-9.-]+:/|[A-Za-z0-9.-]*/)[ -~]*|[!-9;-~][ -9;-~]*", re.ASCII)
# prepare_path() cuts host, directory and path after 1025 characters in all; this leaves half for the first two.
_PBS_LONGEST_PATH = 512
_PBS_MAIL_USERS = list_of("[A-Za-z0-9_.+%=/~'-]+(?:@[A-Za-z0-9.-]+)?")
_PBS_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./^~-]+", re.ASCII)
_PBS_OF_CHUNKS = ("ntasks-per-node", "cpus-per-task", "gpus-per-node", "mem", "constraint")
_PBS_INDEX = "^array_index^"  # its server replaces the first only: PBS_FILE_ARRAY_INDEX_TAG
_PBS_MAIL = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "NONE": "n"}


def _pbs(job: Job) -> tuple[Directive, ...]:
    """Return the directives: one chunk for each node, on hosts of their own. Raises UsageError."""
    without_qos(job, "PBS")
    chunks = "+".join(_pbs_chunk(group) for group in job.groups)
    patterns = {"x": job.job_name, "a": _PBS_INDEX}
    rows = (
        ("-l place=", "exclusive" if job.exclusive else "nodes", f"scatter{':excl' if job.exclusive else ''}"),
        ("-l walltime=", "time", job.time and as_hms(job.time)),
        ("-q ", "reservation" if job.reservation else "partition", _pbs_queue(job)),
        ("-J ", "array", job.array and _pbs_array(job.array)),
    )
    nodes = Directive(f"-l select={chunks}", "nodes", _PBS_OF_CHUNKS)
    return _qsub(job, nodes, rows, patterns, _pbs_dependency(f"{_PBS_ON_JOBS}|runone", "on"))


def _pbs_dependency(on_jobs: str, on_counts: str) -> re.Pattern[str]:
    """Return the pattern of a list of dependencies, with the names of those on jobs and of those on counts."""
    return list_of(rf"(?:{on_jobs})(?::{_PBS_JOB})+|(?:{on_counts}):0*[1-9][0-9]*")


def _qsub(
    job: Job, nodes: Directive, rows: Iterable[Row], patterns: Mapping[str, str], dependencies: re.Pattern[str]
) -> tuple[Directive, ...]:
    """Return the directives, with what PBS and Torque have in common around `nodes` and `rows`, which they do not.

    `patterns` are for those of Slurm in a path. Raises UsageError.
    """
    if job.requeue and job.array:
        can = "without --array: the script is submitted again, and that is all of the array"
        raise refused("requeue", "true", can, "leaving out --requeue or --array")
    can = "addresses in ASCII without quotes"
    mail_user = matching("mail-user", job.mail_user, _PBS_MAIL_USERS, can, "me@example.org")
    again = "requeue" if job.requeue else "array" if job.array else ""  # PBS takes no array that it may not rerun
    depend = matching("dependency", job.dependency, dependencies, "afterok:123.server", "afterok:123.server")
    return (
        Directive(f"-N {name_of(job, _PBS_NAME, 'a letter, then letters, digits and _.+-')}", "job-name"),
        Directive("-S /bin/bash", "default"),
        nodes,
        *rows_of(
            _pbs_quoted,
            *rows,
            ("-A ", "account", job.account),
            ("-o ", "output", job.output and _pbs_path("output", job.output, patterns)),
            ("-e ", "error", job.error and _pbs_path("error", job.error, patterns)),
            ("-j oe", "default", not job.error),
            ("-M ", "mail-user", mail_user),
            ("-m ", "mail-type", mail_letters(job, _PBS_MAIL)),
            ("-W depend=", "dependency", depend),
            ("-r ", again or "default", "y" if again else "n"),
        ),
    )


def _pbs_quoted(field: str, value: str) -> str:
    """Quote as qsub reads it: nothing is special in either kind of quotes, and one may follow the other.

    Raises UsageError.
    """
    if not value.isprintable() or value == "--" or "\\," in value:  # PBS itself takes the backslash from a comma
        raise refused(field, value, "one printable line, other than --, without a backslash before a comma")
    if _PBS_PLAIN.fullmatch(value):
        return value
    return '"' + value.replace('"', '"\'"\'"') + '"'


def _pbs_queue(job: Job) -> str:
    if job.partition and job.reservation:
        can = "the only queue, because --partition names one too"
        raise refused("reservation", job.reservation, can, "leaving --partition out")
    can = "the name of a queue, as a reservation has one too"
    return matching("partition", job.partition, _PBS_QUEUE, can) or matching(
        "reservation", job.reservation, _PBS_QUEUE, can
    )


def _pbs_path(field: str, path: str, patterns: Mapping[str, str]) -> str:
    can, works = "a path in ASCII, with a colon after HOST or a / only", re.sub("[^!-9;-~]", "_", path)
    found = _translated(field, matching(field, path, _PBS_PATH, can, works), patterns)
    if len(found) > _PBS_LONGEST_PATH:
        raise refused(field, path, f"a path of at most {_PBS_LONGEST_PATH} characters")
    if found.count(_PBS_INDEX) > 1:
        works = f"--{field} {path.partition('%a')[0]}%a"
        raise refused(field, path, "a path with one %a, because PBS inserts the index once", works)
    return found


def _pbs_array(array: str) -> str:
    if not _PBS_ARRAY.fullmatch(array):
        raise refused_array(array, "FIRST-LAST[:STEP][%MOST]", 0)
    first, last = map(int, re.findall("[0-9]+", array)[:2])
    if first >= last:
        raise refused_array(array, "FIRST-LAST with more than one job", 0)
    return array


def _pbs_chunk(group: Group) -> str:
    parts = [str(group.nodes), f"ncpus={(group.cpus or 1) * group.ntasks}", f"mpiprocs={group.ntasks}"]
    if group.gpus:
        parts += [f"ngpus={group.gpus.number}"] + ([f"gpu_type={group.gpus.type}"] if group.gpus.type else [])
    if group.mem:
        parts += [f"mem={as_size(group.mem, ('mb', 'gb'))}"]
    if group.constraint:
        parts += [matching("constraint", group.constraint, _PBS_RESOURCE, "RESOURCE=VALUE of a chunk", "arch=linux")]
    return ":".join(parts)


# Directives for Torque's qsub. Source: Torque Administrator Guide, "Requesting resources".
#
# Quoting is make_argv()'s in its src/cmds/qsub_functions.c, and paths are prepare_path()'s.

_TORQUE_LONGEST_NAME = 15  # qsub(1B), -N
_TORQUE_FEATURE = list_of("[A-Za-z][A-Za-z0-9_.-]*", ":")
_TORQUE_NAME = re.compile(r"[A-Za-z0-9_.@-]+", re.ASCII)
_TORQUE_QUEUE = re.compile(r"[A-Za-z0-9_.-]+(@[A-Za-z0-9.-]+)?|@[A-Za-z0-9.-]+", re.ASCII)
# Torque's own, beside those of PBS.
_TORQUE_ON_JOBS = f"{_PBS_ON_JOBS}|syncwith|(?:after|before)(?:start|ok|notok|any)array"
# What stands before a colon is a host, and qsub takes $HOME in front, but not ${HOME}, for the submitter's.
_TORQUE_PATH = re.compile(r"(?:[A-Za-z0-9.-]+:/|\$HOME/|(?!\$HOME|\$\{HOME\})[!-9;-~])[!-9;-~]*", re.ASCII)

_TORQUE_OF_NODES = ("ntasks-per-node", "cpus-per-task", "gpus-per-node", "constraint")


def _torque(job: Job) -> tuple[Directive, ...]:
    """Return the directives. Raises UsageError."""
    memory = job.groups[0].mem
    mixed = next((group.mem for group in job.groups if group.mem), None) if len(job.groups) > 1 else None
    if mixed:
        raise refused("mem", mixed, "one size for the whole job, so without groups of nodes", "leaving --mem out")
    for name, path in (("output", job.output), ("error", job.error)):
        works = re.sub("[^!-9;-~]", "_", re.sub(r"^\$\{?HOME\}?/*", "$HOME/", path or ""))
        matching(name, path, _TORQUE_PATH, "a path in ASCII without spaces, with a colon after HOST only", works)
    if len(job.job_name) > _TORQUE_LONGEST_NAME and job.job_name.isascii():
        works = f"--job-name {job.job_name[:_TORQUE_LONGEST_NAME]}"
        raise refused("job-name", job.job_name, f"at most {_TORQUE_LONGEST_NAME} characters", works)
    queue = matching("partition", job.partition, _TORQUE_QUEUE, "QUEUE, QUEUE@SERVER or @SERVER")
    can = "letters, digits and _.@-"  # neither a list of resources nor `queue@server` takes these apart
    rows = (
        ("-l mem=", "mem", memory and as_size(memory * job.nodes, ("mb", "gb"))),
        ("-l naccesspolicy=singlejob", "exclusive", job.exclusive),
        ("-l walltime=", "time", job.time and as_hms(job.time)),
        ("-l qos=", "qos", matching("qos", job.qos, _TORQUE_NAME, can)),
        ("-l advres=", "reservation", matching("reservation", job.reservation, _TORQUE_NAME, can)),
        ("-q ", "partition", queue),
        (f"-t {_torque_array(job.array or '')}", "array", bool(job.array)),
    )
    nodes = Directive("-l nodes=" + "+".join(_torque_nodes(group) for group in job.groups), "nodes", _TORQUE_OF_NODES)
    return _qsub(job, nodes, rows, {"x": job.job_name}, _pbs_dependency(_TORQUE_ON_JOBS, "on|synccount"))


def _torque_nodes(group: Group) -> str:
    parts = [str(group.nodes), f"ppn={(group.cpus or 1) * group.ntasks}"]
    if group.gpus:
        if group.gpus.type and not _TORQUE_FEATURE.fullmatch(group.gpus.type):
            can = "a type that is a property of nodes, which begins with a letter"
            works = f"--gpus-per-node {group.gpus.number}, and the property by --constraint"
            raise refused("gpus-per-node", group.gpus, can, works)
        parts += [f"gpus={group.gpus.number}"] + ([group.gpus.type] if group.gpus.type else [])
    if group.constraint:
        parts += [matching("constraint", group.constraint, _TORQUE_FEATURE, "a property of nodes", "infiniband")]
    return ":".join(parts)


def _torque_array(array: str) -> str:
    if ":" in array:
        raise refused("array", array, "a list of ranges without a step", "each number, as in --array 1,3,5 for 1-5:2")
    return array_with_limit(array)


# Directives for LSF's bsub. Source: IBM Spectrum LSF command reference, bsub.
#
# How it reads quotes is taken from parseLine() in lsbatch/cmd/cmd.sub.c of OpenLava, which is derived from LSF. Values
# that the two may read differently are refused.

_LSF_NAME = re.compile(r"[A-Za-z0-9_.-]{1,4094}", re.ASCII)  # a name may not hold what an array or a path is made of
_LSF_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./~%-]+", re.ASCII)
# bsub splits at spaces before it looks at quotes, and joins with one space each.
_LSF_QUOTED = re.compile(r"[^ \"'`$#\\]+(?: [^ \"'`$#\\]+)*")
_LSF_ARRAY = list_of("0*[1-9][0-9]*(?:-[0-9]+(?::[0-9]+)?)?")
_LSF_LONGEST_ARRAY = 255  # "Job Arrays": of the name and its indices together
_LSF_QUEUE = re.compile(r"(?!default$)[A-Za-z0-9_-]{1,59}", re.ASCII)  # lsb.queues, QUEUE_NAME
_LSF_WORD = re.compile(r"[^\s,]+")
_LSF_PROJECT = re.compile(r".{1,511}")
_LSF_MAIL_USER = re.compile(r"[^\s@]+(?:@[A-Za-z0-9.-]+)?", re.ASCII)
_LSF_LONGEST_ADDRESSES = 511
_LSF_LONGEST_PATH = 4094
# "Select string": names and numbers, compared and joined; whether parentheses come out even is checked by itself.
_LSF_OPERAND = r"[!( ]*(?:defined\([A-Za-z_]\w*\)|[A-Za-z_][\w.]*|[0-9]+(?:\.[0-9]+)?[KMGTkmgt]?[Bb]?)[) ]*"
_LSF_SELECTION = re.compile(rf"{_LSF_OPERAND}(?:(?:&&|\|\||[=!]=|[<>]=?|[-+*/]){_LSF_OPERAND})*", re.ASCII)
_LSF_SLURMS = list_of("after(?:|ok|any|notok)(?::[0-9]+)+")
# bsub -w. A job's name that begins with a digit would need quotes, which a directive cannot carry.
_LSF_JOB = r"(?:[0-9]+|[A-Za-z_.][A-Za-z0-9_.-]*\*?)(?:\[[0-9,:-]+\])?"
_LSF_NUMBER = ", ?(?:(?:[<>]=?|[=!]=) ?)?[0-9]+"
_LSF_CONDITION = (
    rf"(?:(?:done|ended|started|post_done|post_err)\({_LSF_JOB}\)|exit\({_LSF_JOB}(?:{_LSF_NUMBER})?\)"
    rf"|num(?:done|ended|exit|hold|pend|run|start)\({_LSF_JOB}(?:{_LSF_NUMBER}|, ?\*)\))"
)
_LSF_DEPENDENCY = list_of(_LSF_CONDITION, r" ?(?:&&|\|\|) ?")
_LSF_CONDITIONS = {"afterok": "done", "afterany": "ended", "afternotok": "exit", "after": "started"}
_LSF_NEEDS = ("cpus-per-task", "mem", "constraint")  # said by -R, beside ntasks-per-node
_LSF_MAIL = {"BEGIN": "B", "END": "N", "FAIL": "N", "ALL": "BN", "NONE": ""}


def _lsf(job: Job) -> tuple[Directive, ...]:
    """Return the directives: slots are processes, and `span[ptile=…]` puts them on nodes. Raises UsageError."""
    group = only_group(job)
    name = name_of(job, _LSF_NAME, "letters, digits and _.-")
    needs = [f"span[ptile={group.ntasks}]"] + ([f"affinity[core({group.cpus})]"] if group.cpus else [])
    if group.mem:
        needs += [f"rusage[mem={as_size(group.mem, ('MB', 'GB'))}/host]"]
    if group.constraint:
        needs.insert(0, f"select[{_lsf_selection(group.constraint)}]")
    gpu = group.gpus and f"num={group.gpus.number}/host" + (f":gmodel={group.gpus.type}" if group.gpus.type else "")
    minutes, before = -(-(job.time or 0) // 60), -(-job.signal.before_s // 60)  # LSF's unit, rounded up
    project = matching("account", job.account, _LSF_PROJECT, "at most 511 characters")
    return (
        *rows_of(
            _lsf_quoted,
            ("-J ", "array" if job.array else "job-name", name + _lsf_array(job)),
            ("-n ", "nodes", group.nodes * group.ntasks),
        ),
        Directive(f'-R "{" ".join(needs)}"', "ntasks-per-node", _LSF_NEEDS),
        *rows_of(
            _lsf_quoted,
            (f'-gpu "{gpu}"', "gpus-per-node", bool(gpu)),
            ("-W ", "time", job.time and f"{minutes // 60}:{minutes % 60:02}"),
            ("-q ", "partition", job.partition and _lsf_queues(job.partition)),
            ("-P ", "account", project),
            ("-sla ", "qos", matching("qos", job.qos, _LSF_WORD, "one word")),
            ("-U ", "reservation", matching("reservation", job.reservation, _LSF_WORD, "one word")),
            ("-o ", "output", job.output and _lsf_path("output", job.output, job.job_name)),
            ("-e ", "error", job.error and _lsf_path("error", job.error, job.job_name)),
            ("-u ", "mail-user", job.mail_user and _lsf_addresses(job.mail_user)),
            ("-w ", "dependency", job.dependency and _lsf_dependency(job.dependency)),
            ("-x", "exclusive", job.exclusive),
            ("-r", "requeue", job.requeue),
            *((f"-{letter}", "mail-type", True) for letter in sorted(mail_letters(job, _LSF_MAIL))),
            # Whole minutes could put the warning at the start; the script has a timer too.
            (f"-wa {job.signal.name} -wt {before}", "signal", before < minutes),
        ),
    )


def _lsf_array(job: Job) -> str:
    ranges, _, most = array_with_limit(job.array or "").partition("%")
    if ranges and not _LSF_ARRAY.fullmatch(ranges):
        more = re.sub("(?<![:0-9])[0-9]+", lambda number: str(int(number[0]) + 1), ranges)
        works = f"--array {more}{'%' * bool(most)}{most}, which is one more for each"
        raise refused("array", job.array, "numbers from 1, as LSF counts", works)
    indices = f"[{ranges}]{'%' * bool(most)}{most}" if ranges else ""
    if indices and len(job.job_name + indices) > _LSF_LONGEST_ARRAY:
        can = f"at most {_LSF_LONGEST_ARRAY} characters together with the indices of the array"
        raise refused("job-name", job.job_name, can, "a shorter one, or fewer ranges")
    return indices


def _lsf_dependency(value: str) -> str:
    if _LSF_DEPENDENCY.fullmatch(value):
        return value
    if not _LSF_SLURMS.fullmatch(value):
        can = "afterok:123 or one of LSF's conditions, such as done(123)"
        raise refused("dependency", value, can, "--dependency afterok:123")
    parts = [part.split(":") for part in value.split(",")]
    return " && ".join(f"{_LSF_CONDITIONS[kind]}({job})" for kind, *jobs in parts for job in jobs)


def _lsf_path(field: str, value: str, job_name: str) -> str:
    """Return a path with LSF's own %J, the job's number, and %I, the array's index."""
    if re.search("%%[%JI]", value):
        can = "a path without %% before J, I and %, because bsub cannot represent them"
        raise refused(field, value, can, f"--{field} {value.replace('%%', '')}")
    if len(value) > _LSF_LONGEST_PATH:
        raise refused(field, value, f"a path of at most {_LSF_LONGEST_PATH} characters")
    return _translated(field, value, {"j": "%J", "A": "%J", "J": "%J", "a": "%I", "x": job_name})


def _lsf_queues(value: str) -> str:
    """Return the queues, separated by spaces; one of them runs the job."""
    can, queues = "queues of letters, digits, _ and -", re.split("[ ,]", value)
    return " ".join(matching("partition", queue, _LSF_QUEUE, can) for queue in queues)


def _lsf_addresses(value: str) -> str:
    for address in value.split(","):
        matching("mail-user", address, _LSF_MAIL_USER, "addresses", "me@example.org")
    if len(value) > _LSF_LONGEST_ADDRESSES:
        raise refused("mail-user", value, f"at most {_LSF_LONGEST_ADDRESSES} characters", "fewer addresses")
    return value.replace(",", " ")


def _lsf_selection(value: str) -> str:
    """Return an expression for `select`: Slurm's single & and | are LSF's double ones."""
    if not _is_selection(value):
        works = re.sub(r"(?<!&)&(?!&)", "&&", re.sub(r"(?<!\|)\|(?!\|)", "||", value))
        remedy = f"--constraint {works!r}" if _is_selection(works) else ""
        raise refused("constraint", value, "an expression of LSF, such as 'ib && maxmem>64000'", remedy)
    return value


def _is_selection(text: str) -> bool:
    depths = [*accumulate((char == "(") - (char == ")") for char in text)]
    return _LSF_SELECTION.fullmatch(text) is not None and min(depths) == depths[-1] == 0


def _lsf_quoted(field: str, value: str) -> str:
    if _LSF_PLAIN.fullmatch(value):
        return value
    if not value.isprintable() or not _LSF_QUOTED.fullmatch(value):
        raise refused(field, value, "one printable line without quotes, \\, $, # and double spaces")
    return f'"{value}"'


# Directives for Grid Engine's qsub. Source: qsub(1), submit(1); parse_script_file() and string_list() for the quoting.
#
# A parallel environment decides how slots are put on nodes, and its name is the site's: `--directive "-pe NAME N"`
# replaces the one here.

_SGE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]{0,229}", re.ASCII)
_SGE_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SGE_ARRAY = re.compile(r"[1-9][0-9]*(?:-[0-9]+(?::[0-9]+)?)?", re.ASCII)
_SGE_RESOURCE = list_of("[A-Za-z][A-Za-z0-9_]{0,511}(?:=[A-Za-z0-9_.*|-]+)?")
# sge_types(5): the name of a project, and the expressions of names that choose queues.
_SGE_OBJECT = re.compile(r"""(?:(?![/:'\\[\]{}|()@%,"])[!-~]){1,512}""")
_SGE_QUEUES = list_of(r"""(?:(?![/:'\\{}%",])[!-~])+""")
_SGE_MAIL_USERS = list_of(r"[^\s@,]+(?:@[A-Za-z0-9.-]+)?")
# Grid Engine holds a job until the others have ended, however they did.
_SGE_DEPENDENCY = re.compile(f"{list_of('afterany(?::[0-9]+)+').pattern}|{list_of('[0-9]+').pattern}")
# Within a path, `$` begins one of these, `:` ends a host and `,` the whole path.
_SGE_PATH = re.compile(r"(?:[^$:,]|\$(?:USER|HOME|JOB_ID|JOB_NAME|HOSTNAME|TASK_ID)(?![A-Za-z0-9_]))+")
# For expand_path() they need no end: $JOB_NAME_$JOB_ID is train_7.
_SGE_PATTERNS = {"j": "$JOB_ID", "A": "$JOB_ID", "a": "$TASK_ID", "x": "$JOB_NAME", "u": "$USER", "N": "$HOSTNAME"}


def _sge(job: Job) -> tuple[Directive, ...]:
    """Return the directives. The queue requeues a job on the script's exit status 99. Raises UsageError."""
    group = only_group(job)
    without_qos(job, "Grid Engine")
    if group.gpus and group.gpus.type:
        can, works = "a number, with the type as a --constraint of the site's", f"--gpus-per-node {group.gpus.number}"
        raise refused("gpus-per-node", group.gpus, can, works)
    name = name_of(job, _SGE_NAME, "a letter, then letters, digits and _.+-")
    slots = group.ntasks * (group.cpus or 1)
    of_slots = ("ntasks-per-node", "cpus-per-task")
    has_pe = any(text.startswith("-pe ") for text in job.directive)  # the user's own, with a number of slots
    constraint = matching("constraint", group.constraint, _SGE_RESOURCE, "NAME=VALUE", "arch=lx-amd64")
    ranges, _, most = array_with_limit(job.array or "").partition("%")
    if job.array and not _SGE_ARRAY.fullmatch(ranges):
        raise refused_array(job.array, "FIRST-LAST[:STEP] from 1", 1)
    reservation = matching("reservation", job.reservation, _SGE_NUMBER, "the number of one", "12")
    can = "names of queues, such as all.q@@gpus,long.q"
    mail_user = matching("mail-user", job.mail_user, _SGE_MAIL_USERS, "addresses", "me@example.org")
    return (
        Directive(f"-N {name}", "job-name"),
        Directive("-S /bin/bash", "default", of_slots if has_pe else ()),
        *([] if has_pe else [Directive(f"-pe mpi {group.nodes * slots}", "nodes", of_slots)]),
        *rows_of(
            _sge_quoted,
            ("-l ", "gpus-per-node", group.gpus and f"gpu={group.gpus.number}"),
            # Grid Engine counts memory for each slot.
            ("-l ", "mem", group.mem and f"h_vmem={as_size(-(-group.mem // slots), ('M', 'G'))}"),
            ("-l ", "constraint", constraint),
            ("-l exclusive=true", "exclusive", job.exclusive),
            ("-l ", "time", job.time and f"h_rt={as_hms(job.time)}"),
            ("-q ", "partition", matching("partition", job.partition, _SGE_QUEUES, can)),
            ("-P ", "account", matching("account", job.account, _SGE_OBJECT, "the name of a project")),
            ("-ar ", "reservation", reservation),
            ("-t ", "array", ranges),
            ("-tc ", "array", most),
            ("-hold_jid ", "dependency", job.dependency and _sge_dependency(job.dependency)),
            ("-o ", "output", job.output and _sge_path("output", job.output)),
            ("-e ", "error", job.error and _sge_path("error", job.error)),
            ("-j y", "default", not job.error),
            ("-M ", "mail-user", mail_user),
            ("-m ", "mail-type", mail_letters(job, _PBS_MAIL)),
            ("-r ", "requeue" if job.requeue else "default", "y" if job.requeue else "n"),
            ("-cwd", "default", True),
        ),
    )


def _sge_quoted(field: str, value: str) -> str:
    """Quote as qsub reads it: it drops every quote, and ends the line at a #."""
    if not value.isprintable() or any(char in value for char in "\"'#"):
        raise refused(field, value, "one printable line without quotes and #, which a #$ directive cannot carry")
    return f'"{value}"' if " " in value else value


def _sge_dependency(value: str) -> str:
    works = "afterany:" + (":".join(re.findall("[0-9]+", value)) or "123")
    given = matching("dependency", value, _SGE_DEPENDENCY, "afterany:123, which is all that Grid Engine has", works)
    return ",".join(re.findall("[0-9]+", given))


def _sge_path(field: str, value: str) -> str:
    works = re.sub("[$:,]", "_", value)
    given = matching(field, value, _SGE_PATH, "a path without : , and $, but for $JOB_ID and the like", works)
    return _translated(field, given, _SGE_PATTERNS)


_AGAIN = '"scontrol requeue $SLURM_JOB_ID"'
# Only operators may rerun a job of PBS, so this submits the script again.
_NEW = """"$(printf 'cd %q && qsub %q' "$PBS_O_WORKDIR" "$0")\""""

TABLE = (
    Scheduler("slurm", "sbatch", "#SBATCH", "Slurm", _slurm, runs_tasks=True, again=_AGAIN, also=("sbatch",)),
    Scheduler("pbs", "qsub", "#PBS", "OpenPBS and PBS Professional", _pbs, again=_NEW, submitted_in="PBS_O_WORKDIR"),
    Scheduler("torque", "qsub", "#PBS", "Torque", _torque, again=_NEW, submitted_in="PBS_O_WORKDIR"),
    Scheduler("lsf", "bsub", "#BSUB", "LSF", _lsf, again='"brequeue $LSB_JOBID"', submitted_in="LS_SUBCWD"),
    # Grid Engine requeues a job with this status.
    Scheduler("sge", "qsub", "#$", "Grid Engine", _sge, again='"exit 99"', submitted_in="SGE_O_WORKDIR"),
)
SCHEDULERS = {name: scheduler for scheduler in TABLE for name in (scheduler.name, *scheduler.also)}


def scheduler(name: str) -> Scheduler:
    """Return the scheduler of this name. Raises UsageError."""
    if name not in SCHEDULERS:
        raise UsageError(f"a scheduler: {', '.join(SCHEDULERS)}", name, nearest(name, SCHEDULERS))
    return SCHEDULERS[name]


# The fields of a job, and of each group of its nodes, that a directive has to carry.
_OF_JOB = (
    *("time", "partition", "account", "qos", "reservation", "exclusive", "output", "error", "mail_user", "array"),
    *("dependency", "requeue"),
)
_OF_NODE = {"gpus": "gpus-per-node", "cpus": "cpus-per-task", "mem": "mem", "constraint": "constraint"}


def directives(scheduler: Scheduler, job: Job) -> tuple[Directive, ...]:
    """Return the job's directives in order. Raises UsageError, which names a field that they cannot carry."""
    if scheduler.directives is not _slurm and any(group.mem == 0 for group in job.groups):
        raise refused("mem", 0, "a size, as only Slurm has 0 for all memory of a node", "--mem 64G, or leaving it out")
    found = scheduler.directives(job)
    carried = {field for directive in found for field in (directive.field, *directive.also)}
    for field, value in _requested(job):
        if field not in carried:
            can = f"nothing, because scripts for {scheduler.help} have no directive for it"
            raise refused(field, value, can, f"leaving it out, or a --directive of {scheduler.help}'s own")
    for text in job.directive:
        if not text.isprintable() or text.rstrip().endswith("\\"):  # qsub looks for it before trailing spaces
            can = "one printable line that does not end with a backslash"
            raise refused("directive", text, can, "another --directive for each line")
        if text.lstrip().startswith("#"):  # to sbatch the rest of the line is a comment
            can = f"text without the {text.split()[0]}, which the script adds"
            raise refused("directive", text, can, "--directive " + (" ".join(text.split()[1:]) or "TEXT"))
    return (*found, *(Directive(text, "directive") for text in job.directive))


def _requested(job: Job) -> Iterator[tuple[str, object]]:
    """Yield each field that has to be carried, with its value."""
    for attribute in _OF_JOB:
        if value := getattr(job, attribute):
            yield attribute.replace("_", "-"), value
    for group in job.groups:
        for attribute, field in _OF_NODE.items():
            if value := getattr(group, attribute):
                yield field, value
        if group.ntasks > 1 and job.launcher.starts != "node":  # else it is an option of `mingle run`
            yield "ntasks-per-node", group.ntasks
