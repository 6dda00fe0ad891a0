#!/bin/bash
# Four nodes that are one Ray cluster for one script, which stays as it is: ray.init() finds the cluster.
#
#   sbatch train.sh
#
# Ray starts the head on rank 0's node, waits for the other nodes, and runs the script there. mingle adds the address
# and the number of nodes, as it does to `ray start`, for a cluster that stays: srun mingle exec ray start --block
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
srun mingle exec ray symmetric-run -- python train.py
