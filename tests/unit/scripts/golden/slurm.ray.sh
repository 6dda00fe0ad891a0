#!/bin/bash
# Made by: mingle template slurm (mingle-hooks 1.0.0)
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --mem=64G
#SBATCH --time=04:00:00
#SBATCH --account=physics
#SBATCH --signal=B:USR1@120

module load cuda/12.4 || exit
. venv/bin/activate
command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
# On every node, in this environment; its output comes here, and the first failure's status is the job's.
exec mingle run --for ray,nccl,gloo --slots 4 --warn 120 --limit "$((14400 - SECONDS))" -- \
  ray symmetric-run -- python3 train.py --lr 1e-3
