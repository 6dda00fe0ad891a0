"""Waiting for a condition."""

import time
from collections.abc import Callable


def until(holds: Callable[[], object], lacks: object = "it did not happen", within_s: float = 60.0) -> None:
    """Wait until something holds, and fail with what is lacking otherwise, or with what that returns when called."""
    began = time.monotonic()
    while not holds():
        waited_s = time.monotonic() - began
        assert waited_s < within_s, lacks() if callable(lacks) else lacks
        # Many conditions look at all processes of the machine: what takes long is looked at less often.
        time.sleep(0.01 + waited_s / 6)
