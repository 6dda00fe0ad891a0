"""torchrun's own options that would take it out of the world: they win over PET_*.

Read in torch 2.13, distributed/run.py. Many a line was written for one node, with --standalone or --nnodes=1, and
would train once on every node.
"""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks.export.launchers import words
from mingle_hooks.job import MemberSpec

# Options without a value; every other takes the next word, or what stands after "=".
FLAGS = ("--standalone", "-m", "--module", "--no-python", "--run-path", "--use-env", "--virtual-local-rank")


def check(arguments: Sequence[str], spec: MemberSpec) -> None:
    """Raise UsageError for an option that contradicts the world of several nodes; `arguments` follow torchrun."""
    words.check("torchrun", words.given(arguments, FLAGS), spec.nodes, spec.rank)
