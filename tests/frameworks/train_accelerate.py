"""`accelerate launch train_accelerate.py SIZE`: steps of a small model with accelerate."""

import sys

import torch
from accelerate import Accelerator


def main() -> None:
    """Train for a few steps."""
    accelerator = Accelerator()
    rank, size = accelerator.process_index, accelerator.num_processes
    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        accelerator.backward(model(torch.randn(8, 512, device=accelerator.device)).square().mean())
        optimizer.step()
    total = accelerator.reduce(torch.tensor([rank + 1], device=accelerator.device)).item()
    assert (size, total) == (int(sys.argv[1]), size * (size + 1) // 2), f"rank {rank} of {size}"
    weights = accelerator.unwrap_model(model).weight.detach()
    alike = torch.allclose(accelerator.reduce(weights.clone(), "mean"), weights, atol=1e-5)
    assert alike, f"rank {rank} has a model of its own"
    print(f"TRAINED rank={rank} size={size}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
