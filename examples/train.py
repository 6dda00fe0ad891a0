"""Fit a line to points on all processes of a job at once, and stop and resume as a real training does.

It names no scheduler and no launcher: it reads RANK and WORLD_SIZE, or NODE_RANK and NNODES where it runs
once on a node, with MASTER_ADDR and MASTER_PORT, or JAX's own variables. Alone, `python3 train.py` trains too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Numbers of this process -> their mean over all processes.
Average = Callable[[list[float]], list[float]]

CONNECT_S = 60.0


def place() -> tuple[int, int]:
    """Return this process's rank and the number of processes."""
    for rank, size in (("RANK", "WORLD_SIZE"), ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"), ("NODE_RANK", "NNODES")):
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def by_torch() -> Average:
    """Average by torch.distributed, over NCCL where there are GPUs."""
    import torch
    import torch.distributed as dist

    rank, size = place()
    has_gpus = torch.cuda.is_available()
    if has_gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    dist.init_process_group("nccl" if has_gpus else "gloo", rank=rank, world_size=size)

    def average(numbers: list[float]) -> list[float]:
        tensor = torch.tensor(numbers, dtype=torch.float64, device="cuda" if has_gpus else "cpu")
        dist.all_reduce(tensor)
        return (tensor / size).tolist()

    return average


def by_jax() -> Average:
    """Average by JAX, one process on each node."""
    import jax
    from jax.experimental.multihost_utils import process_allgather

    rank, size = place()
    jax.distributed.initialize(num_processes=size, process_id=rank)
    return lambda numbers: process_allgather(jax.numpy.array(numbers)).mean(axis=0).tolist()


def by_sockets() -> Average:
    """Send everything to rank 0 and get the mean back: enough to show that all processes meet."""
    rank, size = place()
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        server = socket.create_server(address, family=family, backlog=size)
        server.settimeout(CONNECT_S)
        files = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
    else:
        files = [dial(address).makefile("rw")]

    def average(numbers: list[float]) -> list[float]:
        if rank == 0:
            rows = [numbers, *(json.loads(file.readline()) for file in files)]
            numbers = [sum(column) / size for column in zip(*rows)]
        for file in files:
            file.write(json.dumps(numbers) + "\n")
            file.flush()
        return numbers if rank == 0 else json.loads(files[0].readline())

    return average


def dial(address: tuple[str, int]) -> socket.socket:
    """Connect to rank 0, which may not listen yet."""
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def backend(name: str) -> Average:
    """Return how to average, by torch where it is installed unless told otherwise."""
    if place()[1] == 1:
        return lambda numbers: numbers
    if name == "jax" or (name == "auto" and "JAX_COORDINATOR_ADDRESS" in os.environ):
        return by_jax()
    if name == "torch":
        return by_torch()
    if name == "auto":
        try:
            return by_torch()
        except ModuleNotFoundError:
            pass
    return by_sockets()


def save(path: Path, state: list[float]) -> None:
    """Write a checkpoint, whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(path)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a step takes at least")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.json"))
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS", help="write a checkpoint so often")
    parser.add_argument("--backend", choices=["auto", "torch", "jax", "sockets"], default="auto")
    parser.add_argument("--local_rank", "--local-rank", help=argparse.SUPPRESS)  # deepspeed adds it
    options = parser.parse_args()

    rank, size = place()
    average = backend(options.backend)
    # Only now is there anything to save: the time limit is near, or the job is cancelled.
    told: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda its, _: told.append(its))
    average([0.0])  # a process that cannot save yet would end on a signal
    step, slope, offset = 0, 0.0, 0.0
    if options.checkpoint.exists():
        step, slope, offset = json.loads(options.checkpoint.read_text())
    print(f"rank {rank} of {size} begins at step {step}", flush=True)

    points = random.Random(rank)  # every process has its own part of the data: y = 3 x + 1
    stop = 0.0
    while step < options.steps and not stop:
        xs = [points.uniform(-1, 1) for _ in range(64)]
        errors = [slope * x + offset - (3 * x + 1) for x in xs]
        d_slope = sum(2 * e * x for e, x in zip(errors, xs)) / len(xs)
        d_offset = sum(2 * e for e in errors) / len(xs)
        d_slope, d_offset, stop = average([d_slope, d_offset, float(bool(told))])  # all stop at the same step
        slope, offset, step = slope - options.lr * d_slope, offset - options.lr * d_offset, step + 1
        if rank == 0 and options.save_every and step % options.save_every == 0:
            save(options.checkpoint, [step, slope, offset])
        time.sleep(options.pause)
    if rank == 0:
        save(options.checkpoint, [step, slope, offset])
        print(f"{size} processes at step {step}: y = {slope:.3f} x + {offset:.3f}", flush=True)
    average([0.0])  # nobody leaves before the checkpoint is there
    if "torch" in sys.modules and size > 1:
        sys.modules["torch.distributed"].destroy_process_group()
    code = 128 + told[0] if signal.SIGTERM in told else 0
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Python's end puts handlers back, and a second warning would kill
    sys.exit(code)


if __name__ == "__main__":
    main()
