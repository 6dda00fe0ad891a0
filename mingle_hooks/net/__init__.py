"""What this host has: interfaces, InfiniBand ports, GPUs, free ports."""
