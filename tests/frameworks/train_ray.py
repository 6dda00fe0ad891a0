"""`ray symmetric-run … -- python train_ray.py SIZE`: a task on every node of the cluster."""

import socket
import sys

import ray

ray.init(address="auto")


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where() -> str:
    """Return the host that this task ran on."""
    return socket.gethostname()


size = int(sys.argv[1])
nodes = [node for node in ray.nodes() if node["Alive"]]
assert len(nodes) == size, nodes
tasks = [where.options(resources={f"node:{node['NodeManagerAddress']}": 0.01}).remote() for node in nodes]
found = sorted(ray.get(tasks))
assert len(set(found)) == size, found
print(*(f"TRAINED rank={rank} size={size} on={host}" for rank, host in enumerate(found)), sep="\n", flush=True)
