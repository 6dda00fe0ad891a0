"""One line for each scheduler that hooks can be installed for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.install import pbs, slurm, slurmconf, torque

if TYPE_CHECKING:
    from mingle_hooks.install.manifest import Manifest
    from mingle_hooks.install.plan import Plan
    from mingle_hooks.install.site import Site


class Where(NamedTuple):
    """Where to look and to write."""

    root: str = ""
    slurm_conf: str | None = None
    slurm_version: tuple[int, int] | None = None
    pbs_home: str | None = None


def plan(scheduler: str, site: Site, where: Where) -> Plan:
    """Return what installing would do. Raises MingleError where it cannot be known."""
    if scheduler == "slurm":
        return slurm.plan(site, where.root, slurmconf.find(where.root, where.slurm_conf), where.slurm_version)
    if scheduler == "pbs":
        return pbs.plan(site, where.root, where.pbs_home)
    return torque.plan(site, where.root, where.pbs_home)


def undo(scheduler: str, found: Manifest) -> tuple[str, ...]:
    """Return the commands that take the hooks out of the scheduler's own configuration."""
    return pbs.UNDO if scheduler == "pbs" and found.of("pbs") else ()
