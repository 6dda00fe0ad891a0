"""What may differ between the nodes of a world, by the names that the settings use, in the order of messages."""

FIELDS = (
    *("rdma", "gpus", "driver", "network", "address", "clock", "shm", "tmp", "limits", "kernel", "image"),
    *("program", "git", "torch", "nccl", "cuda", "jax", "python", "mingle", "environment"),
)
