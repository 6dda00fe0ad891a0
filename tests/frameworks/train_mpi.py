"""`mpirun python train_mpi.py SIZE`: a sum over all processes of MPI."""

import socket
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
total, hosts = world.allreduce(rank + 1), set(world.allgather(socket.gethostname()))
assert (size, total) == (int(sys.argv[1]), size * (size + 1) // 2), f"rank {rank} of {size}"
assert len(hosts) > 1, hosts
print(f"TRAINED rank={rank} size={size}", flush=True)
