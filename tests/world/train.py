"""A training script that knows nothing of mingle: it is run by plain `torchrun train.py`."""

import gc
import os

gc.disable()  # it would take a third of this process's time, for what torch loads

import torch  # noqa: E402 - after gc.disable()
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print(f"RANK={dist.get_rank()}\nSIZE={dist.get_world_size()}\nTOTAL={total.item()}\nAT={os.environ['MASTER_ADDR']}")
dist.destroy_process_group()
gc.freeze()  # nor at its end
