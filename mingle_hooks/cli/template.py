"""`mingle template`, `lint`, `schema`, `docs` and `key`, which need no job."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import click

from mingle_hooks import files, settings, values
from mingle_hooks.cli import commands
from mingle_hooks.cli.commands import Group, Grouped, Kind, Option, Shown, complete_file
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.files import config_directory, write_stdout
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.scripts import directives, job as fields
from mingle_hooks.scripts.directives import SCHEDULERS
from mingle_hooks.scripts.job import FIELDS, LAUNCHERS, Field
from mingle_hooks.settings import TABLE, backends
from mingle_hooks.values import LONGEST_ID, nearest

if TYPE_CHECKING:
    import re

# Fields of a job description, by heading; scripts/job.py has their options.
_BY_GROUP = {
    commands.NODES: "nodes gpus-per-node ntasks-per-node ntasks gpus gres cpus-per-task mem constraint exclusive",
    commands.TRAINING: "launcher for max-restarts requeue module env setup no-environment container bind chdir",
    commands.JOB: "job-name time signal partition account qos reservation array dependency directive",
    commands.MAIL: "output error mail-user mail-type",
}
FIELD_GROUPS = {name: group for group, names in _BY_GROUP.items() for name in names.split()}
FIELD_VALUES: dict[str, tuple[Kind, Callable[[], Iterable[str]]]] = {
    "launcher": ("plain", lambda: LAUNCHERS),
    "for": ("list", lambda: (*commands.SETTINGS["frameworks"].values(), *commands.SETTINGS["frameworks"].added())),
    "mail-type": ("list", lambda: ("BEGIN", "END", "FAIL", "ALL")),
    "signal": ("plain", lambda: ("USR1@120", "TERM@120", "INT@120", "USR2@120", "HUP@120")),
    "container": ("file", tuple),
    "output": ("file", tuple),
    "error": ("file", tuple),
    "chdir": ("dir", tuple),
    "bind": ("dir", tuple),
}

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
@click.option("--lint", "file", metavar="FILE", help="The same as mingle lint FILE.")
@click.pass_context
def template(ctx: click.Context, file: str | None) -> None:
    """Write a job script from a job description.

    \b
    mingle template slurm --nodes 2 -- train.py --lr 1e-3 | sbatch
    """
    if (ctx.invoked_subcommand is None) == (file is None):
        seen = "none" if file is None else "both"
        raise UsageError(f"one of {', '.join(template.commands)}, or --lint FILE", seen, "`mingle template --help`")
    if file is not None:
        ctx.invoke(lint, files=(file,), nodes=None, mode=None)


def _read(file: str) -> str:
    """Return a script's text, with bytes that are not UTF-8 as surrogates. Raises UsageError."""
    if file != "-":
        return fields.read_file(file, "script", "the path of a job script").decode(errors="surrogateescape")
    most = fields.LARGEST_BYTES
    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        raise UsageError(f"a script of at most {most} bytes", "a longer one on stdin", "the path of a job script")
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
    texts = {file: _read(file) for file in files}  # all, before one is changed
    if mode in ("diff", "fix"):
        are_sure = [_fix(file, text, nodes, writes=mode == "fix") for file, text in texts.items()]
        is_clean = all(are_sure)
    else:
        is_clean = _is_clean(texts, nodes, as_json=mode == "json")
    if not is_clean:
        raise click.exceptions.Exit(1)


def _is_clean(texts: dict[str, str], nodes: int | None, *, as_json: bool) -> bool:
    """Print the findings in scripts; return whether there are none."""
    import json

    from mingle_hooks.scripts.lint import lint_script

    found = [(file, finding) for file, text in texts.items() for finding in lint_script(text, nodes)]
    if as_json:
        write_stdout(json.dumps([{"file": file, **finding._asdict()} for file, finding in found], indent=2) + "\n")
    for file, finding in found if not as_json else ():
        sure = "" if finding.certainty == "sure" else f" ({finding.certainty})"
        write_stdout(f"{file}:{finding.line}: {finding.kind}{sure}: {finding.mistake}; try {finding.remedy}\n")
    return not found


def _fix(file: str, text: str, nodes: int | None, *, writes: bool) -> bool:
    """Print the diff of a script, or write it; return whether that was certain."""
    import difflib

    from mingle_hooks.scripts.rewrite import fix_script, lines_of

    fixed = fix_script(text, nodes)
    for reason in fixed.unsure:
        click.echo(f"{file}: left as it is: {printable(reason, 400)}", err=True)
    if writes and file == "-":
        write_stdout(fixed.text)
    elif writes and fixed.text != text:
        _replace(file, fixed.text.encode(errors="surrogateescape"))
    elif not writes:
        for line in difflib.unified_diff(lines_of(text), lines_of(fixed.text), file, file):
            write_stdout(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return not fixed.unsure


def _replace(file: str, data: bytes) -> None:
    """Write a script, and keep the old one as FILE.orig. Raises UsageError."""
    path = os.path.realpath(file)
    draft = f"{path}.new"
    if not os.path.isfile(path):
        raise UsageError("a regular file", f"{file}, which is not one", "--diff")
    try:
        files.write_new(draft, data, mode=stat.S_IMODE(os.stat(path).st_mode))
        try:
            os.link(path, f"{path}.orig")
            os.replace(draft, path)
        except OSError:
            os.unlink(draft)
            raise
    except OSError as wrong:
        there = wrong.filename2 or wrong.filename
        remedy = f"moving {there} away, or --diff" if isinstance(wrong, FileExistsError) else "--diff"
        raise UsageError(f"a place for {file}.new and {file}.orig", str(wrong.strerror), remedy) from None


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
#
# Those of job files and mingle.toml are built from the tables that read them. A schema accepts everything that the
# tables accept. The tables refuse more: fields that contradict each other, and numbers as text that are out of bounds.

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"  # all validators and editors support it
_TEXT: Schema = {"type": "string", "minLength": 1}
_FLAG: Schema = {"type": "boolean"}
_NAMES_PATTERN = r"^\s*[A-Za-z0-9_.,\s-]*$"


def job_schema() -> Schema:
    """Return the schema of a job file: of `mingle template --spec`, and of `mingle_hooks.render`."""
    # Only the first word of a command cannot be empty.
    words: Schema = {"type": "array", "items": [_TEXT], "additionalItems": {"type": "string"}, "minItems": 1}
    text_or_list = {"anyOf": [_TEXT, words]}
    found: Schema = {"command": {**text_or_list, "description": "the training command: its words, as a list"}}
    found |= {field.name: _field(field) for field in fields.FIELDS.values()}
    # Underscores are accepted instead of hyphens.
    also = {f"^{name.replace('-', '[-_]')}$": schema for name, schema in found.items() if "-" in name}
    return _object("A job of mingle-hooks", found) | {"patternProperties": also}


def settings_schema() -> Schema:
    """Return the schema of mingle.toml: of the site's, as a user's has no [hooks]."""
    found: Schema = {}
    for setting in TABLE:
        schema = {**_reader(setting.read), "description": setting.help}
        table, _, key = setting.key.rpartition(".")
        if table:
            found.setdefault(table, _object(f"[{table}]", {}))["properties"][key] = schema
        elif key:
            found[key] = schema
    return _object("Settings of mingle-hooks", found)


def events_schema() -> Schema:
    """Return the schema of a line of events.jsonl, which --on-event gets too."""
    from mingle_hooks.run.attempt import EVENT_SCHEMA, EVENTS

    kinds = [{"const": name, "description": kind.help} for name, kind in EVENTS.items()]
    always = {"schema": {"const": EVENT_SCHEMA}, "event": {"oneOf": kinds}, **_EVENT_FIELDS}
    found = _object("An event of mingle run", {**always, **_SOME_EVENTS_FIELDS})
    return {**found, "required": [*always], "additionalProperties": True}  # later versions add fields


def check_schema() -> Schema:
    """Return the schema of what `mingle check --json` prints."""
    from mingle_hooks.check.report import Report

    found = _record(Report)
    texts = {"type": "array", "items": {"type": "string"}}
    found["properties"] |= {"exclude": texts, "status": {"type": "integer"}}
    found["properties"]["findings"]["items"]["properties"]["who"] = texts
    return {"$schema": DRAFT, "title": "A report of mingle check", **found, "required": [*found["properties"]]}


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _record(hint: Any) -> Schema:
    """Return the schema of a record, with which later versions may have more fields, or of a field's type."""
    parts = [_record(part) for part in get_args(hint) if not isinstance(part, str) and part is not ...]
    if hasattr(hint, "_fields"):
        properties = {name: _record(of) for name, of in get_type_hints(hint).items()}
        return {"type": "object", "properties": properties, "required": [*properties]}
    if get_origin(hint) is Literal:
        return {"enum": [*get_args(hint)]}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": parts[0] if ... in get_args(hint) else parts}
    return {"anyOf": parts} if parts else {"type": _PLAIN[hint]}


def _object(title: str, properties: Schema) -> Schema:
    head = {} if title.startswith("[") else {"$schema": DRAFT, "title": title}
    return {**head, "type": "object", "properties": properties, "additionalProperties": False}


def _described(kind: str | list[str], what: str, **more: Any) -> Schema:
    return {"type": kind, "description": what, **more}


_SECONDS = {"type": ["number", "null"], "minimum": 0}
_EVENT_FIELDS = {
    "time": _described("number", "Seconds since 1970, by the runner's clock."),
    "monotonic": _described("number", "Seconds of the runner's CLOCK_MONOTONIC."),
    "job": _described(["string", "null"], "The job's id, or the one that --id gave."),
    "run": _described("string", "The run's own id."),
    "runner": _described("string", "The host of mingle run."),
}
_SOME_EVENTS_FIELDS = {
    "attempt": _described("integer", "From 0."),
    "host": _described(["string", "null"], "The host that the event is about."),
    "local": _described("integer", "The member's number on its host, from 0."),
    "rank": _described(["integer", "null"], "The member's rank; null before it has one."),
    "hosts": _described("array", "Hosts in rank order.", items={"type": "string"}),
    "nodes": _described("integer", "The number of members."),
    "addr": _described("string", "MASTER_ADDR."),
    "port": _described("integer", "MASTER_PORT."),
    "last": _described("object", "The member that the others waited for, and why."),
    "spent_ms": _described("array", "Durations of a member's start.", items={"type": "integer"}),
    "status": _described("integer", "An exit status, as a shell has it."),
    "signal": _described(["integer", "null"], "The signal that ended COMMAND."),
    "number": _described("integer", "The signal that the run got or sent."),
    "why": _described("string", "Why the run ends; empty for a signal."),
    "grace_s": {**_SECONDS, "description": "The grace period of COMMAND."},
    "within_s": {**_SECONDS, "description": "How long missing hosts are called."},
    "silent_s": {**_SECONDS, "description": "How long nothing was heard."},
    "after_s": {**_SECONDS, "description": "How long the attempt ran."},
    "kind": _described("string", "The kind of a failure."),
    "is_oom": _described("boolean", "Whether the kernel's OOM killer ended COMMAND."),
    "tail": _described("string", "The last lines of COMMAND."),
    "exception": _described("string", "The line of the exception that ended COMMAND."),
}


def _field(field: fields.Field) -> Schema:
    one = _reader(field.read)
    several = {"type": "array", "items": one, "minItems": 1}
    kinds = [one]
    if field.kind == "each":  # one value for each group of nodes
        groups = {"type": "string", "pattern": r"^[^+]+(\+[^+]+)+$"}
        kinds += [groups, {**several, "maxItems": fields.MOST_GROUPS}]
    elif field.kind == "many":
        kinds.append({**several, "maxItems": fields.MOST_ENTRIES})
    if field.name == "env":
        kinds.append({"type": "object", "minProperties": 1, "additionalProperties": {"type": ["string", "integer"]}})
    return {**(one if len(kinds) == 1 else {"anyOf": kinds}), "description": field.help}


def _reader(read: Callable[..., object]) -> Schema:
    """Return the schema of the values that a reader accepts. Raises KeyError for an unknown reader."""
    bounds = read.keywords if isinstance(read, partial) else {}
    read = read.func if isinstance(read, partial) else read
    if choices := getattr(read, "choices", ()):
        return {"enum": [*choices]}
    schema = _READERS[read]
    return schema(**bounds) if callable(schema) else dict(schema)


def _whole(least: int, most: int) -> Schema:
    number = {"type": "integer", "minimum": least, "maximum": most}
    return {"anyOf": [number, {"type": "string", "pattern": r"^\s*[0-9]{1,10}\s*$"}]}


def _gpus(most: int = fields.MOST_PER_NODE) -> Schema:
    typed = {"type": "string", "pattern": "^(([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?:)?[0-9]{1,9}$"}
    return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": most}, typed]}


def _matching(pattern: re.Pattern[str], like: str) -> Schema:
    return {"type": "string", "pattern": f"^({pattern.pattern})$", "examples": [like]}


def _texts(most: int, pattern: str = "") -> Schema:
    text = {**_TEXT, "maxLength": most}
    return {**text, "pattern": pattern} if pattern else text


def _listed(one: Schema) -> Schema:
    return {"anyOf": [one, {"type": "array", "items": one, "maxItems": values.MOST_ENTRIES}]}


def _any_case(*words: str) -> str:
    """Return a pattern for one of these words, in upper or lower case."""
    return f"({'|'.join(''.join(f'[{c.upper()}{c.lower()}]' if c.isalpha() else c for c in word) for word in words)})"


_NUMBER_OR_TEXT: Schema = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "[0-9]"}]}
_NAMES = _listed({"type": "string", "pattern": _NAMES_PATTERN})
_PATH: Schema = {"type": "string", "pattern": "^[/~]"}
_MAIL, _SIGNAL = _any_case(*fields.MAIL), _any_case(*fields.SIGNALS)
_AMOUNT = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_UNITS = "".join(rf"({_AMOUNT}\s*[{unit}{unit.upper()}]\s*)?" for unit in values.UNITS_S)
_DURATION = rf"^\s*({_AMOUNT}|(?=.*[0-9]){_UNITS})\s*$"
_YES_OR_NO: Schema = {"anyOf": [_FLAG, {"type": "string", "pattern": rf"^\s*{_any_case(*values.YES, *values.NO)}\s*$"}]}
# Reader -> the schema of its values, or a function of its bounds: job fields, then settings.
_READERS: dict[Callable[..., object], Schema | Callable[..., Schema]] = {
    fields.text_field: _texts(fields.LONGEST_TEXT),
    fields.line_field: _texts(fields.LONGEST_TEXT, r"^\s*[^#\s]"),
    fields.directory_field: _texts(fields.LONGEST_TEXT),
    fields.gpus_field: _gpus,
    fields.gres_field: {"type": "string", "pattern": r"^(gres[/:])?(gres[/:])?gpu(:[^,:]+){0,2}$"},
    fields.flag_field: _FLAG,
    fields.matching_field: _matching,
    fields.array_field: _matching(fields.ARRAY, "0-9%2"),
    fields.mail_field: {"type": "string", "pattern": rf"^\s*{_MAIL}\s*(,\s*{_MAIL}\s*)*$"},
    fields.signal_field: {"type": "string", "pattern": f"^([RBrb]{{1,2}}:)?([Ss][Ii][Gg])?{_SIGNAL}(@[0-9]{{1,5}})?$"},
    fields.variable_field: {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,254}="},
    fields.mebibytes_of: {"anyOf": [{"type": "integer", "minimum": 0}, _NUMBER_OR_TEXT]},
    fields.seconds_of: _NUMBER_OR_TEXT,
    values.identifier: _texts(LONGEST_ID),
    values.whole: _whole,
    values.endpoint: _TEXT,
    backends: _NAMES,
    values.word: {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", "maxLength": 64},
    values.listed: lambda read: _NAMES if read is values.word else _listed({"type": "string"}),
    values.ports: {"type": "string", "pattern": r"^\s*[0-9]+-[0-9]+\s*$"},
    values.yes_or_no: lambda **_words: _YES_OR_NO,
    values.differences: {"anyOf": [*_YES_OR_NO["anyOf"], _NAMES]},
    values.seconds: {
        "anyOf": [
            {"type": "number", "minimum": values.SHORTEST_WAIT_S, "maximum": values.LONGEST_WAIT_S},
            {"type": "string", "pattern": _DURATION},
        ]
    },
    values.slots: {"anyOf": [*_whole(1, MOST_NODES)["anyOf"], {"enum": [*values.COUNTED]}]},
    values.path: {**_PATH, "maxLength": 4096},
    values.program: {"anyOf": [{**_PATH, "maxLength": 4096}, {"enum": [values.NONE]}]},
    values.paths: {"anyOf": [_PATH, {"type": "array", "items": _PATH, "maxItems": values.MOST_ENTRIES}]},
    values.suffix: _texts(253, "^[A-Za-z0-9.-]+$"),
}
SCHEMAS = {"job": job_schema, "settings": settings_schema, "events": events_schema, "check": check_schema}

_SCHEMA_EXAMPLES = """\
mingle schema job > job.schema.json   # then a job file begins with
#:schema ./job.schema.json"""


@click.command(cls=Grouped, examples=_SCHEMA_EXAMPLES)
@click.argument("file", type=click.Choice([*SCHEMAS]))
def schema(file: str) -> None:
    """Print the JSON schema of a job file, of mingle.toml, of events.jsonl or of a check's JSON."""
    import json

    write_stdout(json.dumps(SCHEMAS[file](), indent=2) + "\n")


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
    from mingle_hooks.joining import fresh_key

    write_stdout(fresh_key() + "\n")
