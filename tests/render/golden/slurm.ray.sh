#!/bin/bash
# Made by: mingle template slurm (mingle-hooks 0.1.0)
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
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

# Every node, once: what it runs.
node() {
  trap '' USR1 # the warning: launchers ignore it, a training script that handles it still gets it
  trap 'exit 1' TERM # no training yet; srun returns the highest status, which is then the first failure's own
  trap '[ "$?" != 143 ] || exit 1' EXIT # as mingle may hear of it before this shell does
  mingle_world=
  eval "$(mingle env --for ray,nccl,gloo --slots 4 && echo mingle_world=yes || echo exit 1)"
  [ "$mingle_world" ] || exit 1 # ended before it could say so
  mingle_stopped=0
  trap - EXIT
  trap 'mingle_stopped=1' TERM # the training gets it too, and this shell waits until it has saved
  if ((NODE_RANK == 0)); then
    ray start --head --node-ip-address="$MASTER_ADDR" --port="$MASTER_PORT" --block &
    until ray status >/dev/null 2>&1 || ! kill -0 $!; do sleep 1; done
    python3 train.py --lr 1e-3
    mingle_ended=$?
    kill $!
  else
    ray start --address="$RAY_ADDRESS" --block &
    head_answers() { (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; }
    mingle_up=0 # until the head has answered; when it does no more, the driver is done
    while kill -0 $! 2>/dev/null; do
      if head_answers; then mingle_up=1; elif ((mingle_up)); then break; fi
      sleep 1
    done
    pkill -KILL -P $! # TERM would wait for the head
    kill -KILL $! 2>/dev/null
    wait $!
    mingle_ended=$?
    ((!mingle_up)) || head_answers || mingle_ended=0
  fi
  wait $!
  (exit "$mingle_ended")
  mingle_status=$?
  trap '' TERM # the training has ended: nothing is to end what says so
  echo "$(uname -n): node $NODE_RANK of $NNODES, $LOCAL_WORLD_SIZE of $WORLD_SIZE processes, rank 0 at $MASTER_ADDR port $MASTER_PORT: status $mingle_status after $SECONDS s" >&2
  [ "$mingle_status" != 143 ] || mingle_stopped=1 # TERM, which may reach this shell after the training has ended
  return "$((mingle_stopped && mingle_status ? 1 : mingle_status))"
}

srun --export=ALL --kill-on-bad-exit=1 --label --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  bash -c "$(declare -f node); node"
