"""`import mingle_hooks.jax` before `jax.distributed.initialize()`, which then needs no arguments.

JAX 0.10 loads no plugins before that call. Defining a subclass of ClusterEnv, which only jax._src has, registers it.
"""

from __future__ import annotations

from functools import cache

from jax._src.clusters import ClusterEnv

from mingle_hooks.api import export, join
from mingle_hooks.rendezvous.messages import View


@cache
def _view() -> View:
    """Join once: JAX asks for each value separately."""
    view = join()
    export(view)
    return view


class MingleCluster(ClusterEnv):  # type: ignore[misc]  # jax need not be installed
    """The world of `mingle_hooks.join()`, which reads the job, settings files and MINGLE_* variables."""

    name = "mingle"

    @classmethod
    def is_env_present(cls) -> bool:
        """Return True: a script that imports this module wants mingle."""
        return True

    @classmethod
    def get_coordinator_address(cls, timeout_secs: int | None, override_coordinator_port: str | None) -> str:  # noqa: ARG003 - JAX names them
        """Return rank 0's address and port. Raises what `mingle_hooks.join` raises."""
        return _view().endpoint

    @classmethod
    def get_process_count(cls) -> int | None:
        """Return the number of processes."""
        return _view().processes

    @classmethod
    def get_process_id(cls) -> int | None:
        """Return this process's rank."""
        return _view().process

    @classmethod
    def get_local_process_id(cls) -> int | None:
        """Return the local rank in task scope, so that JAX uses one device; None in node scope."""
        return _view().place.local_rank if _view().scope == "task" else None


# JAX asks the classes in order; under Slurm, its own would come first.
ClusterEnv._cluster_types.insert(0, ClusterEnv._cluster_types.pop())  # noqa: SLF001 - there is no public way
