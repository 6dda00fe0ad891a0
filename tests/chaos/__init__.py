"""Random schedules of faults on real hosts with a real Slurm, and the simulator's rules for them."""
