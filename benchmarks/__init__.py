"""Benchmarks: `make bench` prints and saves figures. Nothing here is a test, for machines are noisy."""
