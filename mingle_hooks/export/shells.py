"""The shells: how each exports a world and how it fails, one row in SHELLS and two functions for each.

Every value is checked before it reaches a shell. Every text is one block that takes effect as a whole or not at all,
and its `eval` succeeds only if there is a world.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.values import nearest


def _only_status(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return no text, for formats that programs read: they have the exit status."""
    return ""


class Shell(NamedTuple):
    """How a language exports and fails; other shells than sh have their `programs`, and the `line` to eval.

    `failure` takes the exit code, the names to unset, and whether it ends a shell that is not interactive.
    Such a shell ignores errors in text for sh, and would go on and train alone: see check_reader().
    """

    success: Callable[[Mapping[str, str], Sequence[str]], str]
    failure: Callable[..., str] = _only_status
    programs: tuple[str, ...] = ()
    line: str = ""


# dash, bash, ash, mksh, ksh93 and zsh: `eval "$(mingle env)"`.
#
# `unset` comes first, joined by `&&`, because of `readonly MASTER_ADDR` in the user's shell: dash and ash then end the
# script, and bash, mksh, ksh93 and zsh export nothing and return 1, so no shell has a partial world. It also removes
# attributes such as `typeset -i`, with which an assignment would be evaluated as arithmetic.


def quote(value: str) -> str:
    """Return `value` as one quoted word."""
    return "'" + value.replace("'", "'\\''") + "'"


def _sh(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return one `unset`, followed by one `export` a line, with their whole effect or none."""
    names = " ".join([*unset, *variables])
    exports = "".join(f"export {name}={quote(value)};\n" for name, value in variables.items())
    if not names:
        return ":;\n"
    return f"unset {names} && {{\n{exports}}};\n" if exports else f"unset {names};\n"


def _sh_failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return commands of which the last ends with `code`, which `eval` returns and `set -e` notices.

    With `ends` it ends a shell that is not interactive.
    """
    fails = f"case $- in *i*) (exit {code});; *) exit {code};; esac" if ends else f"(exit {code})"
    return (f"unset {' '.join(unset)}; " if unset else "") + f"{fails};\n"


# tcsh and csh: ``eval "`mingle env --shell csh`"``.
# Each line of a quoted command substitution is one word, and csh has "Word too long." at 4,096 bytes.
LONGEST_CSH_LINE_BYTES = 4_000


def _csh(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return one statement a line; a newline or more than about 4,000 bytes in a value raise UsageError."""
    lines = [*(f"unsetenv {name};" for name in unset), *(_setenv(*row) for row in variables.items())]
    return "\n".join(lines) + "\n"


def _csh_failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return statements of which the last sets $status; csh cannot exit a subshell.

    With `ends` the one before it ends a shell without a prompt.
    """
    lines = [f"unsetenv {name};" for name in unset]
    lines += [f"if ( ! $?prompt ) exit {code};"] if ends else []
    return "\n".join([*lines, f"sh -c 'exit {code}';"]) + "\n"


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
    return line


# fish: `mingle env --shell fish | source`.
def _quote_fish(value: str) -> str:
    """Return `value` as one word; inside single quotes only backslash and quote are special."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return one statement a line, in the global scope: a universal variable would outlive the session."""
    lines = [_erase(name) for name in unset]
    lines += [f"set -gx {name} {_quote_fish(value)};" for name, value in variables.items()]
    return "\n".join([*lines, "true;"]) + "\n"


def _fish_failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return statements of which the last sets $status.

    With `ends` a shell that is not interactive becomes a program that fails: `exit` would only end `source`.
    """
    lines = [_erase(name) for name in unset]
    lines += [f"status is-interactive; or exec sh -c 'exit {code}';"] if ends else []
    return "\n".join([*lines, f"sh -c 'exit {code}';"]) + "\n"


def _erase(name: str) -> str:
    return f"set -eg {name};"


# One JSON object of strings, for programs; null means to unset the variable.
def _json(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return one line of pure ASCII."""
    return json.dumps({**dict.fromkeys(unset), **variables}) + "\n"


# NAME=value lines that docker --env-file, python-dotenv and systemd's EnvironmentFile read alike.
#
# They agree on bare values only: docker keeps quotes, python-dotenv removes them and expands `${…}`, systemd unescapes
# backslashes. So nothing is quoted, and a value that they read differently is refused.
# Spaces at the ends are trimmed by some, quotes matter where a value begins, and # begins a comment for some.
_DISPUTED = re.compile(r"""^["'`\s]|[#$\\]|\s$""")


def _dotenv(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return the lines. Raises UsageError for a value that readers would parse differently."""
    for name, value in variables.items():
        if _DISPUTED.search(value) or not value.isprintable():
            raise UsageError(f"{name} with a value that all readers of dotenv files parse alike", value, "--shell json")
    return "".join(f"{name}={value}\n" for name, value in variables.items())


# Lines that slurmstepd takes from a TaskProlog's stdout (src/slurmd/slurmstepd/task.c).
def _taskprolog(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return raw lines: a quote would become part of the value; a newline raises UsageError."""
    for name, value in variables.items():
        if "\n" in value:
            raise UsageError(f"{name} without a newline, which would end the value for Slurm", value, "mingle exec")
    lines = [f"unset {name}" for name in unset]
    lines += [f"export {name}={value}" for name, value in variables.items()]
    return "".join(f"{line}\n" for line in lines)


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


def success(shell: str, variables: Mapping[str, str], unset: Sequence[str] = ()) -> str:
    """Return the text that exports all `variables` and unsets the names in `unset`.

    Raises UsageError for a value that this shell or the kernel cannot represent.
    Write it as `os.fsencode(text)`: a value may hold bytes of the environment that are not UTF-8.
    """
    for name, value in variables.items():
        _check(name, value)
    for name in unset:
        _check(name, "")
    return find(shell).success(variables, [name for name in unset if name not in variables])


def failure(shell: str, code: int, unset: Sequence[str] = (), *, ends: bool = True) -> str:
    """Return the text that unsets `unset` and makes `eval` fail with `code`, 1 to 255.

    With `ends` it ends a shell that is not interactive, as a script would go on and train alone. It is empty for json,
    dotenv and taskprolog, whose readers have the exit status of mingle.
    Raises UsageError for a shell that is not known.
    """
    for name in unset:
        _check(name, "")
    return find(shell).failure(code, unset, ends=ends)


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


def find(shell: str) -> Shell:
    """Return a shell. Raises UsageError, with the nearest known name, if it is unknown."""
    if shell not in SHELLS:
        raise UsageError(f"a shell: {', '.join(SHELLS)}", shell, f"--shell {nearest(shell, SHELLS)}")
    return SHELLS[shell]


def _check(name: str, value: str) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise UsageError("a variable name of letters, digits and _", name, "another name")
    if "\0" in value:
        raise UsageError(f"{name} without a NUL", value, "another value")
    size = len(os.fsencode(f"{name}={value}\0"))
    if size > LONGEST_STRING_BYTES:
        expected = f"{name} of at most {LONGEST_STRING_BYTES} bytes, the kernel's limit"
        remedy = "a framework that reads the roster from a file (--for deepspeed or mpi)"
        raise UsageError(expected, f"{size} bytes", remedy)
