"""Which tests have to run in one process, one after the other, where tests run in several."""

from __future__ import annotations

from pathlib import PurePath

# Tests in these folders use the ports of this machine.
ON_THIS_MACHINE = {"cli", "export", "fabric", "rendezvous"}
# What stands in for these schedulers gives the same job ids, and a job script tells its processes by their job's id.
STAND_INS = {
    "test_scripts_by_remote_start",
    "test_scripts_on_pbs",
    "test_first_try",
    "test_hooks_on_pbs",
    "test_shown_lines",
    "test_starters_remote",
}


def process_of(nodeid: str) -> str:
    """Return a name that the tests share which must not run at the same time; for the others, their own."""
    path = PurePath(nodeid.partition("::")[0])
    if path.parent.name in ON_THIS_MACHINE:
        return "this machine"
    if path.stem in STAND_INS or "[stand-in" in nodeid:
        return "stand-ins"
    if path.parent.name == "packages":  # they are made once for all of its tests
        return "packages"
    if path.stem == "test_life_on_slurm":  # its Slurm is started once
        return "life"
    if path.stem == "test_installing":  # its installations take 12 s each
        return "installing"
    return nodeid
