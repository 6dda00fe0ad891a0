"""The options of `mingle env` and `mingle exec` for click, made from the one table of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mingle_hooks.cli.help import SETTINGS, Option
from mingle_hooks.cli.plain import FLAGS
from mingle_hooks.settings import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# Flags that are no settings, as they belong to one call -> what each does.
CALL_FLAGS = {
    "no_wait": "Print what the scheduler's variables say, without contacting the other members.",
    "together": "Stay, and end COMMAND on all nodes if it fails on one, as `mingle run` does.",
    "verbatim": "Do not add options to the command line of launchers.",
    "keep_key": "Keep MINGLE_KEY in COMMAND's environment, for a mingle that COMMAND starts.",
    "no_strict": "Form a world even if nodes differ, whatever the settings say.",
    "explain": "Print the source of each value to stderr.",
}


def settings_options(
    command: Callable[..., Any],
    hidden: Collection[str] = (),
    without: Collection[str] = (),
    only: Collection[str] = tuple(SETTINGS),
) -> Callable[..., Any]:
    """Give a command one option for each setting that has one, in the order of the groups.

    Some are `hidden` from its help, some it does not take at all; or it takes `only` these.
    """
    options = {setting.name: setting.option for setting in TABLE if setting.option}
    texts = {setting.name: setting.help[0].upper() + setting.help[1:] + "." for setting in TABLE}
    options |= {name: option for option, name in FLAGS.items()}
    for name in sorted(options.keys() & set(only) - set(without), key=[*SETTINGS].index, reverse=True):
        kind: dict[str, Any] = {"is_flag": True, "default": None} if options[name] in FLAGS else {}
        if name in CALL_FLAGS:
            kind["default"] = False
        text = (texts | CALL_FLAGS)[name]
        command = click.option(
            options[name], name, cls=Option, shown=SETTINGS[name], help=text, hidden=name in hidden, **kind
        )(command)
    return command
