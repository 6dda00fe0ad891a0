"""`mingle env`, `exec` and `hosts`: join the world, and print it or start a command in it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from mingle_hooks.cli.answer import ExecFlags, ProgressPrinter, become_command, print_variables, run_together
from mingle_hooks.cli.commands import COMMON, HOSTS_FORMAT, ONLY_PRINTED, RUN, Grouped, Option, settings_options
from mingle_hooks.cli.plain import ONLY_STARTED, write_stdout
from mingle_hooks.errors import UsageError
from mingle_hooks.export import hostfiles
from mingle_hooks.export.variables import own
from mingle_hooks.job import member_spec, world_id
from mingle_hooks.joining import members_of, named_members
from mingle_hooks.run.starters import listed
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.settings import load

EXAMPLES = """\
eval "$(mingle env || echo exit 1)"; torchrun train.py   # sh, bash, zsh
mingle env --shell fish | source                         # fish
eval "`mingle env --shell csh`"                          # csh, tcsh"""


@click.command(cls=Grouped, examples=EXAMPLES, common=(*COMMON, "shell", "key_file", "explain"))
@partial(settings_options, without=ONLY_STARTED)
def env(*, explain: bool, no_wait: bool, **options: Any) -> None:
    """Print the variables of this node for eval.

    If no world forms, nothing is set and eval ends the script. An interactive
    shell stays open.
    """
    print_variables(options, explain=explain, no_wait=no_wait)


# `mingle exec`: set the variables, then become COMMAND.

EXAMPLES_EXEC = """\
srun mingle exec torchrun train.py               # in a Slurm job
mingle exec --id a --nodes 4 torchrun train.py   # on each of 4 machines
srun mingle exec --scope task python train.py    # one process per task"""


@click.command(
    name="exec",
    cls=Grouped,
    examples=EXAMPLES_EXEC,
    common=(*COMMON, "together", "verbatim", "key_file", "explain"),
    context_settings={"allow_interspersed_args": False},
)
@partial(settings_options, hidden=ONLY_PRINTED)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARG]...")
def exec(  # noqa: A001 - the command's own name
    *,
    command: tuple[str, ...],
    explain: bool,
    no_wait: bool,
    together: bool,
    verbatim: bool,
    keep_key: bool,
    **options: Any,
) -> int:
    """Set the variables, then become COMMAND.

    Put options of mingle before COMMAND. If no world forms, COMMAND is not
    started. Launchers that read no variables get the world as options; --explain
    prints the resulting command line.
    """
    flags = ExecFlags(explain, no_wait, verbatim, keep_key)
    if together:
        return run_together(command, options, flags)
    become_command(command, options, flags)
    return 0


# `mingle hosts`: print the hosts of the world as other programs read them.

EXAMPLES_HOSTS = """\
mingle hosts --format mpi > hostfile         # in a job script
mingle hosts --hosts 'node[1-4]' --slots 8   # without a scheduler
srun mingle hosts --write-etc                # as root, in containers
srun mingle hosts --remove-etc"""
_WITHOUT_HOSTS = ("frameworks", "no_wait", "explain", *ONLY_PRINTED, *ONLY_STARTED)


@click.command(
    cls=Grouped, examples=EXAMPLES_HOSTS, common=("name", "hosts", "write_etc", "remove_etc", "id", "nodes", "slots")
)
@click.option(
    "--format",
    "name",
    cls=Option,
    shown=HOSTS_FORMAT,
    default="mpi",
    type=click.Choice([*hostfiles.FORMATS]),
    help="Format of the list.",
)
@click.option("--hosts", cls=Option, shown=RUN["hosts"], help="Use these hosts instead of the job's.")
@click.option("--write-etc", is_flag=True, help="Add them to /etc/hosts, in a marked block.")
@click.option("--remove-etc", is_flag=True, help="Remove the block of this world from /etc/hosts.")
@partial(settings_options, without=_WITHOUT_HOSTS)
def hosts(*, name: str, hosts: str | None, write_etc: bool, remove_etc: bool, **options: Any) -> None:
    """Print the hosts of the world, for MPI and other programs.

    Names and slots come from the scheduler if it provides them. For the
    formats with addresses (etc, json), run this command on every node: the
    members exchange them.
    """
    if (hosts is not None) + write_etc + remove_etc > 1:
        raise UsageError("one of --hosts, --write-etc and --remove-etc", "more", "one at a time")
    if remove_etc:
        _remove(options)
    elif hosts is not None:
        if hostfiles.FORMATS[name].addresses == "needed":
            raise UsageError("a format without addresses, for --hosts", name, "--format mpi")
        write_stdout(hostfiles.text(name, named_members(listed(hosts), load(own(os.environ), options))))
    else:
        _list("etc" if write_etc else name, options, is_written=write_etc)


def _list(name: str, options: Mapping[str, object], *, is_written: bool) -> None:
    """Print the members, or write them into /etc/hosts."""
    spec = member_spec(os.environ, options)
    with ProgressPrinter(sys.stderr, quiet=spec.settings.quiet) as observer:
        found = members_of(spec, observer, hostfiles.FORMATS[name].addresses)
    text = hostfiles.text(name, (*found.members, *(found.by_own_names if name == "etc" else ())))
    if is_written:
        hostfiles.write_etc_hosts(spec.attempt.id, text)
    else:
        write_stdout(text)


def _remove(options: Mapping[str, object]) -> None:
    user_environ = own(os.environ)
    settings = load(user_environ, options)
    facts = detect(user_environ, socket.gethostname(), asks_plugins=settings.id is None)
    hostfiles.remove_etc_hosts(world_id(settings, facts))
