"""torchrun's own options beside a world of two nodes: what contradicts it is refused by its name."""

from __future__ import annotations

import pytest

from mingle_hooks.errors import UsageError
from mingle_hooks.export import launchers
from mingle_hooks.job import member_spec

JOB = {"id": "a", "nodes": "2", "rank": "1"}


@pytest.mark.parametrize(
    "words",
    [
        "torchrun --standalone train.py",
        "torchrun --nnodes=1 --nproc_per_node=8 train.py",
        "torchrun --nproc-per-node 8 --nnodes 1 train.py",
        "torchrun --nnodes 3:4 train.py",
        "torchrun --nnodes=x train.py",
        "torchrun --node_rank=0 train.py",
        "torchrun --master_addr localhost train.py",
        "torchrun --rdzv-endpoint=127.0.0.1:29500 train.py",
        "python3 -m torch.distributed.run --standalone train.py",
        "/opt/bin/torchrun --no-python --standalone program",
    ],
)
def test_an_option_that_takes_torchrun_out_of_the_world_is_refused(words: str) -> None:
    """It would train once on every node, and end with 0."""
    with pytest.raises(UsageError, match=r"in the world of 2 nodes; saw --.* train alone"):
        launchers.check_command(words.split(), member_spec({}, JOB))


@pytest.mark.parametrize(
    "words",
    [
        "torchrun train.py --standalone --nnodes 1",
        "torchrun -m pkg.train --standalone",
        "torchrun --nproc-per-node 8 --max-restarts=3 train.py",
        "torchrun --nnodes=1:2 --nproc-per-node=gpu train.py",
        "torchrun --nnodes 2 --node-rank 1 --master-addr node1 train.py",
        "torchrun",
        "torchrun --nproc-per-node",
        "python3 train.py --standalone",
    ],
)
def test_other_options_and_the_scripts_own_are_left_alone(words: str) -> None:
    """What stands behind the script is the script's."""
    launchers.check_command(words.split(), member_spec({}, JOB))
