"""torchrun's own options that would take it out of the world: they win over PET_*.

Read in torch 2.13, distributed/run.py. Many a line was written for one node, with --standalone or --nnodes=1, and
would train once on every node.
"""

from __future__ import annotations

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.typed import TYPE_CHECKING
from mingle_hooks.values import holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.job import Enquiry

# Options without a value; every other takes the next word, or what stands after "=".
_FLAGS = ("--standalone", "--module", "--no-python", "--run-path", "--use-env", "--virtual-local-rank")
_LOOPBACK = ("localhost", "127.", "::1", "[::1]")


def check(arguments: Sequence[str], enquiry: Enquiry) -> None:
    """Raise UsageError for an option that contradicts the world of several nodes; `arguments` follow torchrun."""
    for option, value in _options(arguments):
        said = f"{option}={value}" if value else option
        if option == "--standalone":
            raise _wrong(enquiry, said)
        if option == "--nnodes" and enquiry.nodes is not None and not holds(value, enquiry.nodes):
            raise _wrong(enquiry, said)
        if option == "--node-rank" and value != str(enquiry.rank):
            raise _wrong(enquiry, said)
        if option in ("--master-addr", "--rdzv-endpoint") and value.startswith(_LOOPBACK):
            raise _wrong(enquiry, said)


def _wrong(enquiry: Enquiry, said: str) -> UsageError:
    nodes = enquiry.nodes or "several"
    seen = f"{printable(said, 80)}, with which this node would train by itself"
    return UsageError(f"torchrun in the world of {nodes} nodes", seen, "to leave that option out: mingle sets it")


def _options(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return torchrun's options, each with its value; the script's own are not looked at."""
    found = []
    words = iter(arguments)
    for word in words:
        if not word.startswith("-") or word == "--":
            break
        name, is_joined, value = word.partition("=")
        name = name.replace("_", "-")
        if not is_joined and name not in _FLAGS and name != "-m":
            value = next(words, "")
        found.append((name, value))
    return found
