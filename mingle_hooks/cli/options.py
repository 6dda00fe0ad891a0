"""The options of `mingle env` and `mingle exec`, made from the one table of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mingle_hooks import values
from mingle_hooks.settings import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option for each setting that has one."""
    for setting in reversed(TABLE):
        if setting.option:
            flag = {"is_flag": True, "default": None} if setting.read is values.switch else {"metavar": "VALUE"}
            command = click.option(setting.option, setting.name, help=setting.help.capitalize() + ".", **flag)(command)  # type: ignore[arg-type]
    command = click.option("--explain", is_flag=True, help="Tell on stderr where each value comes from.")(command)
    return click.option("--no-wait", is_flag=True, help="Ask nobody: print what the scheduler alone can tell.")(command)
