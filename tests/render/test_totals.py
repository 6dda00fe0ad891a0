"""What is said of a whole job, or as sbatch users say it, for each node."""

from __future__ import annotations

from typing import Any

import pytest

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ({"nodes": "2", "ntasks": "8"}, {"nodes": "2", "ntasks-per-node": "4"}),
        ({"ntasks": "8"}, {"ntasks-per-node": "8"}),
        ({"ntasks": "8", "ntasks-per-node": "2"}, {"nodes": "4", "ntasks-per-node": "2"}),
        ({"nodes": "2", "gpus": "8"}, {"nodes": "2", "gpus-per-node": "4"}),
        ({"nodes": "2", "gpus": "a100:8"}, {"nodes": "2", "gpus-per-node": "a100:4"}),
        ({"gpus": "8", "gpus-per-node": "4"}, {"nodes": "2", "gpus-per-node": "4"}),
        ({"gpus": "16", "gres": "gpu:8"}, {"nodes": "2", "gpus-per-node": "8"}),
        ({"gres": "gpu:a100:4"}, {"gpus-per-node": "a100:4"}),
        ({"gres": "gpu"}, {"gpus-per-node": "1"}),
        ({"gres": "gpu:a100"}, {"gpus-per-node": "a100:1"}),
        ({"gres": "gres/gpu:2"}, {"gpus-per-node": "2"}),
        ({"nodes": "1+2", "gres": "gpu:4+gpu:v100:2"}, {"nodes": "1+2", "gpus-per-node": "4+v100:2"}),
        ({"nodes": "1+2", "ntasks": "6", "gres": "gpu:2"}, {"nodes": "1+2", "ntasks-per-node": "2", "gres": "gpu:2"}),
        ({"nodes": "2", "ntasks": "8", "ntasks-per-node": "4"}, {"nodes": "2", "ntasks-per-node": "4"}),
        ({"nodes": "2", "ntasks": "4", "gpus": "16"}, {"nodes": "2", "ntasks-per-node": "2", "gpus-per-node": "8"}),
    ],
)
@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "torque"])
def test_a_total_is_shared_by_the_nodes(scheduler: str, said: dict[str, Any], same: dict[str, Any]) -> None:
    """The script is the one of the values for each node, for every scheduler."""
    assert render(scheduler, describe(said, ["x.py"])) == render(scheduler, describe(same, ["x.py"]))


@pytest.mark.parametrize(
    ("options", "named", "remedy"),
    [
        ({"nodes": "2", "ntasks": "7"}, "--ntasks 7", "--ntasks 6 or 8"),
        ({"nodes": "4", "ntasks": "3"}, "--ntasks 3", "--ntasks 4"),
        ({"nodes": "3", "gpus": "a100:8"}, "--gpus 8", "--gpus 6 or 9"),
        ({"ntasks": "7", "ntasks-per-node": "2"}, "--ntasks 7", "--ntasks 6 or 8"),
        ({"nodes": "2", "ntasks": "8", "ntasks-per-node": "2"}, "--ntasks 4, as", "leaving --ntasks out"),
        ({"gres": "gpu:4", "gpus-per-node": "2"}, "--gres", "leaving one"),
        ({"ntasks": "1000000"}, "--ntasks", "more --nodes"),
        ({"ntasks": "x"}, "--ntasks", "1"),
        ({"gres": "gpu:4,shard:2"}, "--gres", "gpu:4"),
        ({"gres": "lustre:1"}, "--gres", "--directive"),
        ({"gres": "gpu:"}, "--gres", ""),
        ({"gres": "gpu:a:b:c"}, "--gres", ""),
        ({"gpus": "a100:4,v100:4"}, "--gpus", "4 or a100:4"),
    ],
)
def test_what_does_not_come_out_even_is_refused_by_name(options: dict[str, Any], named: str, remedy: str) -> None:
    """The error names the option, and a number that works."""
    with pytest.raises(UsageError) as refused:
        describe(options, ["x.py"])
    assert named in str(refused.value)
    assert remedy in refused.value.remedy


def test_explain_names_the_option_that_was_given() -> None:
    """A directive that was made of a total says so."""
    text = render("slurm", describe({"nodes": "2", "gpus": "8"}, ["x.py"]), explain=True)
    assert "# gpus-per-node: --gpus\n#SBATCH --gpus-per-node=4\n" in text
