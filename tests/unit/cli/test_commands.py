"""Options in groups, lists of values, and a group of commands: as help shows them and as they are read."""

import re
from functools import partial
from typing import Any

import click
import pytest

from mingle_hooks.cli import commands as cli
from mingle_hooks.cli.commands import Grouped, Shown, own_options
from mingle_hooks.cli.main import run

TABLE = {
    "via": Shown(cli.OUTPUT, "WAY,…", "list", lambda: ("a", "b"), lists=True, help="How."),
    "one": Shown(cli.OUTPUT, "X", values=lambda: ("b", "ba"), default="b", lists=True, help="Which."),
    "place": Shown(cli.WORLD, "DIR", "dir", help="Where."),
    "fast": Shown(cli.WORLD, help="Soon."),
}


def printed(*words: str, **settings: Any) -> str:
    """Return what a command with the options of this table prints."""

    @click.command(name="x", cls=Grouped, examples="one\ntwo", **settings)
    @partial(own_options, table=TABLE, fast={"hidden": True})
    @click.option("--other", is_flag=True, help="Other.")
    def command(**options: Any) -> None:
        click.echo(repr(options))

    context: dict[str, Any] = {"help_option_names": ["-h", "--help"], "terminal_width": 70}
    try:
        with command.make_context("x", list(words), **context) as made:
            command.invoke(made)
    except click.exceptions.Exit:
        return ""
    return ""


BEGIN = "Usage: x [OPTIONS]\n\nExamples:\n  one\n  two\n"
EVERY = """
The world:
  --place DIR  Where.

Output:
  --via WAY,…  How. One or more of a, b.
  --one X      Which. One of b, ba. [default: b]

Options:
  --other     Other.
  -h, --help  Show this message and exit.
"""
COMMON = """
Options:
  --via WAY,…         How.
  --one X             Which. [default: b]
  --other             Other.
  -h, --help [--all]  Show this help, or with --all every option.
"""


@pytest.mark.parametrize(
    ("words", "common", "text"),
    [
        ("--help", "", BEGIN + EVERY),
        ("-h --all", "via one other", BEGIN + EVERY),
        ("--all --help", "via one other", BEGIN + EVERY),
        ("-h", "via one other", BEGIN + COMMON),
        ("--via a", "", "{'via': 'a', 'one': None, 'place': None, 'fast': False, 'other': False}\n"),
        ("--fast --one b", "", "{'fast': True, 'one': 'b', 'via': None, 'place': None, 'other': False}\n"),
    ],
)
def test_help_has_the_usual_options_or_all_in_groups(
    capsys: pytest.CaptureFixture[str], words: str, common: str, text: str
) -> None:
    """What is hidden is read all the same; `--all` is no option without help."""
    printed(*words.split(), common=common.split())
    assert capsys.readouterr().out == text
    with pytest.raises(click.NoSuchOption):
        printed("--all")


def test_a_group_without_a_command_fails_with_its_help(capfd: pytest.CaptureFixture[str]) -> None:
    """And nothing else: no error of click's own."""
    assert (run(["hooks"]), capfd.readouterr().out) == (64, "")
    run(["hooks", "--help"])
    helps = capfd.readouterr().out
    run(["hooks"])
    assert capfd.readouterr().err == helps
    names = "doctor install render report rollout simulate uninstall verify"
    assert re.findall(r"^  ([a-z]+) ", helps.partition("Commands:")[2], re.MULTILINE) == names.split()
