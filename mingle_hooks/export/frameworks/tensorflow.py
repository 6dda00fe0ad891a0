"""TensorFlow: TF_CONFIG names every worker's address and port (tf.distribute.cluster_resolver)."""

from __future__ import annotations

from mingle_hooks.errors import NetworkError
from mingle_hooks.world import View, endpoint

LAST_PORT = 65_535


def settings(view: View) -> dict[str, str]:
    """Return TF_CONFIG, or nothing without a roster; raise NetworkError past the last port.

    A worker listens on the master port; workers that share an address count up from it.
    """
    import json

    if view.process is None or not view.world.roster:
        return {}
    task = {"type": "worker", "index": view.process}
    config = {"cluster": {"worker": workers(view)}, "task": task}
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


def workers(view: View) -> list[str]:
    """Return every worker's address and port, in rank order; raise NetworkError past the last port."""
    used: dict[str, int] = {}
    workers = []
    for member in view.world.roster:
        for _ in range(member.slots if view.scope == "task" else 1):
            port = view.world.master_port + used.get(member.address, 0)
            if port > LAST_PORT:
                raise NetworkError(f"a port up to {LAST_PORT} for each worker", f"{port}", "a lower --port-range")
            used[member.address] = used.get(member.address, 0) + 1
            workers.append(endpoint(member.address, port))
    return workers
