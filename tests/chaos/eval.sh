#!/bin/bash
# eval.sh KEPT OPTIONS... -- COMMAND...: what users type around mingle env; its text is kept.
kept=$1 options=()
shift
while [ "$1" != -- ]; do
  options+=("$1")
  shift
done
shift
read -r host </proc/sys/kernel/hostname
text=$(mingle env "${options[@]}" || echo "exit $?")
printf '%s\n' "$text" >"$kept.$host.$$"
eval "$text"
exec "$@"
