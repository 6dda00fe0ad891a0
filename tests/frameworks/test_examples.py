"""The examples for frameworks that are no launchers of training."""

import sys
from collections.abc import Callable
from pathlib import Path

from cluster.hosts import Hosts
from needs import need

from frameworks import runs
from frameworks.rows import ROWS, SCRIPTS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LONGEST_S = 240


def test_dask_has_its_scheduler_on_rank_0_and_a_worker_on_each_node(hosts: Callable[..., Hosts]) -> None:
    """The real Dask runs, and every process ends when the script does."""
    need("distributed")
    two, script = hosts(2), EXAMPLES / "dask/cluster.sh"
    env = {**runs.KEY, **runs.ENV, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    line = ["--id", "dask", "--nodes", "2", "sh", str(script), "python", str(SCRIPTS / "train_dask.py"), "2"]
    seen = runs.on_all(two, lambda n: runs.ended(two[n], ["mingle", "exec", "--rank", str(n), *line], env, LONGEST_S))
    assert (seen.verdict(2), seen.codes) == ("", [0, 0]), seen


def test_the_example_for_ray_has_the_line_that_is_tried() -> None:
    """`make frameworks` runs it with the real Ray, on three hosts and under Slurm."""
    (row,) = [row for row in ROWS if row.name == "Ray"]
    line = (EXAMPLES / "ray/train.sh").read_text().splitlines()[-1]
    assert line == "srun mingle exec " + row.line.replace("train_ray.py {size}", "train.py")
