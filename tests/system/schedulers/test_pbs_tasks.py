"""Tasks of pbsdsh and pbs_tmrsh in a user's own script, under the stand-in and under a real PBS."""

import json
from collections.abc import Callable

from cluster.paths import BIN
from cluster.pbs import PbsStandIn
from cluster.real_pbs import RealPbs

Pbs = PbsStandIn | RealPbs
Start = Callable[..., Pbs]


PATH = f"PATH={BIN}:/usr/bin:/bin; export PATH"
NAMES = (
    *("PBS_NODENUM", "PBS_TASKNUM", "NODE_RANK", "NNODES", "LOCAL_WORLD_SIZE"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MINGLE_WORLD"),
)
SHOW = f"""
import json, os
line = json.dumps({{"HOST": os.uname().nodename, **{{n: os.environ.get(n) for n in {NAMES!r}}}}})
# Not to standard output: pbs_demux copies 256 octets at a time, and so cuts the lines of one task by another's.
with open(os.path.dirname(__file__) + "/shown", "a") as file:
    file.write(line + "\\n")
"""


def shown(pbs: Pbs, body: str, *, hosts: int, slots: int = 1) -> list[dict[str, str | None]]:
    """Run a script with so many hosts and slots on each; return what `show`, a program, saw, by host and task."""
    (pbs.place / "show.py").write_text(SHOW)
    head = f"#!/bin/bash\n#PBS -l select={hosts}:ncpus={slots}:mpiprocs={slots}\n#PBS -l place=scatter\n"
    text = body.replace("show", f"python3 {pbs.place}/show.py").replace("PREPARE", PATH)
    job = pbs.submit(f"{head}\n{text}\n", cwd=str(pbs.place))
    assert pbs.wait(job) == 0, pbs.output(job)
    tasks = [json.loads(line) for line in (pbs.place / "shown").read_text().splitlines()]
    return sorted(tasks, key=lambda each: (each["HOST"], each["PBS_TASKNUM"]))


def worlds(tasks: list[dict[str, str | None]]) -> list[list[dict[str, str | None]]]:
    """Return the members of each world, which all agree on it, each with its own host's rank."""
    found = [[one for one in tasks if one["MINGLE_WORLD"] == world] for world in {one["MINGLE_WORLD"] for one in tasks}]
    for members in found:
        for name in ("NNODES", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            assert len({each[name] for each in members}) == 1, (name, members)
        assert all(each["MINGLE_WORLD"] and each["NODE_RANK"] == each["PBS_NODENUM"] for each in members), members
    return found


def test_tasks_of_pbsdsh_are_one_world(any_pbs: Start) -> None:
    """With one line for each host, `pbsdsh -- bash -lc 'eval "$(mingle env)"; …'` is all that a script needs."""
    one, other = (f"bash -c 'PREPARE; {each}'" for each in ('eval "$(mingle env)"; show', "exec mingle exec show"))
    tasks = shown(any_pbs(3), f"pbsdsh -- {one}\npbsdsh -n 2 -- {other} & pbsdsh -c 2 -- {other}; wait", hosts=3)
    first, second = worlds(tasks)
    for members in (first, second):
        assert [each["HOST"] for each in members] == ["node1", "node2", "node3"]
        assert {each["WORLD_SIZE"] for each in members} == {"3"}


def test_slots_count_where_one_task_on_each_host_asks(any_pbs: Start) -> None:
    """pbs_tmrsh starts one on a host, and the node file tells how many processes it is for."""
    task = "bash -c 'PREPARE; eval \"$(mingle env --scope node)\"; show'"
    body = f"for host in node1 node2; do pbs_tmrsh $host {task} & done; wait"
    tasks = shown(any_pbs(2, slots=2), body, hosts=2, slots=2)
    assert len(worlds(tasks)) == 1
    seen = [(each["HOST"], each["LOCAL_WORLD_SIZE"], each["WORLD_SIZE"]) for each in tasks]
    assert seen == [("node1", "2", "4"), ("node2", "2", "4")]


def test_a_task_for_each_slot_has_its_rank(any_pbs: Start) -> None:
    """With several lines for each host, --scope task makes one world of all, also when started once more."""
    each = 'eval "$(mingle env --scope task)"; show', "exec mingle exec --scope task -- show"
    first, again = (f"pbsdsh -- bash -c 'PREPARE; {one}'" for one in each)
    tasks = shown(any_pbs(2, slots=2), f"{first}\npbs_tmrsh node1 true\n{again}", hosts=2, slots=2)
    found = [sorted(f"{one['RANK']} {one['LOCAL_RANK']} {one['HOST']}" for one in members) for members in worlds(tasks)]
    assert found == [["0 0 node1", "1 1 node1", "2 0 node2", "3 1 node2"]] * 2
