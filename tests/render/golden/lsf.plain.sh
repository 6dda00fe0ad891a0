#!/bin/bash
# Made by: mingle template lsf (mingle-hooks 0.1.0)
#BSUB -J train
#BSUB -n 8
#BSUB -R "span[ptile=4] affinity[core(8)] rusage[mem=64GB/host]"
#BSUB -gpu "num=4/host"
#BSUB -W 4:00
#BSUB -P physics
#BSUB -wa USR1 -wt 2

# Every host starts with an empty environment, and gets its own here.
prepare() {
  cd -- "$LS_SUBCWD" || exit
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
  eval "$(mingle env --for nccl,gloo --slots 4 && echo mingle_world=yes || echo exit 1)"
  [ "$mingle_world" ] || exit 1 # ended before it could say so
  python3 train.py --lr 1e-3
  mingle_status=$?
  echo "$(uname -n): node $NODE_RANK of $NNODES, $LOCAL_WORLD_SIZE of $WORLD_SIZE processes, rank 0 at $MASTER_ADDR port $MASTER_PORT: status $mingle_status after $SECONDS s" >&2
  return "$mingle_status"
}

# tell SIGNAL: to the training processes of this job on this host. They have a world in their environment.
tell() {
  grep -lszxF "LSB_BATCH_JID=$LSB_BATCH_JID" /proc/[0-9]*/environ | while read -r mingle_file; do
    grep -qsz '^MINGLE_WORLD=' "$mingle_file" && kill "-$1" "${mingle_file//[!0-9]/}"
  done
}

# With the host's name before each line: the scheduler mixes the output of all hosts into one file.
labelled() {
  trap : TERM # the training gets it too, and this shell waits until it has saved
  # The training may write when nobody takes its output any more, and must not end by that before it has saved.
  node 2>&1 | (trap '' TERM; sed -u "s/^/$(uname -n): /"; cat >/dev/null)
  mingle_status=${PIPESTATUS[0]}
  return "$mingle_status"
}

mapfile -t hosts < <(awk '!seen[$0]++' "$LSB_DJOB_HOSTFILE")
# on HOST LINE: by a file, as sites differ in whether a shell reads blaunch's words once more.
on() {
  mingle_file=$(mktemp "$LS_SUBCWD/.mingle.XXXXXX") && printf '%s\n' "$2" >"$mingle_file" && blaunch "$1" bash -l "$mingle_file"
  set -- "$?"
  rm -f "$mingle_file"
  return "$1"
}
tell_all() {
  for mingle_host in "${hosts[@]}"; do on "$mingle_host" "$(declare -f tell); tell $1" & done
}
trap 'tell_all TERM' TERM
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
