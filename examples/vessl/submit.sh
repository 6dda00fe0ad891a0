#!/bin/sh
# Four workers of VESSL that train as one world. On your own machine, in the directory that has train.py:
#
#   sh submit.sh exp7
#
# with another name for each run. The image has mingle and torchrun, and ../train.py will do as train.py. VESSL starts
# the command on every worker and tells it RANK, NUM_NODES, MASTER_ADDR and MASTER_PORT: mingle keeps to these, adds
# what torchrun reads, and starts it once all four are in. The worker of RANK 0 leads. The others find it by --master,
# as only that port may be open.
id=${1:?the name of this run}
key=$(mingle key) || exit # for this run only
# shellcheck disable=SC2016 # the worker's shell puts in what VESSL told it
exec vessl experiment create \
  --cluster my-cluster --resource my-gpus --image-url registry.example.org/train:1 \
  --worker-count 4 --framework-type pytorch \
  --upload-local-file .:/root/local --working-dir /root/local \
  --secret "MINGLE_KEY=$key" \
  --command "mingle exec --id $id"' --master "$MASTER_ADDR:$MASTER_PORT" torchrun train.py'
