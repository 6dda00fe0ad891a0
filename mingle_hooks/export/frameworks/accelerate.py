"""accelerate launch, which takes its machines from options or a file only, never from the environment.

Read in accelerate 1.15, commands/launch.py and utils/launch.py. Use it as
`accelerate launch --config_file "$MINGLE_ACCELERATE_CONFIG" train.py`. A script started once per task needs
no file: accelerate reads RANK, LOCAL_RANK and WORLD_SIZE. MULTI_GPU stands for torchrun, on CPUs too: MULTI_CPU
would start one process on each node.
"""

from __future__ import annotations

from mingle_hooks.export.frameworks import cpu
from mingle_hooks.world import File, View


def settings(view: View) -> dict[str, str]:
    """Return the switch for CPUs: all else is in the file."""
    return cpu.settings(view)


def files(view: View) -> tuple[File, ...]:
    """Return this node's config file. YAML is JSON's superset, so it is JSON, quoted as such."""
    import json

    world, place = view.world, view.place
    if place.node_rank is None or place.slots is None or world.nodes is None:
        return ()
    config = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "num_machines": world.nodes,
        # accelerate divides this by num_machines, to get this node's processes, and that is its only use.
        "num_processes": world.nodes * place.slots,
        "machine_rank": place.node_rank,
        "main_process_ip": world.master_addr,
        "main_process_port": world.master_port,
        "rdzv_backend": "static",
        "same_network": True,
    }
    return (File("accelerate.yaml", json.dumps(config, indent=2) + "\n", ("MINGLE_ACCELERATE_CONFIG",)),)
