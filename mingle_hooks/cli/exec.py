"""`mingle exec`: set the variables, then become COMMAND."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import click

from mingle_hooks.cli.answer import answer
from mingle_hooks.cli.options import settings_options
from mingle_hooks.errors import printable
from mingle_hooks.export.variables import stale

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as every shell says


@click.command(name="exec", context_settings={"ignore_unknown_options": False})
@settings_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec(*, explain: bool, no_wait: bool, command: tuple[str, ...], **options: Any) -> None:  # noqa: A001, ANN401
    """Set the variables, then become COMMAND, for places without a shell.

    \b
    srun mingle exec --for torchrun -- torchrun train.py
    """
    found, _ = answer(options, explain=explain, no_wait=no_wait)
    environ = {name: value for name, value in os.environ.items() if name not in stale(os.environ, found)}
    # Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so in COMMAND.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, {**environ, **found})  # noqa: S606 - the user's own command
    except OSError as error:
        print(f"mingle: expected a command; saw {printable(command[0])}: {error.strerror}; try its full path", file=sys.stderr)  # noqa: T201
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
