#!/bin/bash
# Made by: mingle template sbatch --no-environment --account myproject --setup '. venv/bin/activate' --nodes 2 --gpus-per-node 4 --cpus-per-task 8 --time 4:00:00 -- train.py --lr 0.1 (mingle-hooks 0.1.0)
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --time=04:00:00
#SBATCH --account=myproject
#SBATCH --signal=USR1@120

# srun hands this environment to every node.
. venv/bin/activate

command -v mingle >/dev/null || { echo "$(uname -n): no mingle on PATH: install it where all nodes see it, or add a --setup line that finds it" >&2; exit 69; }
MINGLE_KEY=$(mingle key) || exit # only this job's processes have it
export MINGLE_KEY

# Every node, once: what it runs.
node() {
  trap '' USR1 # the warning: launchers ignore it, a training script that handles it still gets it
  trap 'exit 1' TERM # no training yet; srun returns the highest status, which is then the first failure's own
  trap '[ "$?" != 143 ] || exit 1' EXIT # as mingle may hear of it before this shell does
  mingle_world=
  eval "$(mingle env --for torchrun,nccl,gloo --slots 4 && echo mingle_world=yes || echo exit 1)"
  [ "$mingle_world" ] || exit 1 # ended before it could say so
  mingle_stopped=0
  trap - EXIT
  trap 'mingle_stopped=1' TERM # the training gets it too, and this shell waits until it has saved
  torchrun train.py --lr 0.1
  mingle_status=$?
  trap '' TERM # the training has ended: nothing is to end what says so
  echo "$(uname -n): node $NODE_RANK of $NNODES, $LOCAL_WORLD_SIZE of $WORLD_SIZE processes, rank 0 at $MASTER_ADDR port $MASTER_PORT: status $mingle_status after $SECONDS s" >&2
  [ "$mingle_status" != 143 ] || mingle_stopped=1 # TERM, which may reach this shell after the training has ended
  return "$((mingle_stopped && mingle_status ? 1 : mingle_status))"
}

srun --export=ALL --kill-on-bad-exit=1 --label --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  bash -c "$(declare -f node); node"
