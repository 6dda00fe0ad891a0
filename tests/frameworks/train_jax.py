"""`python train_jax.py SIZE`: one process for each node, which JAX finds by itself."""

import sys

import jax

jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
from jax.experimental import multihost_utils  # noqa: E402 - after initialize(), as JAX asks for

total = int(multihost_utils.process_allgather(jax.numpy.array([rank + 1])).sum())
assert (size, total) == (int(sys.argv[1]), size * (size + 1) // 2), f"rank {rank} of {size}"
print(f"TRAINED rank={rank} size={size}", flush=True)
jax.distributed.shutdown()
