#!/bin/bash
# Made by: mingle template torque (mingle-hooks 0.1.0)
#PBS -N train
#PBS -S /bin/bash
#PBS -l nodes=2:ppn=32:gpus=4
#PBS -l mem=128gb
#PBS -l walltime=04:00:00
#PBS -A physics
#PBS -j oe
#PBS -r n

# Every host starts with an empty environment, and gets its own here.
prepare() {
  cd -- "$PBS_O_WORKDIR" || exit
  module load cuda/12.4 || exit
  . venv/bin/activate
  command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
}

# Every process of the job: what it runs.
task() {
  trap '' USR1 # the warning: launchers ignore it, a training script that handles it still gets it
  trap : TERM # the training gets it too, and this shell waits until it has saved
  prepare
  mingle_world=
  eval "$(mingle env --scope task --for nccl,gloo && echo mingle_world=yes || echo exit 1)"
  [ "$mingle_world" ] || exit 1 # ended before it could say so
  python3 train.py --lr 1e-3
  mingle_status=$?
  echo "$(uname -n): rank $RANK of $WORLD_SIZE, rank 0 at $MASTER_ADDR port $MASTER_PORT: status $mingle_status after $SECONDS s" >&2
  return "$mingle_status"
}

prepare
(sleep 14280; kill -USR1 $$) & # 120 s before the time limit
mpirun --tag-output \
  bash -c "$(declare -f prepare task); task" &
mingle_training=$!
# The warning comes to this shell, which hands it on and waits until the training has saved.
trap 'kill -USR1 "$mingle_training"' USR1
trap 'kill -TERM "$mingle_training"' TERM
wait "$mingle_training"
mingle_status=$?
while kill -0 "$mingle_training" 2>/dev/null; do wait "$mingle_training"; mingle_status=$?; done # a signal ends `wait` only
(exit "$mingle_status")
