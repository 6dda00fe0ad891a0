"""store.py ADDRESS PORT RANK SIZE: pass a barrier of torch's TCPStore, and be COMMAND."""

import sys
import time

from torch.distributed import TCPStore
from work import work

address, port, rank, size = sys.argv[1], *map(int, sys.argv[2:])
began_s = time.monotonic()
store = TCPStore(address, port, size, is_master=rank == 0)
if store.add("in", 1) == size:
    store.set("all", "in")
store.wait(["all"])
work(size, began_s)
