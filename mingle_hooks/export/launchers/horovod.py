"""horovodrun, which reaches the nodes from rank 0's and takes them from options.

Read in horovod 0.28, runner/launch.py: -np, or --num-proc, and -H, or --hosts, or a --hostfile.
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.export.launchers.words import absent, given
from mingle_hooks.world import View

_FLAGS = frozenset(
    {
        *("-h", "--help", "-v", "--version", "-cb", "--check-build", "--disable-cache", "--verbose", "--gloo"),
        *("--mpi", "--jsrun", "--prefix-output-with-timestamp", "--tcp", "--autotune", "--no-autotune"),
    }
)
_NUMBERS = ("-np", "--num-proc", "--min-np", "--min-num-proc")
_HOSTS = ("-H", "--hosts", "-hostfile", "--hostfile", "--host-discovery-script")


def options(_name: tuple[str, ...], words: tuple[str, ...], view: View, exported: Mapping[str, str]) -> tuple[str, ...]:
    """Return the number of processes, and the hosts with their slots."""
    asked = given(words, _FLAGS)
    number = {} if any(name in asked for name in _NUMBERS) else {"-np": view.world.size}
    hosts = {} if any(name in asked for name in _HOSTS) else {"-H": exported["MINGLE_HOSTS"]}
    return absent({**number, **hosts}, asked)
