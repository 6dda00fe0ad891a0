"""What `mingle exec` adds to a launcher's command line."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.errors import UsageError
from mingle_hooks.export import launchers
from mingle_hooks.world import Assignment, Member, View, World

if TYPE_CHECKING:
    from pathlib import Path

SEATS = (Member(0, "n1", "10.0.0.1", 2), Member(1, "n2", "10.0.0.2", 4))
WORLD = World("job7", 2, 6, "10.0.0.1", 29_500, "0123456789abcdef", SEATS)
SECOND = View(WORLD, Assignment(1, 4, 2, "10.0.0.2", "ib0"), "node", {"HF_HOME": "/nowhere"})
FIRST = SECOND._replace(place=Assignment(0, 2, 0, "10.0.0.1", "ib0"))
ALIKE = SECOND._replace(world=WORLD._replace(size=2), place=Assignment(1, 1, 1, "10.0.0.2"))
EXPORTED = {"MINGLE_HOSTFILE": "/run/host file", "MINGLE_HOSTS": "n1:2,n2:4"}
MACHINES = "--num_machines 2 --num_processes 8 --machine_rank 1 --main_process_ip 10.0.0.1 --main_process_port 29500"
RANKED = MACHINES.replace("--machine_rank 1 ", "")
MASTER = "--master_addr 10.0.0.1 --master_port 29500"


def completed(line: str, view: View = SECOND) -> str:
    """Return a command as it is started."""
    return shlex.join(launchers.completed(shlex.split(line), view, EXPORTED))


@pytest.mark.parametrize(
    ("line", "view", "expected"),
    [
        ("accelerate launch t.py -x", SECOND, f"accelerate launch {MACHINES} --same_network --multi_gpu t.py -x"),
        (
            "accelerate launch --use_fsdp --machine-rank=1 t.py --cpu",
            SECOND,
            f"accelerate launch {RANKED} --same_network --use_fsdp --machine-rank=1 t.py --cpu",
        ),
        (
            "accelerate launch --cpu t.py",
            ALIKE,
            f"accelerate launch {MACHINES} --same_network --cpu t.py".replace("es 8", "es 2"),
        ),
        (
            "deepspeed t.py --deepspeed",
            SECOND,
            f"deepspeed --hostfile '/run/host file' --no_ssh --node_rank 1 {MASTER} t.py --deepspeed",
        ),
        (
            "deepspeed -H mine --master_port 7 --no_local_rank t.py",
            SECOND,
            "deepspeed --no_ssh --node_rank 1 --master_addr 10.0.0.1 -H mine --master_port 7 --no_local_rank t.py",
        ),
        (
            "ray symmetric-run --num-cpus=4 -- python t.py",
            SECOND,
            "ray symmetric-run --address 10.0.0.1:29500 --min-nodes 2 --num-cpus=4 -- python t.py",
        ),
        (
            "ray start --block",
            FIRST,
            "ray start --head --port 29500 --node-ip-address 10.0.0.1 --block",
        ),
        (
            "ray start --block",
            SECOND,
            "ray start --address 10.0.0.1:29500 --node-ip-address 10.0.0.2 --block",
        ),
        ("ray start --address=x:1", SECOND, "ray start --address=x:1"),
        ("horovodrun python t.py", FIRST, "horovodrun -np 6 -H n1:2,n2:4 python t.py"),
        ("horovodrun --verbose -np 2 -H a:2 python t.py", FIRST, "horovodrun --verbose -np 2 -H a:2 python t.py"),
        ("horovodrun --check-build -np 2 -H a:2 ./t", FIRST, "horovodrun --check-build -np 2 -H a:2 ./t"),
        ("torchrun t.py", SECOND, "torchrun t.py"),
        ("python t.py", SECOND, "python t.py"),
    ],
)
def test_a_launcher_gets_what_it_needs_unless_the_user_said_it(line: str, view: View, expected: str) -> None:
    """Before the user's own words, each an argument of its own; what follows the script is the script's."""
    assert completed(line, view) == expected


@pytest.mark.parametrize(
    ("kind", "is_added"),
    [("NO", True), ("MULTI_CPU", True), ("MULTI_GPU", False), ("FSDP", False), ("DEEPSPEED", False)],
)
@pytest.mark.parametrize("is_default", [False, True])
def test_accelerate_s_own_file_says_what_starts_the_processes(
    kind: str, tmp_path: Path, *, is_added: bool, is_default: bool
) -> None:
    """Named or the default one, in YAML or in JSON; where it names none that starts several, one is added."""
    for number, text in enumerate((f"debug: false\ndistributed_type: '{kind}'\n", f'{{"distributed_type": "{kind}"}}')):
        home = tmp_path / str(number)
        file = home / "accelerate" / "default_config.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        view = SECOND._replace(user_environ={"HF_HOME": str(home) if is_default else "/nowhere"})
        words = completed(
            "accelerate launch t.py" if is_default else f"accelerate launch --config_file {file} t.py", view
        )
        assert ("--multi_gpu" in words) is is_added


def test_accelerate_on_the_cpu_with_several_processes_is_refused() -> None:
    """Its --cpu starts one on each node, whatever it is told."""
    with pytest.raises(UsageError, match=r"6 on 2 nodes.*leaving out --cpu"):
        completed("accelerate launch --cpu t.py")


@pytest.mark.parametrize(
    "line",
    [
        "accelerate launch --num_machines 1 t.py",
        "accelerate launch --machine_rank=0 t.py",
        "deepspeed --no_ssh_check --node_rank 0 t.py",
        "ray start --head",
    ],
)
def test_an_option_that_takes_a_node_out_of_the_world_is_refused(line: str) -> None:
    """Such a line was written for one node, and would train once on every node."""
    with pytest.raises(UsageError, match=r"without --head|leaving that option out"):
        completed(line)


@pytest.mark.parametrize("line", ["accelerate launch t.py", "deepspeed t.py", "ray start", "horovodrun ./t"])
def test_a_place_that_is_not_known_is_not_told(line: str) -> None:
    """As in a batch script."""
    assert completed(line, SECOND._replace(place=Assignment(None, 4, None))) == line
