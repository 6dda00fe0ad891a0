#!/bin/sh
# task.sh PLACE SUFFIX OFFSETS COMMAND...: start COMMAND after this host's offset, in seconds, and keep its status and
# what it wrote in PLACE.
place=$1 suffix=$2 offsets=$3
shift 3
read -r host </proc/sys/kernel/hostname
name=$host$suffix
sleep "$(echo "$offsets" | cut -d , -f "${host#node}")"
: >"$place/began.$name"
"$@" >"$place/out.$name" 2>"$place/err.$name" </dev/null
echo $? >"$place/ended.$name"
mv "$place/ended.$name" "$place/status.$name"
