"""`torchrun train_elastic.py SIZE STEPS`: steps with a pause between, so that there is time to lose a node."""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert size == int(sys.argv[1]), f"rank {rank} of {size}"
for step in range(int(sys.argv[2])):
    total = torch.tensor([1])
    dist.all_reduce(total)
    print(f"STEP {step} of round {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    time.sleep(0.2)
print(f"TRAINED rank={rank} size={size}", flush=True)
dist.destroy_process_group()
