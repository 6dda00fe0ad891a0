#!/bin/bash
# Made by: mingle template sbatch --no-environment --account myproject --setup '. venv/bin/activate' --nodes 1+2 --gpus-per-node a100:4+v100:2 --time 4:00:00 -- train.py --lr 0.1 (mingle-hooks 1.0.0)
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=a100:4
#SBATCH --time=04:00:00
#SBATCH --account=myproject
#SBATCH --signal=B:USR1@120
#SBATCH hetjob
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=v100:2

. venv/bin/activate
command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
# On every node, in this environment; its output comes here, and the first failure's status is the job's.
exec mingle run --for torchrun,nccl,gloo --slots gpus --warn 120 --limit "$((14400 - SECONDS))" -- \
  torchrun train.py --lr 0.1
