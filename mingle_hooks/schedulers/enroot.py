"""What enroot's PyTorch hook exports in a task of Slurm, where the user has not.

Source: NVIDIA/enroot, conf/hooks/extra/50-slurm-pytorch.sh. It takes every task for a rank of its own, and there is
no NODE_RANK; what torchrun starts in such a task would be in no world. So mingle's values take their place.
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers import hostlist
from mingle_hooks.values import number

_FIRST_PORT, _PORTS = 61_000, 4_536
_LAST_JOB = 2**32 - 1  # of Slurm's numbers
# Its name for a number of Slurm's. All three together are the mark: a user who says any of these says less.
_NUMBERS = {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID", "WORLD_SIZE": "SLURM_NTASKS"}


def exported(environ: Mapping[str, str]) -> set[str]:
    """Return the names whose values are the hook's, none where it did not run."""
    if not all(environ.get(name) == environ.get(number) != "" for name, number in _NUMBERS.items()):
        return set()
    found = set(_NUMBERS)
    job = number(environ.get("SLURM_JOB_ID", ""), most=_LAST_JOB)
    if job is not None and environ.get("MASTER_PORT") == str(job % _PORTS + _FIRST_PORT):
        found.add("MASTER_PORT")
    if environ.get("MASTER_ADDR") and environ["MASTER_ADDR"] == _first_host(environ):
        found.add("MASTER_ADDR")
    return found


def _first_host(environ: Mapping[str, str]) -> str | None:
    try:
        return hostlist.expand(environ.get("SLURM_STEP_NODELIST", ""))[0]
    except FactsError:  # a list that makes no sense is told where it is needed
        return None
