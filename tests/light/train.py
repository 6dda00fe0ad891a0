"""A training script without torch: it says in which world it was started, and with --wait it runs until it is told.

What is tried is what starts it, the real torchrun for one. Where it is also tried that training goes on from there,
examples/train.py trains; importing torch, once for each process, takes 1.5 s of a processor.
"""

import _signal as signal  # without its enums, and without pathlib, it is there in half the time
import os
import sys

TOLD = {signal.SIGTERM, signal.SIGUSR1}


def main() -> None:
    """Say it, and save where it is to wait for the end."""
    rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    told = f"rank {rank} of {size} begins\nRANK={rank}\nSIZE={size}\nAT={os.environ['MASTER_ADDR']}\n"
    os.write(1, told.encode())  # at once: print() ends its line by itself, and another process writes in between
    if sys.argv[1:] == ["--wait"]:
        signal.sigwait(TOLD)
        if rank == "0":
            with open("checkpoint.json", "w") as file:
                file.write("[1]")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda _number, _frame: None)  # only who handles it is sent it
    signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
    main()
