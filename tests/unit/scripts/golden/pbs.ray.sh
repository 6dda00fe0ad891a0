#!/bin/bash
# Made by: mingle template pbs (mingle-hooks 1.0.0)
#PBS -N train
#PBS -S /bin/bash
#PBS -l select=2:ncpus=32:mpiprocs=4:ngpus=4:mem=64gb
#PBS -l place=scatter
#PBS -l walltime=04:00:00
#PBS -A physics
#PBS -j oe
#PBS -r n

cd -- "$PBS_O_WORKDIR" || exit
module load cuda/12.4 || exit
. venv/bin/activate
command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
# On every node, in this environment; its output comes here, and the first failure's status is the job's.
exec mingle run --for ray,nccl,gloo --slots 4 --warn 120 --limit "$((14400 - SECONDS))" -- \
  ray symmetric-run -- python3 train.py --lr 1e-3
