"""The reader without click reads what click reads, or leaves it to click."""

import os
import subprocess
import sys
from typing import Any

import click
from hypothesis import given, strategies as st

from mingle_hooks.cli.commands import RUN, own_options, settings_options
from mingle_hooks.cli.main import read_call
from mingle_hooks.settings import EXEC_ONLY, FLAGS, NOT_FOR_RUN, OPTIONS

OF_RUN = [f"--{name.replace('_', '-')}" for name in RUN]
WORDS = st.sampled_from(
    [
        *(*OPTIONS, *FLAGS, *OF_RUN),
        *("x", "4", "--", "-h", "--help", "", "--id=a", "--id=", "--quiet=1", "a b", "=", "-", "--no"),
    ]
)


def by_click(command: str, words: list[str]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return what click makes of a command line, None where it complains."""

    def callback(**options: Any) -> dict[str, Any]:
        return options

    without = {"env": EXEC_ONLY, "exec": (), "run": NOT_FOR_RUN}[command]
    wrapped = settings_options(callback, without=without)
    if command == "run":
        wrapped = own_options(wrapped, RUN)
    if command != "env":
        wrapped = click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)(wrapped)
    settings = {"allow_interspersed_args": command == "env"}
    try:
        found = click.command(context_settings=settings)(wrapped).main(words, standalone_mode=False)
    except click.ClickException:
        return None
    if not isinstance(found, dict):  # --help
        return None
    rest = found.pop("command", ())
    return {name: value for name, value in found.items() if value not in (None, False)}, rest


@given(command=st.sampled_from(["env", "exec", "run"]), words=st.lists(WORDS, max_size=8))
def test_a_call_that_is_read_is_the_one_that_click_reads(command: str, words: list[str]) -> None:
    """Whatever stands there, both readers agree on options, flags and the command to become."""
    call = read_call([command, *words])
    assert call is None or by_click(command, words) == call


# Options, and the command to become.
PLAIN = {
    "env --id a --id b --nodes=4 --quiet": ({"id": "b", "nodes": "4", "quiet": True}, ""),
    "exec --id a -- python3 a.py --id x --": ({"id": "a"}, "python3 a.py --id x --"),
    "exec -- -- x": ({}, "-- x"),
    "run --no-label --hosts=a,b --nodes 1:2 x": ({"no_label": True, "hosts": "a,b", "nodes": "1:2"}, "x"),
}
# Help, mistakes and other commands.
OTHERS = (
    *("", "key", "env --help", "env x", "env --id", "env --id --nodes", "exec --unknown true", "exec --id -- true"),
    *("exec --", "run", "run --rank 1 x", "run --start-option=-x true"),
)


def test_plain_command_lines_need_no_click_and_everything_else_is_left_to_it() -> None:
    for line, (options, rest) in PLAIN.items():
        assert read_call(line.split()) == (options, tuple(rest.split()))
    assert [line for line in OTHERS if read_call(line.split()) is not None] == []


def test_a_member_loads_nothing_that_it_does_not_use() -> None:
    """Each of these costs every node of every job 20 to 80 ms."""
    script = (
        "import sys; from mingle_hooks.cli import main; from mingle_hooks.rendezvous import rendezvous;"
        " from mingle_hooks.schedulers import slurm, detect; from mingle_hooks.job import launchers, member_spec;"
        # No plugin is looked for where a row of ours fits.
        "member_spec({'SLURM_JOB_ID': '1', 'SLURM_JOB_NUM_NODES': '1'}, {'frameworks': 'jax'});"
        "member_spec({}, {'id': 'a', 'nodes': '2'}); launchers.find(['torchrun']); launchers.find(['python3', 'x.py']);"
        "print(*sorted(sys.modules))"
    )
    argv, env = [sys.executable, "-I", "-c", script], {"PATH": os.environ["PATH"]}
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env=env)
    loaded = set(done.stdout.split())
    assert {"mingle_hooks.joining", "mingle_hooks.rendezvous.member"} <= loaded
    assert not loaded & {"click", "jinja2", "multicast_expert", "asyncio", "importlib.metadata"}
