#!/bin/sh
# train.sh PLACE JOB SECONDS [stubborn]: the training: keep the world that it got in PLACE, and go on for a while.
[ "${4-}" != stubborn ] || trap '' TERM
read -r host </proc/sys/kernel/hostname
file=$2.$host.$$
echo "$MINGLE_ID $MINGLE_WORLD $MASTER_ADDR $MASTER_PORT $NNODES $NODE_RANK $MINGLE_RANK_OFFSET $LOCAL_WORLD_SIZE" \
  "$WORLD_SIZE" >"$1/new.$file"
mv "$1/new.$file" "$1/world.$file"
# The second number tells this sleep from all others.
[ "$2" = first ] || exec sleep "$3"
exec sleep "$3" 0.000771
