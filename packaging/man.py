"""Manual pages, made from what the commands say of themselves in --help: `make man`.

One page for each command of mingle, in the man macros that groff and mandoc both know.
"""

from __future__ import annotations

import inspect
import re
import sys

import click

from mingle_hooks import errors
from mingle_hooks.cli.commands import SETTINGS, Grouped, grouped, mingle
from mingle_hooks.settings import SYSTEM_FILE, TABLE

_CALLS = (
    "env",
    "exec",
    "run",
)  # what runs on every node: the settings, their files and the exit status belong to these
_SIGNALS = ((130, "Stopped by Ctrl-C."), (143, "Stopped by SIGTERM."))
_RUN_CODES = ((75, "A host or the network failed, or the time limit was reached: try again."),)
_EXEC_CODES = ((126, "COMMAND cannot be run."), (127, "COMMAND does not exist."))
_FILES = (
    (SYSTEM_FILE, "The site's settings; user settings, MINGLE_* variables and options override them, in this order."),
    ("~/.config/mingle/mingle.toml", "A user's settings."),
    ("~/.config/mingle/key", "The key of all members if no other is given; readable by its owner only."),
)


def pages() -> dict[str, str]:
    """Return file name -> page, for mingle and each of its commands."""
    top = click.Context(mingle, info_name="mingle")
    found = {"mingle.1": _page(mingle, top)}
    for name in mingle.list_commands(top):
        command = mingle.get_command(top, name)
        if command is not None:
            found[f"mingle-{name}.1"] = _page(command, click.Context(command, info_name=name, parent=top))
    return found


def escaped(text: str) -> str:
    """Return text that roff takes as it is: no request, no escape, and a hyphen that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def _page(command: click.Command, context: click.Context) -> str:
    path = context.command_path
    title = path.replace(" ", "-")
    lines = [
        '.\\" Made from the help of the commands: make man.',
        f'.TH {escaped(title.upper())} 1 "" mingle\\-hooks "User Commands"',
        ".SH NAME",
        f"{escaped(title)} \\- {escaped(command.get_short_help_str(limit=1000).rstrip('.'))}",
        ".SH SYNOPSIS",
        _usage(command, context),
    ]
    lines += [".SH DESCRIPTION", *_text(command)]
    lines += _examples(command, ".SH EXAMPLES")
    if rows := _options(command, context):
        lines.append(".SH OPTIONS")
        for group, options in rows:
            lines += [*([f".SS {escaped(group)}"] if group != "Options" else []), *options]
    if isinstance(command, click.Group):
        lines += _below(command, context)
    if context.info_name in _CALLS:
        lines += _settings()
    if context.info_name in (*_CALLS, "mingle"):
        lines += _codes(context.info_name or "")
    return "\n".join([*lines, *_see_also(context)]) + "\n"


def _usage(command: click.Command, context: click.Context) -> str:
    pieces = command.collect_usage_pieces(context)
    return f'.B "{escaped(context.command_path)}"\n{escaped(" ".join(pieces))}'


def _text(command: click.Command) -> list[str]:
    """Return a command's help: paragraphs, and those that begin with \\b as they stand."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            lines += _as_it_stands(paragraph.removeprefix("\b\n"))
        else:
            lines += [".PP", escaped(" ".join(paragraph.split()))]
    return lines


def _as_it_stands(text: str) -> list[str]:
    return [".PP", ".nf", *(escaped(line) for line in text.splitlines()), ".fi"]


def _examples(command: click.Command, heading: str) -> list[str]:
    if not isinstance(command, Grouped) or not command.examples:
        return []
    return [heading, *_as_it_stands(command.examples)]


def _options(command: click.Command, context: click.Context) -> list[tuple[str, list[str]]]:
    """Return heading -> lines; what every command has, --help, is left out."""
    found = []
    for group, options in grouped(command, context):
        rows = [_item(_names(option), option.help or "") for option in options if "--help" not in option.opts]
        if rows:
            found.append((group, [line for row in rows for line in row]))
    return found


def _names(option: click.Option) -> str:
    names = ", ".join(option.opts)
    return names if option.is_flag or not option.metavar else f"{names} {option.metavar}"


def _item(name: str, text: str) -> list[str]:
    quoted = escaped(name).replace('"', '""')
    return [".TP", f'.B "{quoted}"', escaped(" ".join(text.split()))]


def _below(command: click.Group, context: click.Context) -> list[str]:
    """Return the commands of a group: of mingle itself each with its page, of others each with its options."""
    lines = [".SH COMMANDS"]
    same: dict[str, str] = {}
    for name in command.list_commands(context):
        its = command.get_command(context, name)
        if its is None:
            continue
        below = click.Context(its, info_name=name, parent=context)
        if context.parent is None:
            lines += _item(f"{below.command_path}", its.get_short_help_str(limit=1000))
            continue
        lines += [f'.SS "{escaped(below.command_path)} {escaped(" ".join(its.collect_usage_pieces(below)))}"']
        lines += _text(its)
        options = [line for _, rows in _options(its, below) for line in rows]
        if options and (text := "\n".join(options)) in same:
            lines += [".PP", escaped(f"Its options are those of {same[text]}.")]
        else:
            same["\n".join(options)] = below.command_path
            lines += options
    return lines


def _settings() -> list[str]:
    lines = [".SH ENVIRONMENT", ".PD 0"]
    for setting in TABLE:
        if setting.variable:
            told = (
                f"As {setting.option}."
                if setting.name in SETTINGS
                else setting.help[0].upper() + setting.help[1:] + "."
            )
            lines += _item(setting.variable, told)
    lines += _item("MINGLE_KEY", "The key of all members; `mingle key` makes one.")
    lines += [".PD", ".SH FILES"]
    for path, told in _FILES:
        lines += _item(path, told)
    return lines


def _codes(command: str) -> list[str]:
    told = {kind.exit_code: (kind.__doc__ or "").splitlines()[0] for kind in errors.MingleError.__subclasses__()}
    told |= {70: "A bug: please report it.", **dict(_SIGNALS)}
    told |= dict(_EXEC_CODES) if command in ("exec", "run") else {}
    told |= dict(_RUN_CODES) if command == "run" else {}
    rows = [_item(str(code), text) for code, text in sorted(told.items())]
    return [".SH EXIT STATUS", ".PD 0", *(line for row in rows for line in row), ".PD"]


def _see_also(context: click.Context) -> list[str]:
    others = [name for name in mingle.list_commands(context) if name != context.info_name]
    titles = [*([] if context.parent is None else ["mingle"]), *(f"mingle-{name}" for name in others)]
    return [".SH SEE ALSO", ",\n".join(f".BR {escaped(title)} (1)" for title in titles)]


def main(directory: str) -> None:
    """Write all pages into a directory."""
    for name, text in pages().items():
        with open(f"{directory}/{name}", "w", encoding="ascii") as file:
            file.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
