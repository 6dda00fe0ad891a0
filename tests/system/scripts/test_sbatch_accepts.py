"""What the real sbatch takes: scripts of every launcher with combinations of all options, on a Slurm with GPUs."""

import random
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster import slurm as cluster_slurm
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from light import BIN, TRAIN as LIGHT
from support.needs import skip_for_want_of
from support.recorded import FOLDER

from mingle_hooks.errors import UsageError
from mingle_hooks.files import toml
from mingle_hooks.scripts.job import LAUNCHERS, SAME
from mingle_hooks.scripts.script import describe, render_script as render

JOB_S = 120.0
TABLE = toml((FOLDER.parent / "sbatch.toml").read_bytes())
VALUES: dict[str, list[Any]] = {"launcher": [*LAUNCHERS], **TABLE["values"]}
SEED, SCRIPTS = 4, 250


def drawn() -> list[tuple[dict[str, Any], str]]:
    """Return descriptions with values drawn for all options, and their scripts: the same in every run.

    An option that is refused, by its name, is left out.
    """
    draw = random.Random(SEED)
    made = []
    for _ in range(SCRIPTS):
        options = {name: draw.choice(values) or None for name, values in VALUES.items()}
        while isinstance(text := rendered(options), UsageError):
            named = [name for name in VALUES if re.search(rf"--{name}\b(?!-)", str(text)) and options[name]]
            # "One group of nodes" is said of --nodes, whichever option has two values.
            grouped = [name for name, value in options.items() if "+" in str(value)]
            # And what a total says of one node, of that.
            made_of = [total for total, each in SAME.items() if f"--{each}" in str(text) and options[total]]
            options[(named or made_of or grouped)[0]] = None
        made.append((options, text))
    return made


def rendered(options: dict[str, Any]) -> str | UsageError:
    """Return the script, or why there is none."""
    try:
        return render("slurm", describe(options, ["train.py", "it's", "$x"]))
    except UsageError as refused:
        return refused


class WithGpus(SlurmCluster):
    """A Slurm whose hosts have these lines in slurm.conf in place of their own, and GPUs by gres.conf: all made up."""

    def __init__(self, hosts: Hosts, which: str) -> None:
        super().__init__(hosts)
        self.nodes, self.gres = TABLE[which]["nodes"], TABLE[which]["gres"]

    def write_conf(self) -> None:
        """Write slurm.conf and gres.conf."""
        super().write_conf()
        file = self.controller.outside(cluster_slurm.CONF)
        lines = f"GresTypes=gpu\n{self.nodes}"
        file.write_text(re.sub("^NodeName=.*", lines, file.read_text(), flags=re.MULTILINE))
        self.controller.write("/etc/slurm/gres.conf", self.gres)


def test_hosts_with_different_gpus(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Each host of a heterogeneous job starts as many processes as it has GPUs: one world."""
    skip_for_want_of(cluster_slurm.missing())
    options: dict[str, Any] = {"nodes": "1+2", "gpus-per-node": "big:2+small:1", "launcher": "torchrun"}
    options |= {"output": f"{tmp_path}/out", "setup": [f"PATH={BIN}:{Path(sys.executable).parent}:$PATH"]}
    shutil.copy(LIGHT, tmp_path)
    with WithGpus(hosts(3), "different") as gpus:
        job = gpus.submit(render("slurm", describe(options, ["train.py"])), user="alice", cwd=str(tmp_path))
        assert gpus.wait(job, timeout=JOB_S) == "COMPLETED", (tmp_path / "out").read_text()
    # Two processes of a host may write at once, and then share a line.
    assert sorted(re.findall(r"rank (\d) of 4 begins", (tmp_path / "out").read_text())) == ["0", "1", "2", "3"]


def test_sbatch_takes_the_sample(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """The real sbatch --test-only says of each script when its job would start."""
    skip_for_want_of(cluster_slurm.missing())
    described = {}
    for number, (options, text) in enumerate(drawn()):
        described[f"{number}.sh"] = options
        (tmp_path / f"{number}.sh").write_text(text)
    loop = (
        'cd "$1"; for f in *.sh; do sbatch --test-only "$f" >$f.out 2>&1; grep -q "to start at" $f.out || echo $f; done'
    )
    with WithGpus(hosts(6), "roomy") as slurm:
        made = ["scontrol", "create", "reservation", "reservationname=ours", "users=alice", "nodes=ALL"]
        slurm.controller.run([*made, "starttime=now", "duration=infinite"], check=True)
        assert slurm.submit("sleep 1", "--hold", user="alice", cwd="/home/alice") == "1"  # which some depend on
        done = slurm.controller.run(["bash", "-c", loop, "bash", tmp_path], user="alice", timeout=200)
    refused = {name: (described[name], (tmp_path / f"{name}.out").read_text()) for name in done.stdout.split()}
    assert not refused, f"seed {SEED}"
