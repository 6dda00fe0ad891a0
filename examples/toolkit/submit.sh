#!/bin/sh
# Four replicas of Toolkit that train as one world. Once, in the home that all replicas mount:
#
#   umask 077; mkdir -p ~/.config/mingle && mingle key > ~/.config/mingle/key
#
# Then, with another name for each run:
#
#   sh submit.sh exp7
#
# The image has mingle and torchrun, and train.py, such as ../train.py, is in the home's train/. Toolkit starts the
# command on every replica and tells it RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: mingle keeps to these, adds what
# torchrun reads, and starts it once all four are in. The replica of RANK 0 leads. The others find it by --master, as
# only that port may be open. WORLD_SIZE counts replicas here, and processes for torchrun: so it is handed on as
# --nodes.
id=${1:?the name of this run}
# shellcheck disable=SC2016 # the replica's shell puts in what Toolkit told it
exec eai job new --replicas 4 --gpu 8 --cpu 64 --mem 512 --image registry.example.org/train:1 \
  --data my_org.my_account.home:/home/toolkit:rw --env HOME=/home/toolkit --workdir /home/toolkit/train \
  --env "MINGLE_ID=$id" --env GPUS_PER_NODE=8 \
  -- sh -c 'exec env -u WORLD_SIZE \
    mingle exec --nodes "$WORLD_SIZE" --master "$MASTER_ADDR:$MASTER_PORT" torchrun train.py'
