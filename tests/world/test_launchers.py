"""`mingle exec` of launchers and of plain commands, on real hosts with stand-ins for what costs seconds to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster import names
from members import KEYED, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cluster.hosts import Hosts

OF_GLOO = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
ONE_PROCESS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RUN_ID")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Make launchers that print their own command line and the environment."""
    for name in ("accelerate", "deepspeed", "mpirun", "horovodrun", "torchrun"):
        (tmp_path / name).write_text('#!/bin/sh\necho "LINE=${0##*/} $*"\nenv\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path


def started(
    its: Hosts, *words: str, path: Path | None = None, env: Mapping[str, str] | None = None
) -> list[tuple[dict[str, str], str]]:
    """Return what each host's command saw, in node rank order as far as there is one, and what mingle said."""
    path_of = f"export PATH={path}:$PATH; " if path else ""
    line = ["bash", "-c", f'{path_of}exec mingle exec --id job --nodes "$0" --rank "$1" "${{@:2}}"']
    results = its.run_all(
        lambda host: [*line, str(len(its)), str(host.number - 1), *words], env={**KEYED, **(env or {})}
    )
    assert [done.returncode for done in results] == [0] * len(its), results
    return [(parsed(done.stdout), done.stderr) for done in results]


def test_one_process_on_each_node_knows_its_rank(hosts: Callable[..., Hosts]) -> None:
    """With one slot on every node there is exactly one process of a command that is no launcher."""
    for rank, (its, _) in enumerate(started(hosts(2), "env")):
        assert (its["RANK"], its["LOCAL_RANK"], its["GROUP_RANK"]) == (str(rank), "0", str(rank))
        assert its["TORCHELASTIC_RUN_ID"] == its["MINGLE_WORLD"]


@pytest.mark.parametrize(
    "words",
    [
        ("--slots", "2", "env"),
        ("--for", "lightning", "env"),
        ("--for", "none", "env"),
        ("--verbatim", "env"),
        ("torchrun", "train.py"),
    ],
    ids=["several slots", "Lightning starts them", "the bare world", "verbatim", "a launcher"],
)
def test_nothing_else_is_taken_for_the_node_s_only_process(
    hosts: Callable[..., Hosts], programs: Path, words: tuple[str, ...]
) -> None:
    """LOCAL_RANK would make Lightning wait for processes that nobody starts."""
    for its, _ in started(hosts(2), *words, path=programs):
        assert not [name for name in ONE_PROCESS if name in its]


@pytest.mark.parametrize(
    "words",
    [("torchrun", "train.py"), ("accelerate", "launch", "train.py"), ("deepspeed", "train.py"), ("env",)],
    ids=lambda words: words[0],
)
def test_every_command_is_told_its_network_for_gloo(
    hosts: Callable[..., Hosts], programs: Path, words: tuple[str, ...]
) -> None:
    """By itself Gloo takes the address of its host's name; what the user exported stays."""
    two = hosts(2)
    for its, _ in started(two, "--iface", "ib0", *words, path=programs):
        assert [its[name] for name in OF_GLOO] == ["ib0", "ib0"]
    for its, _ in started(two, "--iface", "ib0", *words, path=programs, env={"GLOO_SOCKET_IFNAME": "eth0"}):
        assert [its[name] for name in OF_GLOO] == ["eth0", "ib0"]


@pytest.mark.parametrize("words", [("--for", "none", "env"), ("mpirun", "./train")], ids=lambda words: words[-2])
def test_the_bare_world_and_a_launcher_of_all_nodes_name_no_interface(
    hosts: Callable[..., Hosts], programs: Path, words: tuple[str, ...]
) -> None:
    """The other nodes may get rank 0's variables from mpirun, and have another name for the interface."""
    (its, _), _ = started(hosts(2), *words, path=programs)
    assert "MINGLE_WORLD" in its
    assert not its.keys() & set(OF_GLOO)


@pytest.mark.parametrize("known", [names.DEBIAN, names.NONE])
def test_a_launcher_reaches_hosts_that_no_name_leads_to_by_address(
    hosts: Callable[..., Hosts], programs: Path, known: str
) -> None:
    """Debian's 127.0.1.1 for its own name counts as none: it is every host's."""
    two = hosts(2)
    names.lay(two, known)
    (first, _), _ = started(two, "--iface", "ib0", "mpirun", "./train", path=programs)
    hostfile = two[0].outside(first["OMPI_MCA_orte_default_hostfile"])
    assert hostfile.read_text() == "10.78.0.1 slots=1\n10.78.0.2 slots=1\n"
    assert two[0].outside(first["HYDRA_HOST_FILE"]).read_text() == "10.78.0.1:1\n10.78.0.2:1\n"


def test_a_launcher_that_reads_no_variables_is_completed_and_explained(
    hosts: Callable[..., Hosts], programs: Path
) -> None:
    """The line that is started stands on stderr; the world's file is the command's own to read."""
    two = hosts(2)
    for rank, (its, said) in enumerate(started(two, "--explain", "deepspeed", "train.py", path=programs)):
        assert its["LINE"].startswith(f"deepspeed --hostfile {its['MINGLE_HOSTFILE']} --no_ssh --node_rank {rank} ")
        assert its["LINE"].endswith(f"--master_addr {its['MASTER_ADDR']} --master_port {its['MASTER_PORT']} train.py")
        assert f"node{rank + 1}: becomes {its['LINE']}" in said.splitlines()
        assert two[rank].outside(its["MINGLE_HOSTFILE"]).read_text() == "node1 slots=1\nnode2 slots=1\n"


def test_a_launcher_is_left_alone_when_the_user_says_so(hosts: Callable[..., Hosts], programs: Path) -> None:
    """`--verbatim`, where its own options name the nodes."""
    words = ("accelerate", "launch", "--config_file", "two.yaml", "train.py")
    for its, _ in started(hosts(2), "--verbatim", *words, path=programs):
        assert its["LINE"] == " ".join(words)


def test_a_launcher_of_the_whole_job_starts_on_rank_0_s_node_alone(hosts: Callable[..., Hosts], programs: Path) -> None:
    """The others say so, and end well; the hosts stand in the files that Open MPI and Hydra read by themselves."""
    two = hosts(2)
    (first, _), (second, said) = started(two, "--slots", "3", "mpirun", "./train", path=programs)
    assert (first["LINE"], second) == ("mpirun ./train", {})
    assert said == "mingle: mpirun runs on rank 0's node and reaches this node from there\n"
    for name in ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"):
        assert two[0].outside(first[name]).read_text() == "node1 slots=3\nnode2 slots=3\n"
    assert two[0].outside(first["HYDRA_HOST_FILE"]).read_text() == "node1:3\nnode2:3\n"
    (first, _), _ = started(two, "horovodrun", "./train", path=programs)
    assert first["LINE"] == "horovodrun -np 2 -H node1:1,node2:1 ./train"


def test_hosts_without_any_accelerator_tell_accelerate(hosts: Callable[..., Hosts], programs: Path) -> None:
    """A GPU that is seen, or hidden by its variable, decides."""
    two = hosts(2)
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    for command in (["torchrun", "t.py"], ["accelerate", "launch", "t.py"], ["env"]):
        assert [its["ACCELERATE_USE_CPU"] for its, _ in started(two, *command, path=programs, env=hidden)] == [
            "true"
        ] * 2
    seen = started(two, "--slots", "1", "env", env={"CUDA_VISIBLE_DEVICES": "0"})
    assert not [its for its, _ in seen if "ACCELERATE_USE_CPU" in its]


def test_one_task_on_each_node_needs_no_scheduler(hosts: Callable[..., Hosts]) -> None:
    """`--scope task --slots 1`: a plain `python train.py` knows its rank."""
    two = hosts(2)
    for rank, (its, _) in enumerate(started(two, "--scope", "task", "--slots", "1", "env")):
        assert (its["RANK"], its["LOCAL_RANK"], its["WORLD_SIZE"]) == (str(rank), "0", "2")
    done = two[0].run(["mingle", "exec", "--id", "job", "--nodes", "2", "--scope", "task", "env"], env=KEYED)
    assert done.returncode == 64
    assert "--slots 1 with one task on each node" in done.stderr
