#!/bin/bash
# Made by: mingle template pbs --no-environment --account myproject --setup '. venv/bin/activate' --nodes 1+2 --gpus-per-node a100:4+v100:2 --time 4:00:00 -- train.py --lr 0.1 (mingle-hooks 1.0.0)
#PBS -N train
#PBS -S /bin/bash
#PBS -l select=1:ncpus=4:mpiprocs=4:ngpus=4:gpu_type=a100+2:ncpus=2:mpiprocs=2:ngpus=2:gpu_type=v100
#PBS -l place=scatter
#PBS -l walltime=04:00:00
#PBS -A myproject
#PBS -j oe
#PBS -r n

cd -- "$PBS_O_WORKDIR" || exit
. venv/bin/activate
command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
# On every node, in this environment; its output comes here, and the first failure's status is the job's.
exec mingle run --for torchrun,nccl,gloo --slots gpus --warn 120 --limit "$((14400 - SECONDS))" -- \
  torchrun train.py --lr 0.1
