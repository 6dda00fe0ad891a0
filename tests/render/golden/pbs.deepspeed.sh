#!/bin/bash
# Made by: mingle template pbs (mingle-hooks 0.1.0)
#PBS -N train
#PBS -S /bin/bash
#PBS -l select=2:ncpus=32:mpiprocs=4:ngpus=4:mem=64gb
#PBS -l place=scatter
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

# Every node, once: what it runs.
node() {
  trap '' USR1 # the warning: launchers ignore it, a training script that handles it still gets it
  trap : TERM # the training gets it too, and this shell waits until it has saved
  prepare
  mingle_world=
  eval "$(mingle env --for deepspeed,nccl,gloo --slots 4 && echo mingle_world=yes || echo exit 1)"
  [ "$mingle_world" ] || exit 1 # ended before it could say so
  deepspeed --hostfile "$MINGLE_HOSTFILE" --no_ssh --node_rank "$NODE_RANK" \
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" train.py --lr 1e-3
  mingle_status=$?
  echo "$(uname -n): node $NODE_RANK of $NNODES, $LOCAL_WORLD_SIZE of $WORLD_SIZE processes, rank 0 at $MASTER_ADDR port $MASTER_PORT: status $mingle_status after $SECONDS s" >&2
  return "$mingle_status"
}

# tell SIGNAL: to the training processes of this job on this host. They have a world in their environment.
tell() {
  grep -lszxF "PBS_JOBID=$PBS_JOBID" /proc/[0-9]*/environ | while read -r mingle_file; do
    grep -qsz '^MINGLE_WORLD=' "$mingle_file" && kill "-$1" "${mingle_file//[!0-9]/}"
  done
}

# With the host's name before each line: the scheduler mixes the output of all hosts into one file.
labelled() {
  trap : TERM # the training gets it too, and this shell waits until it has saved
  # qdel and the time limit reach the first host only. There they end pbs_demux, to which all tasks of a job of
  # several hosts write, and then none can be started any more. So each waits for the end of that connection.
  [ ! -S /dev/stdout ] || (read -r <&1; sleep 1; tell TERM) & # not on the first host: PBS ended this too by then
  watch=$!
  # The training may write when nobody takes its output any more, and must not end by that before it has saved.
  node 2>&1 | (trap '' TERM; sed -u "s/^/$(uname -n): /"; cat >/dev/null)
  mingle_status=${PIPESTATUS[0]}
  kill "$watch" 2>/dev/null
  return "$mingle_status"
}

mapfile -t hosts < <(awk '!seen[$0]++' "$PBS_NODEFILE")
on() { pbs_tmrsh "$1" bash -lc "$2"; } # HOST LINE; a login shell, as PBS hands on no PATH
tell_all() {
  for mingle_host in "${hosts[@]}"; do on "$mingle_host" "$(declare -f tell); tell $1" & done
}
trap : TERM # the other hosts see it by themselves
trap 'tell_all USR1' USR1
(sleep 14280; kill -USR1 $$) & # 120 s before the time limit
# All hosts at once. The first that fails has the others stopped, and its status is the job's.
exec 3>&1
mingle_status=0
while read -r mingle_ended; do
  if ((mingle_ended && !mingle_status)); then
    mingle_status=$mingle_ended TMOUT=30 # s, for which `read` waits for the others: when this script ends, so do they
    tell_all TERM
  fi
done < <(
  trap '' TERM USR1 # for this shell only; training gets them by tell
  for mingle_host in "${hosts[@]}"; do
    {
      on "$mingle_host" "$(declare -f prepare node labelled tell); labelled" >&3
      echo "$?"
    } &
  done
  wait
)
(exit "$mingle_status")
