"""`python train_tensorflow.py SIZE`: MultiWorkerMirroredStrategy, which reads TF_CONFIG."""

import sys

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank, size = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
with strategy.scope():
    weight = tf.Variable(1.0)


@tf.function
def step() -> tf.Tensor:
    """Sum rank + 1 over all workers."""
    return strategy.reduce("sum", strategy.run(lambda: tf.constant(rank + 1.0)), axis=None)


total = int(step())
assert (size, total) == (int(sys.argv[1]), size * (size + 1) // 2), f"rank {rank} of {size}"
print(f"TRAINED rank={rank} size={size}", flush=True)
