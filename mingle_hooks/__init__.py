"""Mingle Hooks: the same rank 0, address and port on every node of a job."""

__version__ = "0.1.0"
