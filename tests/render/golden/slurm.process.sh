#!/bin/bash
# Made by: mingle template slurm (mingle-hooks 0.1.0)
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --mem=64G
#SBATCH --time=04:00:00
#SBATCH --account=physics
#SBATCH --signal=USR1@120

# srun hands this environment to every node.
module load cuda/12.4 || exit
. venv/bin/activate

command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
MINGLE_KEY=$(mingle key) || exit # only this job's processes have it
export MINGLE_KEY

# Every process of the job: what it runs.
task() {
  trap '' USR1 # the warning: launchers ignore it, a training script that handles it still gets it
  trap 'exit 1' TERM # no training yet; srun returns the highest status, which is then the first failure's own
  trap '[ "$?" != 143 ] || exit 1' EXIT # as mingle may hear of it before this shell does
  mingle_world=
  eval "$(mingle env --scope task --for nccl,gloo && echo mingle_world=yes || echo exit 1)"
  [ "$mingle_world" ] || exit 1 # ended before it could say so
  mingle_stopped=0
  trap - EXIT
  trap 'mingle_stopped=1' TERM # the training gets it too, and this shell waits until it has saved
  python3 train.py --lr 1e-3
  mingle_status=$?
  trap '' TERM # the training has ended: nothing is to end what says so
  echo "$(uname -n): rank $RANK of $WORLD_SIZE, rank 0 at $MASTER_ADDR port $MASTER_PORT: status $mingle_status after $SECONDS s" >&2
  [ "$mingle_status" != 143 ] || mingle_stopped=1 # TERM, which may reach this shell after the training has ended
  return "$((mingle_stopped && mingle_status ? 1 : mingle_status))"
}

srun --export=ALL --kill-on-bad-exit=1 --label --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  bash -c "$(declare -f task); task"
