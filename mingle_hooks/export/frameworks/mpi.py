"""mpirun: a hostfile for Open MPI, a machine file for MPICH and Intel MPI, each by its own variable too.

Open MPI 4 takes OMPI_MCA_orte_default_hostfile as the default of --hostfile, Open MPI 5, whose launcher is PRRTE,
PRTE_MCA_prte_default_hostfile (prte-info --all).
Hydra, the launcher of MPICH and MVAPICH, takes HYDRA_HOST_FILE as its default (its wiki, "Using the Hydra
Process Manager"), Intel's takes I_MPI_HYDRA_HOST_FILE (its developer reference). OMPI_MCA_btl_tcp_if_include
is left out: mpirun hands it to all nodes, and interface names may differ between them. So does Hydra with HYDRA_IFACE,
which is set only where Hydra would tell its daemons to connect to a name that leads nowhere.
"""

from __future__ import annotations

from mingle_hooks.export.frameworks import deepspeed
from mingle_hooks.export.hostfiles import mpich
from mingle_hooks.world import File, View

_HOSTFILE = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
_MACHINEFILE = ("MINGLE_MACHINEFILE", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE")


def settings(view: View) -> dict[str, str]:
    """Return what a step of Slurm needs, as the hosts are in the files.

    mpirun starts its daemons by srun, which would wait for the CPUs that this very step holds.
    """
    found = {"SLURM_OVERLAP": "1"} if "SLURM_STEP_ID" in view.user_environ else {}
    return found | ({"HYDRA_IFACE": view.place.iface} if view.place.iface and not view.is_named else {})


def files(view: View) -> tuple[File, ...]:
    """Return both files, or nothing without a roster."""
    text = mpich.text(view.world.roster)
    machinefile = (File("machinefile", text, _MACHINEFILE),) if text else ()
    return deepspeed.hostfile(view, *_HOSTFILE) + machinefile
