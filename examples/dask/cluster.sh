#!/bin/sh
# A Dask cluster for one script: the scheduler and the script on rank 0's node, a worker on every node.
#
#   srun mingle exec sh cluster.sh python analysis.py
#
# The script stays as it is: Client() takes the scheduler's address from DASK_SCHEDULER_ADDRESS. When it ends, all end
# with its status. Workers wait for the scheduler for a minute.
case $MASTER_ADDR in
*:*) address="tcp://[$MASTER_ADDR]:$MASTER_PORT" ;; # IPv6
*) address="tcp://$MASTER_ADDR:$MASTER_PORT" ;;
esac
[ "$NODE_RANK" = 0 ] || exec dask worker "$address" --death-timeout 60

dask scheduler --host "$address" --no-dashboard &
scheduler=$!
dask worker "$address" --death-timeout 60 &
DASK_SCHEDULER_ADDRESS=$address "$@"
status=$?
kill "$scheduler" # it ends the workers
wait
exit "$status"
