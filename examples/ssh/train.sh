#!/bin/sh
# Four machines without a scheduler that train as one world. Once, make a key and copy it to the same place on each:
#
#   umask 077; mkdir -p ~/.config/mingle && mingle key > ~/.config/mingle/key
#
# Then on each of the four, in any order:
#
#   ssh node1 'cd train && sh train.sh'
#
# They find each other by multicast. Where the network carries none, as in most clouds, name one of them on all four:
# MINGLE_MASTER=node1 sh train.sh. --id is any name that no other run has at the same time.
exec mingle exec --id exp7 --nodes 4 torchrun train.py
