#!/bin/bash
# Made by: mingle template lsf (mingle-hooks 1.0.0)
#BSUB -J train
#BSUB -n 8
#BSUB -R "span[ptile=4] affinity[core(8)] rusage[mem=64GB/host]"
#BSUB -gpu "num=4/host"
#BSUB -W 4:00
#BSUB -P physics
#BSUB -wa USR1 -wt 2

cd -- "$LS_SUBCWD" || exit
module load cuda/12.4 || exit
. venv/bin/activate
command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
# On every node, in this environment; its output comes here, and the first failure's status is the job's.
exec mingle run --scope task --for nccl,gloo --warn 120 --limit "$((14400 - SECONDS))" -- \
  python3 train.py --lr 1e-3
