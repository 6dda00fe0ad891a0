"""The caller's environment, where a scheduler hands on nothing: from a private file, or from standard input."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from mingle_hooks.errors import UsageError
from mingle_hooks.files import UnfitError, contents
from mingle_hooks.program import argv_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.supervise.node.options import Options

MOST_BYTES = 16 * 1024 * 1024
_STDIN = 0


def become(program: str, options: Options) -> None:
    """Become the same program with that environment, which the kernel then shows as its own: a sweep finds it by that.

    Raises UsageError where the file is not this user's alone.
    """
    environ = merged(os.environ, _read(options), options.keep)
    argv = [*argv_of(program), *options.words()]
    os.execve(argv[0], argv, environ)  # noqa: S606 - ourselves


def merged(own: Mapping[str, str], data: bytes, keep: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of a file; of those with one of these prefixes this host's own, where it has them."""
    pairs = (entry.partition("=") for entry in os.fsdecode(data).split("\0"))
    given = {name: value for name, equals, value in pairs if name and equals}
    return {**given, **{name: value for name, value in own.items() if name.startswith(keep)}}


def _read(options: Options) -> bytes:
    if options.is_stdin:
        with open(_STDIN, "rb", closefd=False) as file:
            return file.read(MOST_BYTES)
    private = stat.S_IRWXG | stat.S_IRWXO
    try:
        return contents(options.environ, most_bytes=MOST_BYTES, refused_mode=private, owners=(os.getuid(),))
    except UnfitError as wrong:
        raise UsageError(wrong.expected, wrong.seen, wrong.remedy) from None
    except OSError as wrong:
        raise UsageError("the run's environment", f"{options.environ}: {wrong.strerror}", "mingle run again") from None
