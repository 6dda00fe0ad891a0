"""The shells: each is one module with `success(variables, unset)` and `failure(code, unset, ends)`.

Only this module is called from outside, so no value reaches a shell unchecked. What must hold of every
text: it is one block, it is whole or not there at all, and `eval` of it says whether there is a world.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.values import nearest


class Shell(NamedTuple):
    """A language's module in this folder; a shell that reads no sh is known by its `programs`, and evals by `line`.

    Such a shell stops at no error of a text in sh, goes on and trains alone, so it is told.
    """

    module: str
    programs: tuple[str, ...] = ()
    line: str = ""


# By what users ask for.
SHELLS = {
    "sh": Shell("sh"),
    "dash": Shell("sh"),
    "bash": Shell("sh"),
    "ash": Shell("sh"),
    "mksh": Shell("sh"),
    "ksh": Shell("sh"),
    "zsh": Shell("sh"),
    "csh": Shell("csh", ("csh", "tcsh", "bsd-csh"), 'eval "`mingle env --shell csh`"'),
    "tcsh": Shell("csh"),
    "fish": Shell("fish", ("fish",), "mingle env --shell fish | source"),
    "json": Shell("json_object"),
    "dotenv": Shell("dotenv"),
    "taskprolog": Shell("taskprolog"),
}

# The kernel starts no program with a longer `NAME=value` and its NUL (MAX_ARG_STRLEN, 32 pages of 4 KiB).
LONGEST_STRING_BYTES = 131_072


def success(shell: str, variables: Mapping[str, str], unset: Sequence[str] = ()) -> str:
    """Return the text that exports all `variables` and unsets the names in `unset`.

    Raises UsageError, before there is any text, for a value that this shell or the kernel cannot carry.
    Write it as `os.fsencode(text)`: a value may hold bytes of the environment that are not UTF-8.
    """
    for name, value in variables.items():
        _check(name, value)
    for name in unset:
        _check(name, "")
    text: str = _module(shell).success(variables, [name for name in unset if name not in variables])
    return text


def failure(shell: str, code: int, unset: Sequence[str] = (), *, ends: bool = True) -> str:
    """Return the text that unsets `unset` and makes `eval` fail with `code`, 1 to 255.

    It `ends` a shell that is not interactive, as a script would go on and train alone. It is empty for json,
    dotenv and taskprolog, where only the exit status of mingle can tell.
    Raises UsageError for a shell that is not known.
    """
    for name in unset:
        _check(name, "")
    text: str = _module(shell).failure(code, unset, ends=ends)
    return text


def check(shell: str) -> None:
    """Raise UsageError for a shell that is not known."""
    _module(shell)


def reader() -> str | None:
    """Return the language, other than sh, of the shell that evals the output: the parent, at the end of a pipe."""
    try:
        if not stat.S_ISFIFO(os.fstat(1).st_mode):
            return None
        program = os.readlink(f"/proc/{os.getppid()}/exe")  # a script's `comm` is its own name
    except OSError:  # of another user, say
        return None
    name = program.rpartition("/")[2]
    return next((shell for shell, row in SHELLS.items() if name in row.programs), None)


def check_reader() -> None:
    """Raise UsageError where a shell that reads no sh evals the output, and nobody has said what it is."""
    if (shell := reader()) is not None:
        raise UsageError(f"--shell {shell}, because {shell} evaluates the output", "none", SHELLS[shell].line)


def _module(shell: str) -> ModuleType:
    if shell not in SHELLS:
        raise UsageError(f"a shell: {', '.join(SHELLS)}", shell, f"--shell {nearest(shell, SHELLS)}")
    return import_module(f"{__name__}.{SHELLS[shell].module}")


def _check(name: str, value: str) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise UsageError("a variable name of letters, digits and _", name, "another name")
    if "\0" in value:
        raise UsageError(f"{name} without a NUL", value, "another value")
    size = len(os.fsencode(f"{name}={value}\0"))
    if size > LONGEST_STRING_BYTES:
        raise UsageError(
            f"{name} of at most {LONGEST_STRING_BYTES} bytes, the kernel's limit",
            f"{size} bytes",
            "a framework that reads the roster from a file (--for deepspeed or mpi)",
        )
