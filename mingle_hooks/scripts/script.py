"""The script of a job: its command, and the rendered template."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import jinja2

from mingle_hooks import __version__, files, settings
from mingle_hooks.errors import MingleError, PlaceError, UsageError
from mingle_hooks.export import launchers
from mingle_hooks.export.frameworks import FRAMEWORKS
from mingle_hooks.export.variables import quote
from mingle_hooks.files import config_directory, template_environment, template_loader
from mingle_hooks.scripts import job as jobs
from mingle_hooks.scripts.directives import Scheduler, directives, refused, scheduler
from mingle_hooks.scripts.job import DEFAULT, FIELDS, LAUNCHERS, NOT_CARRIED, Group, Job, Launcher
from mingle_hooks.values import nearest

# Values as text of bash: an argument or a comment. Each scheduler has its own quoting for its directives.
#
# The text is always one line without control characters, so that it cannot end a comment, a directive or a function.
# bash's `$'…'` carries what has to be escaped.

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}


def quote_word(value: object) -> str:
    """Return `value` as one word of bash, wherever it stands. Raises UsageError for NUL, SOH and DEL."""
    text = str(value)
    if _PLAIN.fullmatch(text) and "=" not in text:  # a=b would be an assignment in front of a command
        return text
    if NOT_CARRIED.intersection(text):
        raise UsageError("text that a shell can carry", repr(text), "leaving out the control characters")
    if text.isprintable():
        return quote(text)
    return "$'" + "".join(_escaped(char) for char in text) + "'"


def _escaped(char: str) -> str:
    if char in _ESCAPES or char.isprintable():
        return _ESCAPES.get(char, char)
    # surrogateescape: what was not UTF-8 on the command line goes back to the byte that it was
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def quote_argv(values: Iterable[object]) -> str:
    """Return a command line, in which --lr=3 has no quotes. Raises UsageError."""
    first, *rest = values
    return " ".join([quote_word(first), *map(quote_argument, rest)])


def quote_argument(value: object) -> str:
    """Return `value` as one word of bash that is not the first of a command. Raises UsageError."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else quote_word(text)


def launcher(name: str) -> Launcher:
    """Return the launcher of this name. Raises UsageError, with the nearest name, for an unknown one."""
    if name in LAUNCHERS:
        return LAUNCHERS[name]
    remedy = "process" if name in FRAMEWORKS else nearest(name, LAUNCHERS)  # one process for each task
    raise UsageError(f"a launcher: {', '.join(LAUNCHERS)}", name, f"--launcher {remedy}")


def program(command: tuple[str, ...], launcher: Launcher) -> tuple[str, ...]:
    """Return the arguments behind the launcher: `train.py …`, `-m pkg …` or any other program.

    Launchers of Python take a script or a module as it is; for the others Python is inserted.
    """
    first = command[0]
    takes_python = bool(launcher.no_python)
    if first == "-m":
        return ((launcher.module,) if takes_python else ("python3", "-m")) + command[1:]
    if first.endswith(".py") and not first.startswith("-"):
        return command if takes_python else ("python3", *command)
    return (*launcher.no_python, *command) if takes_python else command


Argv = tuple[str, ...]

_C10D = {"c10d", "--rdzv-backend=c10d", "--rdzv_backend=c10d"}


class Command(NamedTuple):
    """What a script starts; `starter` is the user's own command line of the launcher, () for the script's."""

    launcher: Launcher
    starter: Argv
    program: Argv
    frameworks: Argv = ()  # whose variables the command reads, beside its launcher's


def read_command(typed: Argv, given: str | None, default: str) -> Command:
    """Return the command that was typed; `given` is --launcher, `default` applies without it.

    Raises UsageError, with a line that works, for a launcher that would train alone on each node.
    """
    argv, has_srun = _without_prefixes(typed)
    if not argv[0] or (argv[0].startswith("-") and argv[0] != "-m") or argv == ("-m",):
        raise UsageError("a script, a program or -m MODULE", repr(argv[0]), "-- train.py")
    line = ("python3", *argv) if argv[0] == "-m" else argv
    found, end = launchers.find(line)
    chosen = launcher(given) if given else None
    if chosen and has_srun and chosen.starts == "job":
        raise UsageError("one launcher", f"--launcher {given} and srun", f"leaving --launcher out, or {_line(argv)}")
    if found:
        return _typed_launcher(line[:end], line[end:], found, chosen)
    inside = launchers.wrapped(argv)[0]
    if inside and chosen is None:
        works = f"--launcher plain {_line(argv)}, which starts the line once on every node as it is"
        if inside.options:  # which mingle adds only to a launcher that it recognises
            works = f"-- {inside.programs[0]} …, with --setup for what comes before it"
        raise UsageError("a launcher in front", f"{inside.name} within {quote_argv(argv)}", works)
    program = os.path.basename(argv[launchers.prefix_length(argv)])
    is_shell = program in launchers.SHELLS or program.endswith((".sh", ".bash"))
    if is_shell and chosen is None and not has_srun and launcher(default).no_python:
        works = f"--launcher plain for once on every node, or --launcher {default} for once per GPU"
        raise UsageError("a --launcher for a shell script", quote_argv(argv), works)
    frameworks = _frameworks(inside) if inside and chosen and chosen.name == "plain" else ()
    return Command(chosen or launcher("process" if has_srun else default), (), argv, frameworks)


def check_nodes(command: Command, nodes: int) -> None:
    """Raise UsageError if the launcher's own options would leave the world of a job with this many nodes."""
    for argument, next_argument in _option_pairs(command.program) if command.starter and nodes > 1 else ():
        name, equals, value = argument.partition("=")
        value = value if equals else next_argument
        if launchers.leaves_world(name, value, nodes, rank=None):
            seen = f"{argument if equals or name == '--standalone' else f'{name} {value}'}, as on a single node"
            raise UsageError(f"a launcher for {nodes} nodes", seen, f"it without {name}, which the script sets")


def _without_prefixes(typed: Argv) -> tuple[Argv, bool]:
    """Return the arguments behind `srun` and `mingle exec`, and whether there was an srun."""
    argv, has_srun = typed, False
    while argv:
        names = [os.path.basename(argument) for argument in argv[:2]]
        length = 1 if names[0] == "srun" else 2 if names == ["mingle", "exec"] else 0
        if not length:
            return argv, has_srun
        has_srun = has_srun or length == 1
        rest = argv[length:]
        argv = rest[1:] if rest[:1] == ("--",) else rest
        if argv is rest and rest and rest[0].startswith("-"):
            raise _options_refused(" ".join(names[:length]), rest)
    raise UsageError("a training command", quote_argv(typed), f"{quote_argv([*typed, 'train.py'])}")


def _options_refused(prefix: str, argv: Argv) -> UsageError:
    """Return the error for options of srun or `mingle exec`, which the script itself starts."""
    # Those in front that are also fields of a job, with their values, are options of `mingle template` too.
    known = {name: field for field in FIELDS.values() for name in (field.option, field.short) if name}
    end = 0
    while end < len(argv):
        name, equals, _ = argv[end].partition("=")
        field = known.get(name) or known.get(name[:2])
        if field is None:
            break
        has_value_behind = not equals and field.kind != "flag" and name in known
        end += 2 if has_value_behind else 1
    works = "only the command after --, and options of `mingle template` for what they request"
    if prefix == "srun" and end < len(argv) and not argv[end].startswith("-"):
        works = f"{quote_argv(argv[:end])} {_line(('srun', *argv[end:]))}"
    return UsageError(f"{prefix} without options of its own", quote_argv((prefix, *argv)), works)


def _typed_launcher(starter: Argv, rest: Argv, found: launchers.Launcher, chosen: Launcher | None) -> Command:
    """Return the command of a launcher that was typed, by its own words and what follows them. Raises UsageError."""
    argv = (*starter, *rest)
    if not rest:
        raise UsageError("a training command", quote_argv(argv), f"-- {quote_argv([*argv, 'train.py'])}")
    own = found.in_scripts or ((found.name,) if found.name in LAUNCHERS else ())
    is_plain = chosen.name == "plain" if chosen else not (own or found.instead)
    if is_plain and found.starts == "node":
        return Command(LAUNCHERS["plain"], (), argv, _frameworks(found))
    if found.instead:
        works = f"--launcher {found.instead} {_line(_program_within(rest) or ('train.py',))}"
        raise UsageError("the training command", quote_argv(argv), works)
    fitting = own or ("plain",)
    if chosen and chosen.name not in fitting:
        works = f"leaving --launcher out, or {_line(_program_within(rest) or rest)}"
        raise UsageError(f"a --launcher that starts {found.name}", f"--launcher {chosen.name}", works)
    if found.starts == "job":
        return _under_mpirun(rest, LAUNCHERS[fitting[0]])
    elastic = len(fitting) > 1 and any(argument in _C10D for pair in _option_pairs(rest) for argument in pair)
    return Command(chosen or LAUNCHERS[fitting[elastic]], starter, rest)


def _under_mpirun(rest: Argv, by: Launcher) -> Command:
    """Return the command that mpirun starts. Raises UsageError for options of mpirun, which the script sets."""
    if rest[0].startswith("-"):
        number, program = rest[1:2], rest[2:]
        works = f"--launcher {by.name} and the program behind --, with --ntasks for the number of processes"
        if rest[0] in ("-n", "-np", "--n", "--np") and program and not program[0].startswith("-"):
            works = f"-n {quote_argv(number)} --launcher {by.name} {_line(program)}"
        raise UsageError(f"{by.name} without options of its own", quote_argv((by.name, *rest)), works)
    nested = launchers.recognise(rest) or launchers.wrapped(rest)[0]
    if nested:
        raise UsageError("one launcher", f"{by.name} and {nested.name}", _line(rest))
    return Command(by, (), rest)


def _option_pairs(rest: Argv) -> Iterator[tuple[str, str]]:
    """Yield each argument before the program, with the one behind it."""
    for argument, following in zip(rest, (*rest[1:], ""), strict=True):
        if argument.endswith(".py") or argument in ("-m", "--module"):
            return
        yield argument, following


def _program_within(rest: Argv) -> Argv:
    """Return the program behind a launcher's options, from the script or the -m on; () if that is uncertain."""
    if not rest[0].startswith("-"):
        return rest
    return next((rest[at:] for at, argument in enumerate(rest) if argument.endswith(".py") or argument == "-m"), ())


def _frameworks(found: launchers.Launcher) -> Argv:
    """Return what `--for` names for a launcher that each node starts."""
    return (found.name,) if found.name in FRAMEWORKS else found.frameworks


def _line(argv: Argv) -> str:
    return f"-- {quote_argv(argv)}"


def describe(
    options: Mapping[str, object],
    command: Iterable[str] = (),
    *,
    spec: str | Mapping[str, object] | None = None,
    default_launcher: str = "torchrun",
) -> Job:
    """Return the job of these options, by field name, and of `spec`: the path of a TOML file, or its contents.

    Options take precedence; None, False or an empty one was not given. The file may hold the command too, as a list.
    Raises UsageError, which names the field.
    """
    values, sources = jobs.read_fields(options, spec)
    spec_command = values.pop("command", ())
    typed = _checked(tuple(command) or tuple(spec_command))
    groups = jobs.read_groups(values)
    parsed = read_command(typed, values.pop("launcher", None), default_launcher)
    if parsed.starter and parsed.launcher.starts == "node":
        groups = tuple(_started_once(group) for group in groups)
    check_nodes(parsed, sum(group.nodes for group in groups))
    frameworks = tuple(name for names in values.pop("for", ()) for name in names.split(","))
    return Job(
        command=parsed.program,
        launcher=parsed.launcher,
        starter=parsed.starter,
        groups=groups,
        job_name=values.pop("job-name", None) or _name(parsed),
        signal=jobs.limit_warning(values.pop("signal", None), values.get("time")),
        frameworks=(*parsed.frameworks, *frameworks),
        sources=sources,
        **{FIELDS[name].attribute: value for name, value in values.items()},
    )


def _started_once(group: Group) -> Group:
    """Return the group with a process for each GPU, if the user counts the typed launcher as one task."""
    if group.ntasks != 1 or not group.gpus or group.gpus.number == 1:
        return group
    share, rest = divmod(group.cpus or 0, group.gpus.number)
    if rest:
        works = f"--cpus-per-task {(share + 1) * group.gpus.number}"
        raise UsageError(f"--cpus-per-task that {group.gpus.number} GPUs share evenly", str(group.cpus), works)
    return dataclasses.replace(group, ntasks=group.gpus.number, cpus=share or None)


def _checked(argv: tuple[object, ...]) -> tuple[str, ...]:
    texts = tuple(argument for argument in argv if isinstance(argument, str) and not NOT_CARRIED.intersection(argument))
    if not texts or len(texts) != len(argv):
        raise UsageError("a training command", repr(argv) if argv else "none", "-- train.py --lr 1e-3 at the end")
    return texts


def _name(command: Command) -> str:
    """Return a job name that every scheduler takes: letters, digits, - and _, at most 15 of them (classic PBS)."""
    argv = command.program
    scripts = (argument for argument in argv if argument.endswith(".py"))
    modules = (argv[at + 1] for at in range(len(argv) - 1) if argv[at] == "-m")
    programs = (argument for argument in (argv[0], *command.starter[-1:]) if not argument.startswith("-"))
    first = next((name for names in (scripts, modules, programs) for name in names), "job")
    base = first.rsplit("/", 1)[-1].removesuffix(".py")
    safe = re.sub("[^A-Za-z0-9_-]", "_", base)[:15]
    return safe if safe[:1].isalpha() else f"job{safe}"[:15]


# The search path of templates: the first directory that has the file.

SITE = "/etc/mingle/templates"
BUILT_IN = "templates/job"
SUFFIX = ".sh.j2"


def template_path(given: Iterable[str], environ: Mapping[str, str], *, site: str = SITE) -> tuple[str, ...]:
    """Return the search path before the built-in templates: the given directories, the user's, the site's.

    `given` is --template-dir, or else MINGLE_TEMPLATES and the settings. Raises UsageError if one of them does not
    exist: else the built-in template would be used silently.
    """
    for directory in given:
        if not os.path.isdir(directory):
            remedy = "mkdir, or correcting --template-dir or MINGLE_TEMPLATES"
            raise UsageError("a directory of templates", directory, remedy)
    user = config_directory(environ)
    rest = [f"{user}/templates" if user else "", site]
    return (*given, *(place for place in rest if place and os.path.isdir(place)))


def template_names(places: Iterable[str]) -> dict[str, str]:
    """Return template name -> its directory, sorted by name. Raises MingleError if the installation has none."""
    found: dict[str, str] = {}
    own = [(place, jinja2.FileSystemLoader(place).list_templates()) for place in places]
    for place, names in (*own, (str(files.shipped_path(BUILT_IN)), files.shipped_names(BUILT_IN))):
        for name in names:
            if name.endswith(SUFFIX):
                found.setdefault(name.removesuffix(SUFFIX), place)
    return dict(sorted(found.items()))


def template_text(name: str, places: Iterable[str]) -> str:
    """Return the text of a template. Raises UsageError for an unknown name."""
    places = tuple(places)
    found = template_names(places)
    if name not in found:
        raise UsageError("the name of a template", repr(name), "one that `mingle template list` shows")
    if found[name] not in places:
        return files.shipped_text(f"{BUILT_IN}/{name}{SUFFIX}")
    path = f"{found[name]}/{name}{SUFFIX}"
    return jobs.read_file(path, "template", "another --template-dir").decode(errors="replace")


def eject_template(name: str, places: Iterable[str], directory: str) -> str:
    """Copy a template into a directory, and return its path. Raises UsageError, and PlaceError if it exists."""
    content = template_text(name, places)
    target = os.path.join(directory, name + SUFFIX)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise PlaceError("no file of that name", target, "another --to, or removing it") from None
    except OSError as wrong:
        raise PlaceError("a directory to write to", f"{target}: {wrong.strerror}", "another --to") from None
    return target


# Every launcher gets the variables of these too; a framework whose interface is not known sets nothing.
NETWORKS = ("nccl", "gloo")


def render_script(
    name: str,
    job: Job,
    *,
    places: tuple[str, ...] = (),
    made_by: Iterable[str] = (),
    environment: Iterable[str] = (),
    mingle: Iterable[str] = ("mingle",),
    explain: bool = False,
) -> str:
    """Return the whole script for a scheduler, "slurm" or another of the table.

    `places` is the search path, `made_by` the command that the first line repeats, `environment` the shell lines that
    make the environment what it is here, `mingle` the arguments that start mingle there. The same arguments always
    give the same text. Raises UsageError for what the scheduler cannot carry, and for errors in a template.
    """
    row = scheduler(name)
    found = directives(row, job)
    command = [*made_by] or ["mingle", "template", row.name]
    try:
        # A site's or a user's own for one scheduler, or for all of them.
        template = _environment(places).select_template([row.name + SUFFIX, "script" + SUFFIX])
        return template.render(
            job=job,
            scheduler=row,
            directives=found,
            explain=explain,
            made_by=f"{quote_argv(command)} (mingle-hooks {__version__})",
            options=_options(row, job),
            program=(*_container(row, job)[1], *_program(row, job)),
            environment=tuple(environment),
            note=script_note(job),
            mingle=tuple(mingle),
        )
    except MingleError:
        raise
    except Exception as wrong:  # a template is a program of the site's or the user's
        raise _template_error(wrong) from wrong


def script_note(job: Job) -> str:
    """Return a note on the launcher in front of a typed `python train.py`, or nothing."""
    is_default = not job.starter and bool(job.launcher.no_python) and job.source("launcher") == DEFAULT
    if not is_default or not os.path.basename(job.command[0]).startswith("python"):
        return ""
    program = quote_word(job.command[0])  # as a comment it is one line, whatever it holds
    return f"{job.launcher.name} starts {program}; with --launcher process each task is one {program}"


def _options(row: Scheduler, job: Job) -> list[str]:
    """Return the options of `mingle run`. Raises UsageError."""
    found: list[str] = []
    if job.launcher.starts == "task":
        found += ["--scope", "task"]
    if job.launcher.starts != "job":
        found += ["--for", ",".join(dict.fromkeys([*job.launcher.frameworks, *NETWORKS, *job.frameworks]))]
    if job.launcher.starts == "node":
        found += _slots(row, job)
    found += _container(row, job)[0]
    if job.signal.name != "USR1":
        found += ["--warn-signal", job.signal.name]
    if job.time:  # the template adds the limit, less what the lines before have taken
        found += ["--warn", str(job.signal.before_s)]
    return found


def _slots(row: Scheduler, job: Job) -> list[str]:
    """Return the option for how many processes a launcher starts on a node. Raises UsageError."""
    if job.ntasks is not None:
        return ["--slots", str(job.ntasks)]
    if all(group.gpus and group.gpus.number == group.ntasks for group in job.groups):
        return ["--slots", "gpus"]
    if row.runs_tasks:
        counts = "+".join(str(group.ntasks) for group in job.groups)
        can = "the number of GPUs, or with --launcher process, where groups differ"
        raise refused("ntasks-per-node", counts, can, "--launcher process")
    return []


def _program(row: Scheduler, job: Job) -> tuple[str, ...]:
    """Return the command that `mingle run` starts."""
    command = job.command if job.starter else program(job.command, job.launcher)
    if job.launcher.starts != "job":
        return (*job.launcher.argv(job.starter, job.max_restarts), *command)
    # mpirun reaches the other hosts itself, and passes on only the variables that it is given, except under srun.
    names = ("MINGLE_KEY", *(() if row.runs_tasks else ("PATH", "LD_LIBRARY_PATH", *(name for name, _ in job.env))))
    frameworks = ",".join(dict.fromkeys([*NETWORKS, *job.frameworks]))
    exports = (argument for name in names for argument in ("-x", name))
    return ("mpirun", "--tag-output", *exports, "mingle", "exec", "--scope", "task", "--for", frameworks, *command)


def _container(row: Scheduler, job: Job) -> tuple[list[str], list[str]]:
    """Return the options of `mingle run` and the arguments in front of the command that run it in the container.

    Raises UsageError.
    """
    image = job.container
    if not image:
        return [], []
    # A squashfs file or REGISTRY#IMAGE, which enroot runs, and not Apptainer.
    is_pyxis = image.endswith(".sqsh") or ("#" in image.partition("/")[0] and not image.endswith(".sif"))
    if is_pyxis and not row.runs_tasks:
        works = f"docker://{image.replace('#', '/', 1)}" if "#" in image else "image.sif"
        raise refused("container", image, "an image for Apptainer, as pyxis is Slurm's", f"--container {works}")
    for bind in job.bind:
        if "," in bind:
            can = "a path without a comma, at which Apptainer and pyxis begin another"
            raise refused("bind", bind, can, " ".join(f"--bind {path}" for path in bind.split(",") if path))
    if is_pyxis:
        mounts = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in job.bind)  # pyxis wants both
        found = [f"--container-image={image}", *([f"--container-mounts={mounts}"] if mounts else [])]
        return [f"--start-option={option}" for option in found], []
    gpus = ["--nv"] if any(group.gpus for group in job.groups) else []
    binds = [f"--bind={bind}" for bind in job.bind]
    return [], ["apptainer", "exec", *gpus, *binds, f"./{image}" if image.startswith("-") else image]


@functools.lru_cache(maxsize=8)
def _environment(places: tuple[str, ...]) -> jinja2.Environment:
    own = template_loader("job")
    # Under "built-in/" too, so that a template can extend the one that it replaces.
    loader = jinja2.ChoiceLoader([jinja2.FileSystemLoader(places), own, jinja2.PrefixLoader({"built-in": own})])
    filters = {"sh": quote_word, "arg": quote_argument, "args": lambda values: " ".join(map(quote_argument, values))}
    return template_environment(loader, filters)


def _template_error(wrong: Exception) -> UsageError:
    """Return the error with the innermost template and line of the traceback."""
    place = (
        f"{wrong.filename}:{wrong.lineno}"
        if isinstance(wrong, jinja2.TemplateSyntaxError)
        else "one that cannot be read"
    )
    step = wrong.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        place = f"{file}:{step.tb_lineno}" if file.endswith(SUFFIX) else place
        step = step.tb_next
    return UsageError("a valid template", f"{place}: {getattr(wrong, 'message', wrong)}", "correcting that line")


# Shell lines that activate the present environment where the job runs.
#
# A scheduler that passes on no environment, such as PBS, would find neither mingle nor the user's Python. Modules
# cannot be recognised here: --module loads them, before these lines.

PORTABLE = ("mingle",)
_ON_EVERY_PATH = ("/usr/bin", "/bin")


def environment_lines(environ: Mapping[str, str], called: str) -> tuple[str, ...]:
    """Return the lines for this environment; `called` is mingle's own argv[0].

    A venv is activated last, as it may use a conda environment. Raises UsageError for a directory that PATH cannot
    hold.
    """
    conda = _conda(environ)
    venv = environ.get("VIRTUAL_ENV", "")
    is_venv = os.path.isfile(f"{venv}/bin/activate") and os.path.isabs(venv)
    place = _mingle(called)
    is_there = is_venv and os.path.realpath(place) == os.path.realpath(f"{venv}/bin")
    path = [] if is_there or place in ("", *_ON_EVERY_PATH) else [_on_path(place)]
    return (*path, *conda, *([f". {quote_word(f'{venv}/bin/activate')} || exit"] if is_venv else []))


def mingle_command() -> tuple[str, ...]:
    """Return the command of this mingle in the job: its name, or mingle.pyz with the Python that runs it."""
    archive = files.own_archive()
    is_named = archive is None or os.path.basename(archive) == "mingle"
    return PORTABLE if is_named else (sys.executable, str(archive))


def _mingle(called: str) -> str:
    """Return the directory of the program `mingle` that was called, or of this Python's; "" if there is none."""
    for path in (called, f"{os.path.dirname(sys.executable)}/mingle"):
        if os.path.basename(path) == "mingle" and os.path.isfile(path):
            return os.path.dirname(os.path.abspath(path))
    return ""


def _conda(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines that activate a conda environment: by conda, for its activate.d, or by PATH, as for pixi."""
    prefix, conda = environ.get("CONDA_PREFIX", ""), environ.get("CONDA_EXE", "")
    if not os.path.isabs(prefix) or not os.path.isdir(prefix):
        return ()
    if os.path.isabs(conda) and os.access(conda, os.X_OK):
        return (f'eval "$({quote_word(conda)} shell.bash hook)" && conda activate {quote_word(prefix)} || exit',)
    return (f"export CONDA_PREFIX={quote_word(prefix)}", _on_path(f"{prefix}/bin"))


def _on_path(directory: str) -> str:
    if ":" in directory:
        remedy = "--no-environment, and a --setup line that finds mingle"
        raise UsageError("a directory that PATH can hold", directory, remedy)
    return f'export PATH={quote_word(directory)}:"$PATH"'


# `mingle_hooks.render`: what `mingle template` does, for Python programs.


def render(
    job: Mapping[str, object],
    scheduler: str = "slurm",
    *,
    template_directories: Iterable[str] = (),
    explain: bool = False,
) -> str:
    """Return the script of a job for a scheduler, as `mingle template` prints it with --no-environment.

    `job` has the fields of a job file: those of `mingle template SCHEDULER --help`, and the command as a list.
    Raises UsageError, which names the field, and SettingsError for a file or a variable that cannot be used.
    """
    template = settings.load(os.environ, {}).section("template")
    described = describe({}, spec=job, default_launcher=template["launcher"])
    given = [template_directories] if isinstance(template_directories, str) else list(template_directories)
    places = template_path(given or template["directories"], os.environ)
    return render_script(scheduler, described, places=places, explain=explain)
