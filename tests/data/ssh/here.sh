#!/bin/sh
# Starts the command here, whatever the host's name, but for `down`.
while case $1 in -*) ;; *) false ;; esac; do
    case $1 in -o) shift 2 ;; *) shift ;; esac
done
[ "$1" != down ] || { echo "ssh: connect to host down port 22: No route to host" >&2; exit 255; }
shift
exec sh -c "$*"
