"""`deepspeed train_deepspeed.py SIZE`: an engine of a small model, on CPUs."""

import argparse

import deepspeed
import torch


def main() -> None:
    """Train for a few steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("size", type=int)
    parser.add_argument("--local_rank", type=int)
    arguments = parser.parse_args()
    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={"train_micro_batch_size_per_gpu": 8})
    for _ in range(3):
        engine.backward(engine(torch.randn(8, 4)).square().mean())
        engine.step()
    rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    total = torch.tensor([rank + 1])
    deepspeed.comm.all_reduce(total)
    assert (size, total.item()) == (arguments.size, size * (size + 1) // 2), f"rank {rank} of {size}"
    print(f"TRAINED rank={rank} size={size}", flush=True)
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
