"""Loaded by every Python on the hosts of chaos: the time of day is off by the seconds in this host's file."""

import os
import time

_NOW, _NOW_NS = time.time, time.time_ns
_FILE = f"{os.environ.get('CHAOS_CLOCKS')}/{os.uname().nodename}"


def _ahead() -> float:
    try:
        with open(_FILE) as file:
            return float(file.read() or 0)
    except OSError:
        return 0.0


time.time = lambda: _NOW() + _ahead()
time.time_ns = lambda: _NOW_NS() + int(_ahead() * 1e9)
