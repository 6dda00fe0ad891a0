"""Loaded by every Python of a test that trains: none of the million objects that importing torch makes is garbage."""

import atexit
import gc

gc.disable()  # it would take a third of such a process's time
atexit.register(gc.freeze)  # nor at its end
