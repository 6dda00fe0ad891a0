"""`torchrun train_torch.py SIZE`: data-parallel steps of a small model with torch alone."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train for a few steps."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(512, 512))  # 1 MB of gradients, which a bad network feels
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 512)).square().mean().backward()
        optimizer.step()
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)
    weights = model.module.weight.detach().clone()
    dist.all_reduce(weights)
    assert torch.allclose(weights, size * model.module.weight), f"rank {rank} has a model of its own"
    assert (size, total.item()) == (int(sys.argv[1]), size * (size + 1) // 2), f"rank {rank} of {size}"
    print(f"TRAINED rank={rank} size={size}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
