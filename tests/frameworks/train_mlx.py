"""`python train_mlx.py SIZE`: the ring of MLX, which reads MLX_RANK and MLX_HOSTFILE."""

import sys

import mlx.core as mx

world = mx.distributed.init(backend="ring")
rank, size = world.rank(), world.size()
total = int(mx.distributed.all_sum(mx.array(rank + 1)).item())
assert (size, total) == (int(sys.argv[1]), size * (size + 1) // 2), f"rank {rank} of {size}"
print(f"TRAINED rank={rank} size={size}", flush=True)
