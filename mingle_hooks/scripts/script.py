"""A job's script: the template filled in. Templates are compiled once for each search path."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import jinja2

import mingle_hooks
from mingle_hooks import files, settings
from mingle_hooks.errors import PlaceError, UsageError
from mingle_hooks.files import config_directory, template_environment, template_loader
from mingle_hooks.scripts import fields
from mingle_hooks.scripts import job as job_job
from mingle_hooks.scripts.command import program
from mingle_hooks.scripts.directives import Scheduler, directives, refused, scheduler
from mingle_hooks.scripts.fields import quote_word
from mingle_hooks.scripts.job import DEFAULT, Job

if TYPE_CHECKING:
    from mingle_hooks.scripts.lint import Line


# Where templates are found: directories in order, the first that has the file.

SITE = "/etc/mingle/templates"
BUILT_IN = "templates/job"
SUFFIX = ".sh.j2"
_LARGEST_BYTES = 1 << 20  # a template is a page


def template_path(given: Iterable[str], environ: Mapping[str, str], *, site: str = SITE) -> tuple[str, ...]:
    """Return the search path before the built-in templates: the given directories, the user's, the site's.

    `given` is --template-dir, or else MINGLE_TEMPLATES and the settings. One that does not exist is an error, as
    the built-in template would be used without a word. Raises UsageError.
    """
    for directory in given:
        if not os.path.isdir(directory):
            raise UsageError(
                "a directory of templates", directory, "mkdir, or correcting --template-dir or MINGLE_TEMPLATES"
            )
    user = config_directory(environ)
    rest = [f"{user}/templates" if user else "", site]
    return (*given, *(place for place in rest if place and os.path.isdir(place)))


def template_names(places: Iterable[str]) -> dict[str, str]:
    """Return template name -> the directory that it is taken from, sorted by name.

    Raises MingleError where the installation has none.
    """
    found: dict[str, str] = {}
    for place in places:
        for name in _inside(place):
            found.setdefault(name, place)
    for file in files.shipped_names(BUILT_IN):
        found.setdefault(file.removesuffix(SUFFIX), str(files.shipped_path(BUILT_IN)))
    return dict(sorted(found.items()))


def _inside(place: str) -> Iterator[str]:
    for directory, _, names in os.walk(place):
        for file in names:
            if file.endswith(SUFFIX):
                yield os.path.relpath(f"{directory}/{file}", place).removesuffix(SUFFIX)


def template_text(name: str, places: Iterable[str]) -> str:
    """Return a template's own text. Raises UsageError for an unknown name."""
    places = tuple(places)
    found = template_names(places)
    if name not in found:
        raise UsageError("the name of a template", repr(name), "one that `mingle template list` shows")
    if found[name] not in places:
        return files.shipped_text(f"{BUILT_IN}/{name}{SUFFIX}")
    with open(f"{found[name]}/{name}{SUFFIX}", encoding="utf-8") as file:
        return file.read(_LARGEST_BYTES)


def eject_template(name: str, places: Iterable[str], directory: str) -> str:
    """Copy a template into a directory for its owner to change, and return its path; never over another file.

    Raises UsageError and PlaceError.
    """
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


# Every launcher gets these too; a framework whose interface is not known sets nothing.
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
    """Return the whole script for a scheduler, "slurm" or another of its table.

    `places` is the search path, `made_by` the command line that the first line repeats, `environment` the lines of
    shell that make the environment what it is here, `mingle` the words that start mingle there. The same arguments
    always give the same text. Raises UsageError for what the scheduler cannot carry, or for a template.
    """
    its = scheduler(name)
    found = directives(its, job)
    command = [*made_by] or ["mingle", "template", its.name]
    try:
        # A site's or a user's own for one scheduler, or for all of them.
        template = _environment(places).select_template([its.name + SUFFIX, "script" + SUFFIX])
        return template.render(
            job=job,
            scheduler=its,
            directives=found,
            explain=explain,
            made_by=f"{fields.quote_words(command)} (mingle-hooks {mingle_hooks.__version__})",
            options=_options(its, job),
            program=(*_container(its, job), *_program(its, job)),
            environment=tuple(environment),
            note=script_note(job),
            mingle=tuple(mingle),
        )
    except jinja2.TemplateError as wrong:
        raise _template_error(wrong) from wrong


def script_note(job: Job) -> str:
    """Return what a user who typed `python train.py` should know of the launcher in front of it, or nothing."""
    if job.starter or not job.launcher.no_python or job.source("launcher") != DEFAULT:
        return ""
    if not os.path.basename(job.command[0]).startswith("python"):
        return ""
    return f"{job.launcher.name} starts {job.command[0]}; with --launcher process each task is one {job.command[0]}"


def _options(its: Scheduler, job: Job) -> tuple[str, ...]:
    """Return the options of `mingle run`. Raises UsageError."""
    if job.launcher.starts == "job":
        return (*_start_options(its, job), *_warning(job))
    frameworks = dict.fromkeys([*job.launcher.frameworks, *NETWORKS, *job.frameworks])
    scope = ("--scope", "task") if job.launcher.starts == "task" else ()
    return (*scope, "--for", ",".join(frameworks), *_slots(its, job), *_start_options(its, job), *_warning(job))


def _slots(its: Scheduler, job: Job) -> tuple[str, ...]:
    """Return how many processes a launcher starts on a node. Raises UsageError."""
    if job.launcher.starts == "task":
        return ()
    if job.ntasks is not None:
        return ("--slots", str(job.ntasks))
    if all(group.gpus and group.gpus.number == group.ntasks for group in job.groups):
        return ("--slots", "gpus")
    if its.runs_tasks:
        counts = "+".join(str(group.ntasks) for group in job.groups)
        can = "the number of GPUs, or with --launcher process, where groups differ"
        raise refused("ntasks-per-node", counts, can, "--launcher process")
    return ()


def _warning(job: Job) -> tuple[str, ...]:
    """Return how the training is warned: mingle's own clock is there under every scheduler, on every host.

    The template adds the limit, of which the lines before have taken a part.
    """
    signal = () if job.signal.name == "USR1" else ("--warn-signal", job.signal.name)
    return (*signal, *(("--warn", str(job.signal.before_s)) if job.time else ()))


def _start_options(its: Scheduler, job: Job) -> tuple[str, ...]:
    """Return what the scheduler's own starter needs beyond what `mingle run` says to it."""
    if not job.container or not _is_pyxis(job.container) or not its.runs_pyxis:
        return ()
    mounts = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in _binds(job))  # pyxis wants both
    found = [f"--container-image={job.container}", *([f"--container-mounts={mounts}"] if mounts else [])]
    return tuple(f"--start-option={option}" for option in found)


def _program(its: Scheduler, job: Job) -> tuple[str, ...]:
    """Return the words that `mingle run` starts."""
    command = job.command if job.starter else program(job.command, job.launcher)
    if job.launcher.starts != "job":
        return (*job.launcher.words(job.starter, job.max_restarts), *command)
    # mpirun reaches the other hosts itself, and hands on no more than it is told to, but for Slurm's srun.
    names = ("MINGLE_KEY", *(() if its.runs_tasks else ("PATH", "LD_LIBRARY_PATH", *(name for name, _ in job.env))))
    frameworks = ",".join(dict.fromkeys([*NETWORKS, *job.frameworks]))
    carried = (word for name in names for word in ("-x", name))
    return ("mpirun", "--tag-output", *carried, "mingle", "exec", "--scope", "task", "--for", frameworks, *command)


def _container(its: Scheduler, job: Job) -> tuple[str, ...]:
    """Return what runs a command in the container, as words in front of it. Raises UsageError."""
    if not job.container:
        return ()
    if _is_pyxis(job.container):
        if not its.runs_pyxis:
            works = f"docker://{job.container.replace('#', '/', 1)}" if "#" in job.container else "image.sif"
            raise refused(
                "container", job.container, "an image for Apptainer, as pyxis is Slurm's", f"--container {works}"
            )
        return ()
    binds = [f"--bind={bind}" for bind in _binds(job)]
    image = f"./{job.container}" if job.container.startswith("-") else job.container
    return ("apptainer", "exec", *(["--nv"] if job.has_gpus else []), *binds, image)


def _binds(job: Job) -> tuple[str, ...]:
    for bind in job.bind:
        if "," in bind:
            can = "a path without a comma, at which Apptainer and pyxis begin another"
            raise refused("bind", bind, can, " ".join(f"--bind {path}" for path in bind.split(",") if path))
    return job.bind


def _is_pyxis(image: str) -> bool:
    """Tell a squashfs file or REGISTRY#IMAGE, which are enroot's, from what Apptainer runs."""
    return image.endswith(".sqsh") or ("#" in image.partition("/")[0] and not image.endswith(".sif"))


@functools.lru_cache(maxsize=8)
def _environment(places: tuple[str, ...]) -> jinja2.Environment:
    own = template_loader("job")
    # Under "built-in/" too, so that a template can extend the one that it takes the place of.
    loader = jinja2.ChoiceLoader([jinja2.FileSystemLoader(places), own, jinja2.PrefixLoader({"built-in": own})])
    filters = {"sh": fields.quote_word, "arg": fields.quote_argument, "args": _arguments}
    return template_environment(loader, filters)


def _arguments(values: Iterable[str]) -> str:
    return " ".join(fields.quote_argument(value) for value in values)


def _template_error(wrong: jinja2.TemplateError) -> UsageError:
    """Say in which template and line it is: the innermost one that the traceback passes."""
    place = f"{wrong.filename}:{wrong.lineno}" if isinstance(wrong, jinja2.TemplateSyntaxError) else ""
    step = wrong.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        place = f"{file}:{step.tb_lineno}" if file.endswith(SUFFIX) else place
        step = step.tb_next
    return UsageError("a valid template", f"{place}: {wrong.message}", "correcting that line")


# How many nodes and tasks a job script asks for, and steps of srun that do not fit them.

# Those that start a node's processes themselves, so that Slurm has to start one on each node.
_LAUNCHER = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate\s{1,8}launch)\b")
_SLURMS = re.compile(r"(?:--nodes[= ]|(?<!\S)-N\s{0,8})(\d{1,9})(?:-(\d{1,9}))?")
_TORQUES = re.compile(r"-l\s{1,8}nodes=(\d{1,9})")
_CHUNKS = re.compile(r"select=(\S+)")
_EACH = re.compile(r"--ntasks-per-node[= ](\d{1,9})")
_ALL = re.compile(r"(?:--ntasks[= ]|(?<!\S)-n\s{0,8})(\d{1,9})")
_CARRIED = re.compile(r"\bdeclare -f\b")
_STEP = re.compile(r"\bsrun\b((?:\s+-\S+(?:[ \t]+[^\s-]\S*)?)*)")


class TasksAsked(NamedTuple):
    """What the directives ask for: nodes, and tasks on all of them, None where they say nothing, and in which line."""

    nodes: int
    tasks: int | None = None
    line: int = 0


def tasks_asked(directives: Iterable[Line]) -> TasksAsked:
    """Return what a script's directives ask for."""
    nodes, each, tasks, place = 0, None, None, 0
    for line in directives:
        nodes = nodes or _nodes(line.text)
        if line.text.startswith("#SBATCH"):
            its_each, its_all = _count(_EACH, line.text), _count(_ALL, line.text)
            place = line.number if its_each or its_all else place
            each, tasks = its_each or each, its_all or tasks
    if not nodes:
        nodes = -(-tasks // each) if each and tasks else 1
    return TasksAsked(nodes, tasks or (each and each * nodes), place)


def launches_inside(lines: Iterable[Line]) -> bool:
    """Tell whether a function starts a launcher."""
    return any(line.is_inside and _LAUNCHER.search(line.text) for line in lines)


def steps_that_do_not_fit(job: TasksAsked, line: Line, *, is_inside: bool) -> Iterator[tuple[int, int, str, str]]:
    """Say which steps start other tasks than is meant: place in the line, or number of the directive, mistake, mend.

    `is_inside` tells that the launcher is in a function, which a step gets by `declare -f`.

    Seen with Slurm 22.05: --ntasks-per-node of srun counts for nothing where the directives say how many tasks.
    """
    steps = list(_STEP.finditer(line.text))
    for step, end in zip(steps, [*(its.start() for its in steps[1:]), len(line.text)], strict=False):
        own = step[1]
        each, tasks = _count(_EACH, own), _count(_ALL, own)
        nodes = _count(_SLURMS, own) or job.nodes
        if each and not tasks and job.tasks and job.tasks != each * nodes:
            mend = f"--ntasks={each * nodes} beside it, and no fewer in #SBATCH"
            yield step.start(), 0, f"--ntasks-per-node={each} of srun, which starts the {job.tasks} of #SBATCH", mend
        elif (is_inside and _CARRIED.search(line.text, step.start(), end)) or _LAUNCHER.search(
            line.text, step.start(), end
        ):
            started = tasks or job.tasks or (each or 1) * nodes
            if started > nodes:
                place = 0 if tasks or not job.tasks else job.line
                mistake = "more than one task for each node, with a launcher that starts the others"
                yield step.start(), place, mistake, "--ntasks-per-node=1, and the launcher's own --nproc-per-node"


def _nodes(text: str) -> int:
    """Return the number of nodes that a directive asks for, 0 where it says nothing of them."""
    if match := _CHUNKS.search(text):
        counts = [re.match(r"\d*", chunk) for chunk in match[1].split("+")]
        return sum(int(count[0][:9] or 1) for count in counts if count)
    match = _SLURMS.search(text) if text.startswith("#SBATCH") else None
    return max(int(group) for group in match.groups() if group) if match else _count(_TORQUES, text) or 0


def _count(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


# The environment in which a script is made, as lines of shell that make it again where the job runs.
#
# A scheduler that hands on nothing, as PBS does, would find neither mingle nor the user's Python. Modules are not seen
# from here: --module loads them, before these lines.

PORTABLE = ("mingle",)
_ON_EVERY_PATH = ("/usr/bin", "/bin")


def environment_lines(environ: Mapping[str, str], called: str) -> tuple[str, ...]:
    """Return the lines for this environment; `called` is argv[0], by which this mingle was called.

    A venv is activated last, as it may stand on a conda environment. Raises UsageError for a directory that PATH
    cannot hold.
    """
    conda = _conda(environ)
    venv = environ.get("VIRTUAL_ENV", "")
    is_venv = os.path.isfile(f"{venv}/bin/activate") and os.path.isabs(venv)
    place = _mingle(called)
    is_there = is_venv and os.path.realpath(place) == os.path.realpath(f"{venv}/bin")
    path = [] if is_there or place in ("", *_ON_EVERY_PATH) else [_on_path(place)]
    return (*path, *conda, *([f". {quote_word(f'{venv}/bin/activate')} || exit"] if is_venv else []))


def mingle_command() -> tuple[str, ...]:
    """Return what starts this mingle where the job runs: its name, or mingle.pyz with the Python that runs it."""
    archive = files.own_archive()
    is_named = archive is None or os.path.basename(archive) == "mingle"
    return PORTABLE if is_named else (sys.executable, str(archive))


def _mingle(called: str) -> str:
    """Return the directory of the program `mingle` that was called, or of this Python's; empty where there is none."""
    for path in (called, f"{os.path.dirname(sys.executable)}/mingle"):
        if os.path.basename(path) == "mingle" and os.path.isfile(path):
            return os.path.dirname(os.path.abspath(path))
    return ""


def _conda(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Activate by conda itself, for what stands in its activate.d; without it, as for pixi, PATH is all there is."""
    prefix, conda = environ.get("CONDA_PREFIX", ""), environ.get("CONDA_EXE", "")
    if not os.path.isabs(prefix) or not os.path.isdir(prefix):
        return ()
    if os.path.isabs(conda) and os.access(conda, os.X_OK):
        return (f'eval "$({quote_word(conda)} shell.bash hook)" && conda activate {quote_word(prefix)} || exit',)
    return (f"export CONDA_PREFIX={quote_word(prefix)}", _on_path(f"{prefix}/bin"))


def _on_path(directory: str) -> str:
    if ":" in directory:
        raise UsageError(
            "a directory that PATH can hold", directory, "--no-environment, and a --setup line that finds mingle"
        )
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

    `job` holds what a job file holds: the fields of `mingle template SCHEDULER --help`, and the command as a list.
    Raises UsageError that names the field, and SettingsError for a file or a variable that cannot be used.
    """
    template = settings.load(os.environ, {}).section("template")
    described = job_job.describe({}, spec=job, default_launcher=template["launcher"])
    places = template_path(_listed(template_directories) or template["directories"], os.environ)
    return render_script(scheduler, described, places=places, explain=explain)


def _listed(given: Iterable[str]) -> list[str]:
    """Return a list of texts; a text alone is one of them."""
    return [given] if isinstance(given, str) else list(given)
