"""`mingle template`, `lint`, `schema`, `docs` and `key`, which need no job."""

from __future__ import annotations

import os
import stat
import sys

import click

from mingle_hooks import files, settings
from mingle_hooks.cli.commands import FIELD_GROUPS, FIELD_VALUES, Group, Grouped, Option, Shown, complete_file
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.files import config_directory, write_stdout
from mingle_hooks.keys import fresh
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.scripts import directives
from mingle_hooks.scripts.directives import SCHEDULERS
from mingle_hooks.scripts.job import FIELDS, LAUNCHERS, Field
from mingle_hooks.values import nearest

_COMMON = (
    *("nodes_", "gpus_per_node_", "ntasks_per_node_", "cpus_per_task_", "mem_", "time_", "partition_", "account_"),
    *("job_name_", "output_", "array_", "setup_", "launcher_"),
)
_ALIASES = {"partition": ("--queue",), "time": ("--walltime",)}


class _Script(Grouped):
    """A command that records its arguments for the first line of the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Record the arguments before click parses them."""
        ctx.meta["argv"] = [*args]
        return super().parse_args(ctx, args)


_template_dir = click.option("--template-dir", multiple=True, metavar="DIR", help="Directory with your own templates.")


@click.group(cls=Group, invoke_without_command=True)
@click.option("--lint", metavar="FILE", help="The same as mingle lint FILE.")
@click.pass_context
def template(ctx: click.Context, lint: str | None) -> None:
    """Write a job script from a job description.

    \b
    mingle template slurm --nodes 2 -- train.py --lr 1e-3 | sbatch
    """
    if ctx.invoked_subcommand is not None and lint is None:
        return
    if ctx.invoked_subcommand is not None or lint is None:
        seen = "none" if lint is None else "both"
        raise UsageError(f"one of {', '.join(template.commands)}, or --lint FILE", seen, "`mingle template --help`")
    _lint((lint,))


def _lint(files: tuple[str, ...], nodes: int | None = None, *, as_json: bool = False) -> None:
    """Print the findings, and exit with 1 if there are any."""
    import json

    from mingle_hooks.scripts.lint import lint_script

    found = [(file, finding) for file in files for finding in lint_script(_read(file), nodes)]
    if as_json:
        write_stdout(json.dumps([{"file": file, **finding._asdict()} for file, finding in found], indent=2) + "\n")
    for file, finding in found if not as_json else ():
        sure = "" if finding.certainty == "sure" else f" ({finding.certainty})"
        write_stdout(f"{file}:{finding.line}: {finding.kind}{sure}: {finding.mistake}; try {finding.remedy}\n")
    if found:
        raise click.exceptions.Exit(1)


def _read(file: str) -> str:
    """Return a script's text, with bytes that are not UTF-8 as surrogates. Raises UsageError."""
    from mingle_hooks.scripts.job import LARGEST_BYTES, read_file

    if file != "-":
        return read_file(file, "script", "the path of a job script").decode(errors="surrogateescape")
    data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise UsageError(
            f"a script of at most {LARGEST_BYTES} bytes", "a longer one on stdin", "the path of a job script"
        )
    return data.decode(errors="surrogateescape")


_LINT_EXAMPLES = """\
mingle lint job.sh               # traps, and what to write instead
mingle lint --nodes 4 *.sbatch   # for `sbatch --nodes 4`
mingle lint --diff job.sh        # the same script with mingle in it
mingle lint --fix job.sh         # writes it; the old one is job.sh.orig"""


@click.command(cls=Grouped, examples=_LINT_EXAMPLES)
@click.argument("files", metavar="FILE…", nargs=-1, shell_complete=complete_file)
@click.option(
    "--nodes",
    type=click.IntRange(1, MOST_NODES),
    metavar="N",
    help="Nodes that sbatch or qsub get on their command line.",
)
@click.option("--diff", "mode", flag_value="diff", help="Print each script with mingle in it, as a unified diff.")
@click.option("--fix", "mode", flag_value="fix", help="Write each script with mingle in it, and keep FILE.orig.")
@click.option("--json", "mode", flag_value="json", help="Print the findings as JSON.")
def lint(files: tuple[str, ...], nodes: int | None, mode: str | None) -> None:
    """Report what goes wrong at run time in job scripts.

    Exits with 1 if there are findings, or if a script could not be changed safely. `-` reads stdin.
    """
    if not files:
        raise UsageError("job scripts, or - for stdin", "none", "`mingle lint job.sh`")
    if mode in (None, "json"):
        _lint(files, nodes, as_json=mode == "json")
        return
    unsure = [file for file in files if not _fix(file, nodes, writes=mode == "fix")]
    if unsure:
        raise click.exceptions.Exit(1)


def _fix(file: str, nodes: int | None, *, writes: bool) -> bool:
    """Print the diff of a script, or write it; return whether that was certain."""
    import difflib

    from mingle_hooks.scripts.rewrite import fix_script

    text = _read(file)
    fixed = fix_script(text, nodes)
    for reason in fixed.unsure:
        click.echo(f"{file}: left as it is: {printable(reason, 400)}", err=True)
    if writes and file == "-":
        write_stdout(fixed.text)
    elif writes and fixed.text != text:
        _replace(file, fixed.text.encode(errors="surrogateescape"))
    elif not writes:
        lines = (text.splitlines(keepends=True), fixed.text.splitlines(keepends=True))
        for line in difflib.unified_diff(*lines, file, file):
            write_stdout(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return not fixed.unsure


def _replace(file: str, data: bytes) -> None:
    """Write a script, and keep the old one as FILE.orig. Raises UsageError."""
    path = os.path.realpath(file)
    try:
        os.link(path, f"{path}.orig")
        files.write_new(f"{path}.new", data, mode=stat.S_IMODE(os.stat(path).st_mode))
        os.replace(f"{path}.new", path)
    except OSError as wrong:
        remedy = f"moving {wrong.filename2 or wrong.filename} away, or --diff"
        raise UsageError(f"a place for {file}.orig", str(wrong.strerror), remedy) from None


@template.command("list")
@_template_dir
def list_(template_dir: tuple[str, ...]) -> None:
    """List schedulers, launchers, and the path of each template."""
    from mingle_hooks.scripts import script

    click.echo("schedulers:")
    for scheduler in directives.TABLE:
        click.echo(f"  {scheduler.name:18} {scheduler.help}; mingle template {scheduler.name} … | {scheduler.submit}")
    click.echo("launchers:")
    for launcher in LAUNCHERS.values():
        click.echo(f"  {launcher.name:18} {launcher.help}")
    click.echo("templates:")
    for name, place in script.template_names(_places(template_dir)).items():
        click.echo(f"  {name:28} {place}")


@template.command()
@click.argument("name")
@_template_dir
def show(name: str, template_dir: tuple[str, ...]) -> None:
    """Print the source of a template."""
    from mingle_hooks.scripts import script

    click.echo(script.template_text(name, _places(template_dir)), nl=False)


@template.command()
@click.argument("name")
@click.option("--to", metavar="DIR", help="Target directory; by default ~/.config/mingle/templates.")
@_template_dir
def eject(name: str, to: str | None, template_dir: tuple[str, ...]) -> None:
    """Copy a template to your own directory, to change it there."""
    from mingle_hooks.scripts import script

    home = config_directory(os.environ)
    if to is None and home is None:
        raise UsageError("HOME in the environment", "none", "--to DIR")
    click.echo(script.eject_template(name, _places(template_dir), to or f"{home}/templates"))


def _places(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the search path: --template-dir, by default that of the settings."""
    from mingle_hooks.scripts import script

    return script.template_path(given or settings.load(os.environ, {}).section("template")["directories"], os.environ)


def _option(field: Field) -> click.Option:
    names = [field.option, *filter(None, [field.short]), *_ALIASES.get(field.name, ()), f"{field.attribute}_"]
    if field.kind == "flag":
        return Option(names, shown=Shown(FIELD_GROUPS[field.name]), is_flag=True, help=field.help)
    metavar = f"{field.metavar}[+…]" if field.kind == "each" else field.metavar
    shown = Shown(FIELD_GROUPS[field.name], metavar, *FIELD_VALUES.get(field.name, ()))
    return Option(names, shown=shown, multiple=field.kind == "many", help=field.help)


def _print(
    *, spec: str | None, template_dir: tuple[str, ...], explain: bool, command: tuple[str, ...], **options: object
) -> None:
    from mingle_hooks.scripts import script

    described = script.describe(
        {field.name: options[field.attribute + "_"] for field in FIELDS.values()},
        command,
        spec=spec,
        default_launcher=settings.load(os.environ, {}).section("template")["launcher"],
    )
    ctx = click.get_current_context()
    scheduler = ctx.command.name or ""
    text = script.render_script(
        scheduler,
        described,
        places=_places(template_dir),
        made_by=["mingle", "template", scheduler, *ctx.meta["argv"]],
        environment=() if described.no_environment else script.environment_lines(os.environ, sys.argv[0]),
        mingle=script.PORTABLE if described.no_environment else script.mingle_command(),
        explain=explain,
    )
    if note := script.script_note(described):
        click.echo(f"mingle: {printable(note)}", err=True)
    click.echo(os.fsencode(text), nl=False)  # as bytes: an argument need not be UTF-8


def _command(name: str) -> click.Command:
    scheduler = SCHEDULERS[name]
    return _Script(
        name,
        callback=_print,
        context_settings={"allow_interspersed_args": False},
        help=f"Print a job script for {scheduler.help}. Pipe it into {scheduler.submit}.",
        short_help=f"Print a job script for {scheduler.help}.",
        examples=f"mingle template {name} -- train.py | {scheduler.submit}\n"
        f"mingle template {name} --nodes 2 --gpus-per-node 8 --time 4:00:00 -- train.py",
        common=_COMMON,
        params=[
            click.Argument(
                ["command"], nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND", shell_complete=complete_file
            ),
            *(_option(field) for field in FIELDS.values()),
            click.Option(["--spec"], metavar="FILE", help="job description in TOML; options win over it"),
            click.Option(["--template-dir"], multiple=True, metavar="DIR", help="directory with your own templates"),
            click.Option(["--explain"], is_flag=True, help="add the source of each directive as a comment"),
        ],
    )


for _name in SCHEDULERS:
    template.add_command(_command(_name))


# `mingle schema`: JSON schemas of job files, mingle.toml, events.jsonl and checks, for editors and validators.

_SCHEMA_EXAMPLES = """\
mingle schema job > job.schema.json   # then a job file begins with
#:schema ./job.schema.json"""


@click.command(cls=Grouped, examples=_SCHEMA_EXAMPLES)
@click.argument("file", type=click.Choice(["job", "settings", "events", "check"]))
def schema(file: str) -> None:
    """Print the JSON schema of a job file, of mingle.toml, of events.jsonl or of a check's JSON."""
    import json

    from mingle_hooks import schemas

    write_stdout(json.dumps(getattr(schemas, file)(), indent=2) + "\n")


# `mingle docs`: print a page of the documentation that is installed.

SUFFIX = ".md"
_DOCS_EXAMPLES = """\
mingle docs                   # list the pages
mingle docs tutorial | less   # laptop, Slurm and PBS in five minutes
mingle docs pbs               # jobs under PBS"""
# A page -> its subjects. The first one is offered if no name is near.
_SUBJECTS = {
    "faq": "help questions",
    "frameworks": "accelerate deepspeed jax lightning pytorch ray torchrun",
    "how-it-works": "check-in",
    "admin": "drain epilog hooks install prolog",
    "troubleshooting": "error errors",
    "networks": "gloo gloo-socket-ifname ib infiniband nccl nccl-socket-ifname network",
    "schedulers/sge": "grid-engine uge",
    "schedulers/kubernetes": "k8s",
    "security": "key keys",
    "schedulers/given-ranks": "kubeflow toolkit vessl",
    "schedulers/mpi": "mpirun pals",
    "differences": "nodes-differ",
    "lint": "from-recipes traps",
    "schedulers/pbs": "openpbs pbspro",
    "extending": "plugins",
    "api": "python",
    "run": "restart",
    "schedulers/slurm": "sbatch srun",
    "why-not": "scontrol submitit",
    "schedulers/plain-hosts": "ssh",
    "tutorial": "start",
    "hosts": "topology",
}
SUBJECTS = {name: page for page, names in _SUBJECTS.items() for name in names.split()}


def pages() -> tuple[str, ...]:
    """Return the names of the pages."""
    return tuple(name.removesuffix(SUFFIX) for name in files.shipped_names("docs") if name.endswith(SUFFIX))


def search_names() -> dict[str, str]:
    """Return name -> page for all names of pages and subjects, such as `slurm`."""
    return SUBJECTS | {name: page for page in pages() for name in (page, page.rpartition("/")[2])}


def _complete(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    return [name for name in sorted(search_names()) if name.startswith(begun)]


@click.command(cls=Grouped, examples=_DOCS_EXAMPLES)
@click.argument("page", required=False, shell_complete=_complete)
def docs(page: str | None) -> None:
    """Print a page of the documentation, or the list of pages."""
    if page is None:
        write_stdout("".join(f"{name}\n" for name in pages()))
        return
    known = search_names()
    name = page.lower().replace("_", "-").removeprefix("docs/").removesuffix(SUFFIX)
    if name not in known:
        raise UsageError("a page that `mingle docs` lists", page, f"`mingle docs {nearest(name, known)}`")
    write_stdout(files.shipped_text(f"docs/{known[name]}{SUFFIX}"))


# `mingle key`: print a fresh key for the members of a world.


@click.command()
def key() -> None:
    """Print a new key for the members of a world.

    \b
    (umask 077; mingle key > ~/.config/mingle/key)   # and copy it
    """
    write_stdout(fresh() + "\n")
