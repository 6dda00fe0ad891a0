#!/bin/bash
# Made by: mingle template torque (mingle-hooks 1.0.0)
#PBS -N train
#PBS -S /bin/bash
#PBS -l nodes=2:ppn=32:gpus=4
#PBS -l mem=128gb
#PBS -l walltime=04:00:00
#PBS -A physics
#PBS -j oe
#PBS -r n

cd -- "$PBS_O_WORKDIR" || exit
module load cuda/12.4 || exit
. venv/bin/activate
command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
# On every node, in this environment; its output comes here, and the first failure's status is the job's.
exec mingle run --warn 120 --limit "$((14400 - SECONDS))" -- \
  mpirun --tag-output -x MINGLE_KEY -x PATH -x LD_LIBRARY_PATH mingle exec --scope task --for nccl,gloo python3 train.py --lr 1e-3
