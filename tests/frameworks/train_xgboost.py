"""`python train_xgboost.py SIZE`: a booster over all workers, with the tracker beside rank 0."""

import os
import sys

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
address, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip=address, port=port, sortby="task")
    tracker.start()
with collective.CommunicatorContext(
    dmlc_tracker_uri=address, dmlc_tracker_port=port, dmlc_task_id=str(rank), dmlc_retry=10
):
    found = collective.get_rank(), collective.get_world_size()
    random = np.random.default_rng(rank)
    data = xgboost.DMatrix(random.normal(size=(32, 4)), label=random.normal(size=32))
    xgboost.train({"nthread": 1}, data, num_boost_round=3)
    total = int(collective.allreduce(np.array([rank + 1.0]), collective.Op.SUM)[0])
if rank == 0:
    tracker.wait_for(timeout=60)  # the others still take their leave of it
assert (*found, total) == (rank, int(sys.argv[1]), size * (size + 1) // 2), found
print(f"TRAINED rank={rank} size={size}", flush=True)
