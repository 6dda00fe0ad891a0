"""COMMAND of all peers: write a line in $UP/begun, and wait for the file $UP/end. USR1 makes it fail with 7."""

import os
import signal
import socket
import time

SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def work(size: int | None = None, began_s: float = 0.0) -> None:
    """Say that it runs here, now, in a world of this size; what it waited for began at `began_s`."""
    now_s = time.monotonic()
    place = os.environ["UP"]
    if size is None:
        size = int(next((os.environ[name] for name in SIZES if name in os.environ), 1))
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
    with open(f"{place}/begun", "a") as file:
        file.write(f"{os.getpid()} {socket.gethostname()} {size} {now_s} {began_s}\n")
    while not os.path.exists(f"{place}/end"):
        time.sleep(0.1)


if __name__ == "__main__":
    work()
