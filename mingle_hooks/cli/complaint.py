"""click's complaints in our words: what was expected, what stands there, what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mingle_hooks.errors import UsageError
from mingle_hooks.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Container


def complaint(error: click.ClickException, arguments: list[str], commands: Container[str]) -> UsageError:
    """Return what click says of the arguments of `mingle`, as our one line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    words = ["mingle", *(word for word in arguments[:1] if word in commands)]
    where = context.command_path if context else " ".join(words)
    if isinstance(error, click.NoSuchOption):
        known = error.possibilities or ()
        near = nearest(error.option_name, known) if known else f"`{where} --help`"
        return UsageError(f"an option of `{where}`", error.option_name, near)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _argument(error, error.param, where)
    said = error.format_message().removeprefix("Got ").rstrip(".")
    if isinstance(error, click.BadOptionUsage):
        said = said.replace(f"Option {error.option_name!r} ", f"{error.option_name}, which ")
    return UsageError(f"options of `{where}`", said, f"`{where} --help`")


def _argument(error: click.BadParameter, param: click.Parameter, where: str) -> UsageError:
    choices = [str(choice) for choice in param.type.choices] if isinstance(param.type, click.Choice) else []
    expected = f"one of {', '.join(choices)}" if choices else f"{param.human_readable_name} after `{where}`"
    if isinstance(error, click.MissingParameter):
        return UsageError(expected, "none", f"`{where} {choices[0]}`" if choices else f"`{where} --help`")
    seen = error.message.partition(" is not one of ")[0].strip("'")
    return UsageError(expected, seen, f"`{where} {nearest(seen, choices)}`" if choices else f"`{where} --help`")
