"""Help for a person: options in groups, kinds of values and defaults, on a terminal of 80 columns; and the pages."""

import os
import re
import shlex

import click
import pytest
from forked import Forked

from mingle_hooks.cli import commands as cli
from mingle_hooks.cli.main import run
from mingle_hooks.cli.template import FIELD_GROUPS, FIELD_VALUES, SUBJECTS, pages, search_names
from mingle_hooks.export.variables import SHELLS
from mingle_hooks.scripts.job import FIELDS
from mingle_hooks.settings import BY_NAME, FLAGS, TABLE


def commands(command: click.Command, context: click.Context) -> list[tuple[click.Command, click.Context]]:
    """Return a command and all below it, each with its context."""
    found = [(command, context)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None
            found += commands(one, click.Context(one, info_name=name, parent=context))
    return found


ALL = commands(cli.mingle, click.Context(cli.mingle, info_name="mingle"))


def shown(forked: Forked, *words: str) -> str:
    """Return what a command's --help prints, or with `--all` its --help --all."""
    last = [word for word in words if word == cli.ALL]
    first = [word for word in words if word != cli.ALL]
    done = forked.run(*first, "--help", *last, env={**os.environ, "COLUMNS": ""})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_setting_and_field_has_its_place_in_help_and_nothing_else_has() -> None:
    """The tables that only help needs follow those that the program works with."""
    options = {setting.name for setting in TABLE if setting.option}
    assert set(cli.SETTINGS) == options | set(cli.CALL_FLAGS)
    assert set(FIELDS) <= set(FIELD_GROUPS)
    assert set(FIELD_VALUES) <= set(FIELD_GROUPS)
    groups = {one.group for table in (cli.SETTINGS, cli.RUN, cli.CHECK) for one in table.values()}
    assert groups | set(FIELD_GROUPS.values()) == set(cli.GROUPS)


@pytest.mark.parametrize("name", [one.name for one in TABLE if one.option])
def test_the_values_and_defaults_in_help_are_those_of_the_program(name: str) -> None:
    """The default is the default, and each value that is offered can be read."""
    one, how = BY_NAME[name], cli.SETTINGS[name]
    assert bool(how.metavar) is (one.option not in FLAGS)
    assert one.read(how.default) == one.default if how.default else one.default in (None, (), "", False)
    for value in how.values():
        one.read(value)


def test_the_first_example_is_the_shortest_safe_line(forked: Forked) -> None:
    """The example of env ends a script even without mingle; exec accepts env's output options but hides them."""
    assert re.search(r"\n\n  srun mingle exec torchrun train\.py\b", shown(forked))
    line = r'eval "\$\(mingle env \|\| echo exit 1\)"; torchrun train\.py\b'
    assert re.search(rf"Examples:\n  {line}", shown(forked, "env"))
    text = shown(forked, "exec", cli.ALL)
    assert re.search(r"Examples:\n  srun mingle exec torchrun train\.py\b", text)
    assert ("--shell" in text, "--on-failure" in text) == (False, False)


@pytest.mark.parametrize(("command", "context"), ALL, ids=[context.command_path for _, context in ALL])
def test_help_can_be_read_on_80_columns_and_explains_every_option(
    forked: Forked, command: click.Command, context: click.Context
) -> None:
    """No line is longer, none is cut, and every option has a text."""
    more = [cli.ALL] if isinstance(command, cli.Grouped) else []
    text = shown(forked, *shlex.split(context.command_path)[1:], *more)
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("[ARG]...", "")
    for _, options in cli.grouped(command, context):
        for option in options:
            assert option.help, option.name
            assert option.opts[0] in text


SHORT = [context.command_path for command, context in ALL if isinstance(command, cli.Grouped) and command.common]


@pytest.mark.parametrize("path", ["mingle", *SHORT])
def test_help_fits_one_screen(forked: Forked, path: str) -> None:
    """A screen has 80 columns and 40 lines. Help that leaves options out says how to see them all."""
    text = shown(forked, *path.split()[1:])
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    assert any("--help [--all]" in line for line in (lines if path == "mingle" else lines[-1:]))


def test_a_rare_command_is_shown_with_all_only(forked: Forked) -> None:
    """Its own help is there without; the lines of the table stand where loading every command would cost time."""
    usual, every = (set(re.findall(r"^  ([a-z]+) ", shown(forked, *w), re.MULTILINE)) for w in ((), (cli.ALL,)))
    assert every - usual == {"schema"}
    assert set(cli.COMMANDS) <= every
    assert shown(forked, "schema").startswith("Usage: mingle schema")
    for name, (_, line) in cli.COMMANDS.items():
        assert len(line) <= 64
        assert cli.mingle.get_command(click.Context(cli.mingle), name) is not None


def test_all_options_are_shown_for_help_alone(forked: Forked) -> None:
    """`--all` is no option of its own, and behind COMMAND it belongs to COMMAND."""
    assert shown(forked, "exec", cli.ALL) == shown(forked, cli.ALL, "exec")
    done = forked.run("env", "--all", env=os.environ)
    assert (done.returncode, "--all" in done.stderr) == (64, True)


# `mingle docs NAME`.

NAMES = {
    "# Slurm": ("schedulers/slurm", "slurm", "SLURM", "docs/schedulers/slurm.md"),
    "# FAQ": ("faq",),
    "# Networks": ("nccl", "NCCL_SOCKET_IFNAME"),
    "# Kubernetes": ("k8s",),
    "# OpenPBS and PBS Professional": ("openpbs",),
    "# Why not just …?": ("why_not",),
}


def test_a_page_is_found_by_each_of_its_names(forked: Forked) -> None:
    """Case, directory and suffix do not matter; no two pages or subjects share a name."""
    for heading, names in NAMES.items():
        for name in names:
            assert forked.run("docs", name, env=os.environ).stdout.partition("\n")[0] == heading, name
    assert set(search_names().values()) == set(pages())
    assert set(SUBJECTS.values()) <= set(pages())
    assert not set(SUBJECTS) & {page.rpartition("/")[2] for page in pages()}


def test_usual_help_lists_no_values_and_what_it_hides_is_read(forked: Forked) -> None:
    """--help --all lists them, and `exec` takes the options of `env`."""
    usual = forked.run("env", "-h", env={**os.environ, "COLUMNS": ""}).stdout
    listed = f"Language of the output. One of {', '.join(SHELLS)}. [default: sh]"
    for text, has_list in ((usual, False), (shown(forked, "env", cli.ALL), True)):
        assert (listed in " ".join(text.split())) is has_list
    assert usual.splitlines()[-1].split(maxsplit=3)[:3] == ["-h,", "--help", "[--all]"]
    assert forked.run("exec", "--shell", "fish", "--id", "a", "--nodes", "1", "true", env=os.environ).returncode == 0


def test_a_group_without_a_command_fails_with_its_help(capfd: pytest.CaptureFixture[str]) -> None:
    """The help goes to stderr, and click adds no error of its own."""
    assert (run(["hooks"]), capfd.readouterr().out) == (64, "")
    run(["hooks", "--help"])
    helps = capfd.readouterr().out
    run(["hooks"])
    assert capfd.readouterr().err == helps
    names = "doctor install render report rollout simulate uninstall verify"
    assert re.findall(r"^  ([a-z]+) ", helps.partition("Commands:")[2], re.MULTILINE) == names.split()


def test_a_value_may_begin_with_a_hyphen() -> None:
    """An option of a scheduler does, as in `--directive --exclusive`."""
    options = [(command, context, one) for command, context in ALL for one in command.params if one.opts[0][0] == "-"]
    valued = [row for row in options if isinstance(row[2], click.Option) and not row[2].is_flag]
    assert len(valued) > 100
    for command, context, option in valued:
        values, left, _ = command.make_parser(context).parse_args([option.opts[0], "--x"])
        assert (values[str(option.name)], left) == (["--x"] if option.multiple else "--x", []), option.opts
