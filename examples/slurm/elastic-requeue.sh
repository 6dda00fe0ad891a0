#!/bin/bash
# Made by: mingle template sbatch --no-environment --account myproject --setup '. venv/bin/activate' --nodes 2 --gpus-per-node 4 --time 4:00:00 --launcher torchrun-elastic --max-restarts 3 --requeue --signal USR1@300 -- train.py --lr 0.1 (mingle-hooks 1.0.0)
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --time=04:00:00
#SBATCH --account=myproject
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

. venv/bin/activate
command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
# On every node, in this environment; its output comes here, and the first failure's status is the job's.
exec mingle run --for torchrun-elastic,nccl,gloo --slots 4 --warn 300 --limit "$((14400 - SECONDS))" --again "scontrol requeue $SLURM_JOB_ID" -- \
  torchrun --max-restarts=3 train.py --lr 0.1
