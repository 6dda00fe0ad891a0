#!/bin/bash
# Made by: mingle template sge (mingle-hooks 1.0.0)
#$ -N train
#$ -S /bin/bash
#$ -pe mpi 64
#$ -l gpu=4
#$ -l h_vmem=2G
#$ -l h_rt=04:00:00
#$ -P physics
#$ -j y
#$ -r n
#$ -cwd

cd -- "$SGE_O_WORKDIR" || exit
module load cuda/12.4 || exit
. venv/bin/activate
command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
# On every node, in this environment; its output comes here, and the first failure's status is the job's.
exec mingle run --for nccl,gloo --slots 4 --warn 120 --limit "$((14400 - SECONDS))" -- \
  accelerate launch train.py --lr 1e-3
