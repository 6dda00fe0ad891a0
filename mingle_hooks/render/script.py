"""A job's script: the template filled in. Templates are compiled once for each search path."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import jinja2

import mingle_hooks
from mingle_hooks.errors import UsageError
from mingle_hooks.filling import Shipped, environment
from mingle_hooks.render import quoting, search
from mingle_hooks.render.job import DEFAULT
from mingle_hooks.render.launchers import program
from mingle_hooks.render.refusals import refused
from mingle_hooks.render.schedulers import directives, scheduler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mingle_hooks.render.job import Job
    from mingle_hooks.render.schedulers import Scheduler

# Every launcher gets these too; a framework whose interface is not known sets nothing.
NETWORKS = ("nccl", "gloo")


def render(
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
        template = _environment(places).select_template([its.name + search.SUFFIX, "script" + search.SUFFIX])
        return template.render(
            job=job,
            scheduler=its,
            directives=found,
            explain=explain,
            made_by=f"{quoting.words(command)} (mingle-hooks {mingle_hooks.__version__})",
            options=_options(its, job),
            program=(*_container(its, job), *_program(its, job)),
            environment=tuple(environment),
            note=note(job),
            mingle=tuple(mingle),
        )
    except jinja2.TemplateError as wrong:
        raise _template_error(wrong) from wrong


def note(job: Job) -> str:
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
    own = Shipped("job")
    # Under "built-in/" too, so that a template can extend the one that it takes the place of.
    loader = jinja2.ChoiceLoader([jinja2.FileSystemLoader(places), own, jinja2.PrefixLoader({"built-in": own})])
    filters = {"sh": quoting.word, "arg": quoting.argument, "args": _arguments}
    return environment(loader, filters)


def _arguments(values: Iterable[str]) -> str:
    return " ".join(quoting.argument(value) for value in values)


def _template_error(wrong: jinja2.TemplateError) -> UsageError:
    """Say in which template and line it is: the innermost one that the traceback passes."""
    place = f"{wrong.filename}:{wrong.lineno}" if isinstance(wrong, jinja2.TemplateSyntaxError) else ""
    step = wrong.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        place = f"{file}:{step.tb_lineno}" if file.endswith(search.SUFFIX) else place
        step = step.tb_next
    return UsageError("a valid template", f"{place}: {wrong.message}", "correcting that line")
