"""The options of `mingle env` and `mingle exec` for click, made from the one table of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mingle_hooks.cli.plain import FLAGS
from mingle_hooks.settings import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option for each setting that has one."""
    for setting in reversed(TABLE):
        if setting.option:
            kind: dict[str, Any] = {"metavar": "VALUE"}
            if setting.option in FLAGS:
                kind = {"is_flag": True, "default": None}
            text = setting.help[0].upper() + setting.help[1:] + "."
            command = click.option(setting.option, setting.name, help=text, **kind)(command)
    command = click.option("--explain", is_flag=True, help="Tell on stderr where each value comes from.")(command)
    return click.option("--no-wait", is_flag=True, help="Ask nobody: print what the scheduler alone can tell.")(command)
