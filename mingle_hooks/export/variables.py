"""From a world to variables, with their sources and those of an earlier mingle, and to text for a shell."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.frameworks import FRAMEWORKS, Framework, framework, plugin_variables
from mingle_hooks.net.addresses import interface_of
from mingle_hooks.rendezvous.messages import File, View
from mingle_hooks.schedulers import slurm
from mingle_hooks.settings import left_behind
from mingle_hooks.values import nearest

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.member import MemberSpec


# The marks that mingle always exports. MINGLE_ID alone is no mark: it is also the user's setting.
MARKS = ("MINGLE_ID", "MINGLE_WORLD", "MINGLE_RANK_OFFSET", "MINGLE_EXPORTS")
NODE = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
TASK = ("RANK", "LOCAL_RANK", "GROUP_RANK")
# All names that mingle can export without plugins, in order.
KNOWN = tuple(dict.fromkeys([*NODE, *TASK, *MARKS, *(n for f in FRAMEWORKS.values() for n in f.names)]))

USER = "the environment"
# Variables of the scheduler, which a framework may replace.
SCHEDULERS = ("SLURM_JOB_NAME",)


class Variable(NamedTuple):
    """One variable to export; `lost` is the value that was replaced or not used, and why."""

    name: str
    value: str
    source: str
    lost: str = ""


def files(view: View, names: Iterable[str]) -> tuple[File, ...]:
    """Return the files of these frameworks, each once. Raises UsageError for an unknown name."""
    return tuple({file.name: file for name in names for file in _files(framework(name), view)}.values())


def _files(row: Framework, view: View) -> tuple[File, ...]:
    return row.files(view) if row.files is not None else ()


def variables(view: View, names: Iterable[str], paths: Mapping[str, str] | None = None) -> tuple[Variable, ...]:
    """Return all variables in order: the world's, the frameworks', and MINGLE_EXPORTS.

    `paths` maps the names of `files(view, names)` to the paths that the caller wrote. Unknown values, None in the
    Assignment, are left out. Raises UsageError for an unknown framework, or two that contradict each other.
    """
    names = tuple(dict.fromkeys(names))
    found = [_shared(view, name, value) for name, value in _world(view).items() if value is not None]
    wanted = _settings(view, names, paths)
    found += [_wanted(view, name, value, source) for name, (value, source) in wanted.items()]
    found += [_bound(view, name, value) for name, value in view.gpu_variables.items()]
    mine = [v.name for v in found if view.user_environ.get(v.name) != v.value and v.name not in view.gpu_variables]
    return (*found, Variable("MINGLE_EXPORTS", " ".join([*mine, "MINGLE_EXPORTS"]), "mingle"))


def earlier(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in `environ` that an earlier mingle, or enroot's PyTorch hook, exported, in order."""
    left = {*_of_mingle(environ), *slurm.of_enroot(environ)}
    return tuple(name for name in _known() if name in left)


def _known() -> tuple[str, ...]:
    """Return all names that mingle can export, with those of loaded plugins."""
    return (*KNOWN, *plugin_variables())


def _of_mingle(environ: Mapping[str, str]) -> set[str]:
    """Return the names that an earlier mingle exported.

    MINGLE_ID beside MINGLE_EXPORTS or MINGLE_WORLD marks an earlier mingle. MINGLE_EXPORTS lists the names; without it
    they are all that mingle can export. Unknown names are never returned.
    """
    is_listed = "MINGLE_EXPORTS" in environ
    if "MINGLE_ID" not in environ or not (is_listed or "MINGLE_WORLD" in environ):
        return set()
    left = {*left_behind(environ), *MARKS[1:]} if is_listed else set(_known())
    return left & environ.keys()


def own(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment: `environ` without what an earlier mingle exported."""
    left = set(earlier(environ))
    return {name: value for name, value in environ.items() if name not in left}


def stale(environ: Mapping[str, str], exported: Iterable[str]) -> tuple[str, ...]:
    """Return the names to unset: those that an earlier mingle exported and this one does not."""
    new_names = set(exported)
    return tuple(name for name in earlier(environ) if name not in new_names)


def leftovers(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names to unset after a failure: those of the world and of an earlier mingle, not the user's."""
    left, user_environ = set(earlier(environ)), own(environ)
    return tuple(n for n in _known() if n in left or (n in (*NODE, *TASK, *MARKS) and not user_environ.get(n)))


def _world(view: View) -> dict[str, str | None]:
    world, place = view.world, view.place
    found: dict[str, object] = {
        "MASTER_ADDR": world.master_addr,
        "MASTER_PORT": world.master_port,
        "NODE_RANK": place.node_rank,
        "NNODES": world.nodes,
        "LOCAL_WORLD_SIZE": place.slots,
        "WORLD_SIZE": world.size,
    }
    if view.scope == "task" or place.local_rank is not None:
        found |= {"RANK": place.rank, "LOCAL_RANK": place.local_rank, "GROUP_RANK": place.node_rank}
    found |= {"MINGLE_ID": world.id, "MINGLE_WORLD": world.digest, "MINGLE_RANK_OFFSET": place.rank_offset}
    return {name: None if value is None else str(value) for name, value in found.items()}


def _settings(view: View, names: tuple[str, ...], paths: Mapping[str, str] | None) -> dict[str, tuple[str, str]]:
    """Return name -> (value, framework) for all frameworks, with the paths of their files."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        row = framework(name)
        settings = row.settings(view)
        if unknown := settings.keys() - set(row.names):
            expected = f"{name} to set only the variables that it declares"
            raise UsageError(expected, ", ".join(sorted(unknown)), f"--for without {name}")
        for file in _files(row, view):
            settings |= dict.fromkeys(file.variables, (paths or {})[file.name])
        for variable, value in settings.items():
            if variable in view.site:  # an environment variable would override the site's file
                continue
            before, other = found.setdefault(variable, (value, name))
            if before != value:
                seen = f"{before} for {other}, {value} for {name}"
                remedy = f"either --for {other} or --for {name}"
                raise UsageError(f"frameworks that agree on {variable}", seen, remedy)
    return found


def _shared(view: View, name: str, value: str) -> Variable:
    """Return a variable of the world, with the user's value if it differs."""
    user_value = view.user_environ.get(name)
    if user_value == value:
        return Variable(name, value, USER)
    lost = f"{printable(user_value)} in {USER}: all members share one world" if user_value else ""
    return Variable(name, value, "the world", lost)


def _bound(view: View, name: str, value: str) -> Variable:
    """Return a scheduler's variable that --bind changes for this task; MINGLE_EXPORTS does not list it."""
    return Variable(name, value, "--bind", f"{printable(view.user_environ.get(name, ''))}, for this task only")


def _wanted(view: View, name: str, value: str, source: str) -> Variable:
    """Return a framework's variable; the user's value wins unless it is empty."""
    user_value = view.user_environ.get(name)
    if name in SCHEDULERS and user_value and user_value != value:
        return Variable(name, value, source, f"{printable(user_value)} from the scheduler")
    if not user_value:
        return Variable(name, value, source)
    lost = "" if user_value == value else f"{printable(value)} for {source}: your own value is kept"
    return Variable(name, user_value, USER, lost)


# `--explain`: every variable, its value, its source and what it replaced; then notes on how the world formed.

# Longer values, such as TF_CONFIG, would push the other columns off the terminal.
LONGEST_VALUE = 60  # characters
_HEAD = ("NAME", "VALUE", "SOURCE", "IGNORED")


def explain(
    host: str, found: Sequence[Variable], sources: Mapping[str, str], environ: Mapping[str, str], notes: Sequence[str]
) -> str:
    """Return an aligned table and the notes below it; each line begins with the host, for a job's log.

    `sources` are those of the world's variables, by name; `environ` is the environment of this process.
    """
    rows = [_HEAD]
    left = dict(_replaced(environ))
    for name, value, source, lost in found:
        shown = sources.get(name, source) if source == "the world" else source
        replaced = left.pop(name, "")
        rows.append((name, value, shown, lost or replaced))
    rows += [(name, "", "unset", lost) for name, lost in left.items()]
    cells = [
        (name, printable(value, LONGEST_VALUE), printable(source), printable(lost))
        for name, value, source, lost in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[3]]).rstrip() for row in cells]
    return "".join(f"{host}: {line}\n" for line in [*lines, *map(printable, notes)])


def left_to_nccl(view: View) -> list[str]:
    """Return notes on NCCL settings that the site's or the user's files have, and that are not exported."""
    wanted = {name for row in map(framework, view.frameworks) for name in row.names}
    return [
        f"{name}={setting.value} is set in {setting.source}; mingle exports none, as a variable would override it"
        for name, setting in view.site.items()
        if name in wanted
    ]


def explain_sources(spec: MemberSpec, view: View) -> dict[str, str]:
    """Return the source of each variable of the world: an option, a variable, a count."""
    settings, facts, address = spec.settings, spec.facts, view.place.address
    slots = {"--slots": settings.source("slots"), "gpus": "GPUs seen", "default": "the default"}
    slots["tasks"] = facts.sources.get("local_count", facts.scheduler)
    slots["cpus"] = facts.sources.get("cpus", facts.scheduler)
    by_rank_0 = "rank 0"
    if view.world.nodes != 1 and address is not None:
        by_rank_0 = f"rank 0, reached from {address} ({interface_of(address)})"
    return {
        "MASTER_ADDR": by_rank_0,
        "MASTER_PORT": "rank 0",
        "NODE_RANK": _by_order(spec) if spec.rank is not None else "election, then host names",
        "NNODES": spec.nodes_source,
        "LOCAL_WORLD_SIZE": slots.get(spec.slots_from, spec.slots_from),
        "WORLD_SIZE": f"sum over {view.world.nodes} member{'s' if view.world.nodes != 1 else ''}",
        "RANK": facts.sources.get("task_rank", "MINGLE_RANK_OFFSET and LOCAL_RANK"),
        "LOCAL_RANK": facts.sources.get("local_rank", facts.scheduler),
        "GROUP_RANK": "NODE_RANK",
        "MINGLE_ID": settings.source("id") if settings.id else facts.sources.get("job_id", facts.scheduler),
        "MINGLE_WORLD": "the whole world",
        "MINGLE_RANK_OFFSET": "sum over lower ranks",
    }


def _by_order(spec: MemberSpec) -> str:
    if spec.settings.order == "scheduler" or spec.nodes == 1:
        return spec.rank_source
    return f"{spec.settings.source('order')} {spec.settings.order}; {spec.rank_source} says {spec.rank}"


def _replaced(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each name that an earlier mingle or a hook exported, and a note on its replaced value."""
    of_hook = slurm.of_enroot(environ)
    for name in earlier(environ):
        source = "enroot's PyTorch hook" if name in of_hook else "an earlier mingle"
        yield name, f"{environ[name]} from {source}: replaced"


# The shells: how each exports a world and how it fails, one row in SHELLS and two functions for each.
#
# Every value is checked before it reaches a shell. Every text is one block that takes effect as a whole or not at all,
# and its `eval` succeeds only if there is a world.


class Shell(NamedTuple):
    """How a language exports and fails; other shells than sh have their `programs`, and the `line` to eval.

    `failure` takes the exit code, the names to unset, and whether it ends a shell that is not interactive. Formats that
    programs read have none: they have the exit status. Another shell ignores errors in text for sh, and
    would go on and train alone: see check_reader().
    """

    success: Callable[..., str]
    failure: Callable[..., str] = lambda *_, **_ends: ""
    programs: tuple[str, ...] = ()
    line: str = ""


# dash, bash, ash, mksh, ksh93 and zsh: `eval "$(mingle env)"`.
#
# `unset` comes first, joined by `&&`, because of `readonly MASTER_ADDR` in the user's shell: it fails, so no shell has
# a partial world, and what follows `||` ends the script, as dash and ash do by themselves. It has an `eval` of its own,
# as zsh skips the rest of an eval with such an error. It also removes attributes such as `typeset -i`, with which an
# assignment would be evaluated as arithmetic.


def quote(value: str) -> str:
    """Return `value` as one quoted word."""
    return "'" + value.replace("'", "'\\''") + "'"


def _sh(variables: Mapping[str, str], unset: Sequence[str], *, ends: bool) -> str:
    """Return one `unset`, followed by one `export` a line, with their whole effect or none."""
    names = " ".join([*unset, *variables])
    exports = "".join(f"export {name}={quote(value)};\n" for name, value in variables.items())
    if not exports:
        return f"unset {names};\n" if names else ":;\n"
    return f"eval unset {names} && {{\n{exports}}} || {_sh_failure(1, (), ends=ends)}"


def _sh_failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return commands of which the last ends with `code`, which `eval` returns and `set -e` notices.

    With `ends` it ends a shell that is not interactive.
    """
    fails = f"case $- in *i*) (exit {code});; *) exit {code};; esac" if ends else f"(exit {code})"
    return (f"eval unset {' '.join(unset)}; " if unset else "") + f"{fails};\n"


# tcsh and csh: ``eval "`mingle env --shell csh`"``.
# Each line of a quoted command substitution is one word, and csh has "Word too long." at 4,096 bytes.
LONGEST_CSH_LINE_BYTES = 4_000


def _csh(variables: Mapping[str, str], unset: Sequence[str], **_ends: bool) -> str:
    """Return one statement a line; a newline or more than about 4,000 bytes in a value raise UsageError."""
    return "".join([*(f"unsetenv {name};\n" for name in unset), *(_setenv(*row) for row in variables.items())])


def _csh_failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return statements of which the last sets $status; csh cannot exit a subshell.

    With `ends` a shell without a prompt becomes a program that fails: in a sourced script `exit` would only end that.
    """
    ending = f"if ( ! $?prompt ) exec sh -c 'exit {code}';\n" if ends else ""
    return f"{_csh({}, unset)}{ending}sh -c 'exit {code}';\n"


def _setenv(name: str, value: str) -> str:
    # Lines become words, and eval joins words with spaces.
    if "\n" in value:
        raise UsageError(f"{name} without a newline, which csh cannot represent", value, "--shell sh, or mingle exec")
    word = quote(value).replace("!", "\\!")  # it recalls history even inside single quotes
    line = f"setenv {name} {word};"
    size = len(os.fsencode(line))
    if size > LONGEST_CSH_LINE_BYTES:
        expected = f"{name} in a line of at most {LONGEST_CSH_LINE_BYTES} bytes, csh's limit"
        raise UsageError(expected, f"{size} bytes", "--shell sh, or mingle exec")
    return f"{line}\n"


# fish: `mingle env --shell fish | source`.
def _quote_fish(value: str) -> str:
    """Return `value` as one word; inside single quotes only backslash and quote are special."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish(variables: Mapping[str, str], unset: Sequence[str], **_ends: bool) -> str:
    """Return one statement a line, in the global scope: a universal variable would outlive the session.

    A function's own variable, which would hide it, goes first.
    """
    names = " ".join(variables)
    lines = [f"set -gx {name} {_quote_fish(value)};\n" for name, value in variables.items()]
    return "".join([_erase(unset), f"set -el {names};\n" if names else "", *lines, "true;\n"])


def _fish_failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return statements of which the last sets $status.

    With `ends` a shell that is not interactive becomes a program that fails: `exit` would only end `source`.
    """
    ending = f"status is-interactive; or exec sh -c 'exit {code}';\n" if ends else ""
    return f"{_erase(unset)}{ending}sh -c 'exit {code}';\n"


def _erase(names: Sequence[str]) -> str:
    return "".join(f"set -eg {name};\n" for name in names)


# One JSON object of strings, for programs; null means to unset the variable.
def _json(variables: Mapping[str, str], unset: Sequence[str], **_ends: bool) -> str:
    """Return one line of pure ASCII."""
    return json.dumps({**dict.fromkeys(unset), **variables}) + "\n"


# NAME=value lines that docker --env-file, python-dotenv and systemd's EnvironmentFile read alike.
#
# They agree on bare values only: docker keeps quotes, python-dotenv removes them and expands `${…}`, systemd unescapes
# backslashes. So nothing is quoted, and a value that they read differently is refused.
# Spaces at the ends are trimmed by some, quotes matter where a value begins, and # begins a comment for some.
_DISPUTED = re.compile(r"""^["'`\s]|[#$\\]|\s$""")


def _dotenv(variables: Mapping[str, str], unset: Sequence[str], **_ends: bool) -> str:
    """Return the lines. Raises UsageError for a value that readers would parse differently."""
    for name, value in variables.items():
        if _DISPUTED.search(value) or not value.isprintable():
            raise UsageError(f"{name} with a value that all readers of dotenv files parse alike", value, "--shell json")
    return "".join(f"{name}={value}\n" for name, value in variables.items())


# Lines that slurmstepd takes from a TaskProlog's stdout (src/slurmd/slurmstepd/task.c).
def _taskprolog(variables: Mapping[str, str], unset: Sequence[str], **_ends: bool) -> str:
    """Return raw lines: a quote would become part of the value; a newline raises UsageError."""
    for name, value in variables.items():
        if "\n" in value:
            raise UsageError(f"{name} without a newline, which would end the value for Slurm", value, "mingle exec")
    lines = [f"export {name}={value}\n" for name, value in variables.items()]
    return "".join([*(f"unset {name}\n" for name in unset), *lines])


_SH = Shell(_sh, _sh_failure)
_CSH = 'eval "`mingle env --shell csh`"'
# --shell -> shell.
SHELLS = {
    **dict.fromkeys(("sh", "dash", "bash", "ash", "mksh", "ksh", "zsh"), _SH),
    "csh": Shell(_csh, _csh_failure, ("csh", "tcsh", "bsd-csh"), _CSH),
    "tcsh": Shell(_csh, _csh_failure),
    "fish": Shell(_fish, _fish_failure, ("fish",), "mingle env --shell fish | source"),
    "json": Shell(_json),
    "dotenv": Shell(_dotenv),
    "taskprolog": Shell(_taskprolog),
}

# The kernel starts no program with a longer `NAME=value` and its NUL (MAX_ARG_STRLEN, 32 pages of 4 KiB).
LONGEST_STRING_BYTES = 131_072


def success(shell: str, variables: Mapping[str, str], unset: Sequence[str] = (), *, ends: bool = True) -> str:
    """Return the text that exports all `variables` and unsets the names in `unset`.

    With `ends` it ends a shell that is not interactive where one of them is readonly.
    Raises UsageError for a value that this shell or the kernel cannot represent.
    Write it as `os.fsencode(text)`: a value may hold bytes of the environment that are not UTF-8.
    """
    unset = [name for name in unset if name not in variables]
    check({**dict.fromkeys(unset, ""), **variables})
    return shell_named(shell).success(variables, unset, ends=ends)


def failure(shell: str, code: int, unset: Sequence[str] = (), *, ends: bool = True) -> str:
    """Return the text that unsets `unset` and makes `eval` fail with `code`, 1 to 255.

    With `ends` it ends a shell that is not interactive, as a script would go on and train alone. It is empty for json,
    dotenv and taskprolog, whose readers have the exit status of mingle.
    Raises UsageError for a shell that is not known.
    """
    check(dict.fromkeys(unset, ""))
    return shell_named(shell).failure(code, unset, ends=ends)


def reader() -> str | None:
    """Return the language, if not sh, of the shell that evals the output: the parent process, if stdout is a pipe."""
    try:
        if not stat.S_ISFIFO(os.fstat(1).st_mode):
            return None
        program = os.readlink(f"/proc/{os.getppid()}/exe")  # /proc/PID/comm would be a script's name
    except OSError:  # such as another user's process
        return None
    name = program.rpartition("/")[2]
    return next((shell for shell, row in SHELLS.items() if name in row.programs), None)


def check_reader() -> None:
    """Raise UsageError if a shell that is not sh evals the output; called without --shell."""
    if (shell := reader()) is not None:
        raise UsageError(f"--shell {shell}, because {shell} evaluates the output", "none", SHELLS[shell].line)


def shell_named(shell: str) -> Shell:
    """Return a shell. Raises UsageError, with the nearest known name, if it is unknown."""
    if shell not in SHELLS:
        raise UsageError(f"a shell: {', '.join(SHELLS)}", shell, f"--shell {nearest(shell, SHELLS)}")
    return SHELLS[shell]


def check(variables: Mapping[str, str]) -> None:
    """Raise UsageError for a name that is none, or a value that no program can be started with."""
    for name, value in variables.items():
        if not (name.isascii() and name.isidentifier()):
            raise UsageError("a variable name of letters, digits and _", name, "another name")
        if "\0" in value:
            raise UsageError(f"{name} without a NUL", value, "another value")
        size = len(os.fsencode(f"{name}={value}\0"))
        if size > LONGEST_STRING_BYTES:
            expected = f"{name} of at most {LONGEST_STRING_BYTES} bytes, the kernel's limit"
            remedy = "a framework that reads the roster from a file (--for deepspeed or mpi)"
            raise UsageError(expected, f"{size} bytes", remedy)
