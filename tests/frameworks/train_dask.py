"""`python train_dask.py SIZE`: a task on every worker of the Dask cluster that the environment names."""

import socket
import sys

from distributed import Client

size = int(sys.argv[1])
with Client() as client:
    client.wait_for_workers(size, timeout=90)
    found = sorted(client.run(socket.gethostname).values())
assert len(set(found)) == size, found
print(*(f"TRAINED rank={rank} size={size} on={host}" for rank, host in enumerate(found)), sep="\n", flush=True)
