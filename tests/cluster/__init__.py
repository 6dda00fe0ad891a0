"""Hosts in network namespaces, and a real Slurm on them: what the tests of this project run on."""
