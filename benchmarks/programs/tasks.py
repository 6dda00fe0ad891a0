"""tasks.py: COMMAND as a task of Ray on each of its nodes; the first one that fails ends all."""

import os
import sys

import ray


@ray.remote(num_cpus=0, max_retries=0)  # type: ignore[untyped-decorator, unused-ignore]  # without Ray here
def task(programs: str, size: int, place: str) -> None:
    """Be COMMAND."""
    sys.path.append(programs)
    os.environ["UP"] = place
    from work import work

    work(size)


ray.init(address="auto", log_to_driver=False)
nodes = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call, unused-ignore]
here = os.path.dirname(os.path.abspath(__file__))
left = [task.options(resources={f"node:{node}": 0.01}).remote(here, len(nodes), os.environ["UP"]) for node in nodes]
while left:
    done, left = ray.wait(left)
    ray.get(done)
