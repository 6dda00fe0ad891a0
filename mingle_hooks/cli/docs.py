"""`mingle docs`: print a page of the documentation that is installed."""

from __future__ import annotations

import click

from mingle_hooks import files
from mingle_hooks.cli.help import Grouped
from mingle_hooks.cli.plain import write_stdout
from mingle_hooks.errors import UsageError
from mingle_hooks.keys import fresh
from mingle_hooks.values import nearest

SUFFIX = ".md"
EXAMPLES = """\
mingle docs                   # list the pages
mingle docs tutorial | less   # laptop, Slurm and PBS in five minutes
mingle docs pbs               # jobs under PBS"""
# What people look for -> the page that has it. The first is offered where no name is near.
SUBJECTS = {
    "help": "faq",
    "accelerate": "frameworks",
    "check-in": "how-it-works",
    "deepspeed": "frameworks",
    "drain": "admin",
    "epilog": "admin",
    "error": "troubleshooting",
    "errors": "troubleshooting",
    "gloo": "networks",
    "gloo-socket-ifname": "networks",
    "grid-engine": "schedulers/sge",
    "hooks": "admin",
    "ib": "networks",
    "infiniband": "networks",
    "install": "admin",
    "jax": "frameworks",
    "k8s": "schedulers/kubernetes",
    "key": "security",
    "keys": "security",
    "kubeflow": "schedulers/given-ranks",
    "lightning": "frameworks",
    "mpirun": "schedulers/mpi",
    "nccl": "networks",
    "nccl-socket-ifname": "networks",
    "network": "networks",
    "nodes-differ": "lint",
    "openpbs": "schedulers/pbs",
    "pals": "schedulers/mpi",
    "pbspro": "schedulers/pbs",
    "plugins": "extending",
    "prolog": "admin",
    "python": "api",
    "pytorch": "frameworks",
    "questions": "faq",
    "ray": "frameworks",
    "restart": "run",
    "sbatch": "schedulers/slurm",
    "scontrol": "why-not",
    "srun": "schedulers/slurm",
    "ssh": "schedulers/plain-hosts",
    "start": "tutorial",
    "submitit": "why-not",
    "toolkit": "schedulers/given-ranks",
    "topology": "hosts",
    "torchrun": "frameworks",
    "uge": "schedulers/sge",
    "vessl": "schedulers/given-ranks",
}


def pages() -> tuple[str, ...]:
    """Return the names of the pages."""
    return tuple(name.removesuffix(SUFFIX) for name in files.shipped_names("docs") if name.endswith(SUFFIX))


def search_names() -> dict[str, str]:
    """Return each name that a page may be asked for by, such as `slurm`, and the page."""
    return SUBJECTS | {name: page for page in pages() for name in (page, page.rpartition("/")[2])}


def _complete(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    return [name for name in sorted(search_names()) if name.startswith(begun)]


@click.command(cls=Grouped, examples=EXAMPLES)
@click.argument("page", required=False, shell_complete=_complete)
def docs(page: str | None) -> None:
    """Print a page of the documentation, or the list of pages."""
    if page is None:
        write_stdout("".join(f"{name}\n" for name in pages()))
        return
    known = search_names()
    name = page.lower().replace("_", "-").removeprefix("docs/").removesuffix(SUFFIX)
    if name not in known:
        raise UsageError("a page that `mingle docs` lists", page, f"`mingle docs {nearest(name, known)}`")
    write_stdout(files.shipped_text(f"docs/{known[name]}{SUFFIX}"))


# `mingle key`: print a fresh key for the members of a world.


@click.command()
def key() -> None:
    """Print a new key for the members of a world.

    \b
    (umask 077; mingle key > ~/.config/mingle/key)   # and copy it
    """
    write_stdout(fresh() + "\n")
