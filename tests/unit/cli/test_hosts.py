"""`mingle hosts` where the scheduler, or a person, names them."""

import socket
from typing import cast

import pytest
from support.recorded import assigned

from mingle_hooks.cli.main import run
from mingle_hooks.errors import UsageError
from mingle_hooks.job import member_spec
from mingle_hooks.joining import Listing, members_of
from mingle_hooks.rendezvous.member import Observer

SCRIPT = assigned(
    "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node[1-2] SLURM_JOB_NUM_NODES=2 SLURM_TASKS_PER_NODE=3,1 SLURM_NTASKS=4"
    " SLURMD_NODENAME=node1"
)


def listed(environ: dict[str, str], **options: str) -> Listing:
    """Return the members that a script with this environment lists; an observer would fail."""
    return members_of(member_spec(environ, options), cast("Observer", None), "unused")


def test_a_script_has_the_schedulers_tasks_or_the_slots_that_it_says() -> None:
    """Neither needs the network."""
    without = {**SCRIPT, "CUDA_VISIBLE_DEVICES": ""}  # also where the tests run on a machine that has GPUs
    assert [(row.host, row.slots) for row in listed(without).members] == [("node1", 3), ("node2", 1)]
    assert [row.slots for row in listed(without, slots="8").members] == [8, 8]
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1", "LOCAL_WORLD_SIZE": "2"}
    assert [row.slots for row in listed({**SCRIPT, **gpus}).members] == [2, 2]


@pytest.mark.parametrize(
    "more", [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"SLURM_GPUS_ON_NODE": "4"}, {"SLURMD_NODENAME": ""}]
)
def test_slots_that_the_scheduler_does_not_list_are_not_guessed(
    more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs are one host's own, and a login node has none of the job's."""
    monkeypatch.setattr(socket, "gethostname", lambda: "login1")
    with pytest.raises(UsageError, match="--slots N, if all hosts have the same number"):
        listed({**SCRIPT, **more})


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("--hosts n[1-2] --slots 2", 0, "n1 slots=2\nn2 slots=2\n"),
        ("--hosts n1 --format json", 0, '[{"rank":0,"host":"n1","address":null,"slots":1}]\n'),
        ("--id a --nodes 1 --slots 2 --format nodefile", 0, "node1\nnode1\n"),
        ("--id a --nodes 1 --format etc", 0, ""),
        ("--hosts n1 --format etc", 64, "a format without addresses"),
        ("--hosts n1,n1", 64, "n1 more than once"),
        ("--hosts n1 --slots gpus", 64, "which each host counts for itself"),
        ("--remove-etc", 64, "--id NAME"),
    ],
)
def test_hosts_that_a_person_names(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, code: int, text: str
) -> None:
    """No other host is contacted, and what cannot be known that way is refused."""
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    assert run(["hosts", *words.split()]) == code
    out, err = capfd.readouterr()
    assert text in err if code else text == out
