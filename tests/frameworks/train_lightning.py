"""`python train_lightning.py SIZE NODES DEVICES [mingle]`: Lightning starts the other processes of its node itself."""

import sys

import lightning
import torch
from lightning.pytorch.demos.boring_classes import BoringModel


def main() -> None:
    """Train for a few steps."""
    size, nodes, devices = (int(word) for word in sys.argv[1:4])
    plugins = None
    if sys.argv[4:] == ["mingle"]:
        from mingle_hooks.lightning import MingleEnvironment

        plugins = [MingleEnvironment()]
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        num_nodes=nodes,
        devices=devices,
        plugins=plugins,
        max_steps=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(BoringModel())
    total = trainer.strategy.reduce(torch.tensor(trainer.global_rank + 1.0), reduce_op="sum").item()
    assert (trainer.world_size, total) == (size, size * (size + 1) // 2), f"rank {trainer.global_rank}"
    print(f"TRAINED rank={trainer.global_rank} size={trainer.world_size}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
