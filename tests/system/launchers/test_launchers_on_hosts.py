"""`mingle exec` of launchers and of plain commands, on real hosts with stand-ins for what costs seconds to start."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import names
from cluster.hosts import Hosts
from support.executables import executable
from support.members import KEYED, parsed


@pytest.fixture
def two(hosts: Callable[..., Hosts]) -> Hosts:
    """Start two hosts, on which the files of hosts may stay that mingle writes for a launcher."""
    return hosts(2)


@pytest.fixture
def programs(two: Hosts) -> str:
    """Make launchers that print their own command line and the environment."""
    for name in ("accelerate", "deepspeed", "mpirun", "horovodrun"):
        two[0].write(f"/home/programs/{name}", '#!/bin/sh\necho "LINE=${0##*/} $*"\nenv\n', mode=0o755)
    return "/home/programs"


def started(hosts: Hosts, *words: str, path: str = "") -> list[tuple[dict[str, str], str]]:
    """Return what the command saw on each host, in node rank order, and what mingle wrote to stderr there."""
    line = ["bash", "-c", f'PATH={path}:$PATH; exec mingle exec --id job --nodes 2 --rank "$@"', "bash"]
    results = hosts.run_all(lambda host: [*line, str(host.number - 1), *words], env=KEYED)
    assert [done.returncode for done in results] == [0] * 2, results
    return [(parsed(done.stdout), done.stderr) for done in results]


@pytest.mark.parametrize("known", [names.DEBIAN, names.NONE])
def test_a_launcher_reaches_hosts_by_address_where_no_name_leads_to_them(
    two: Hosts, tmp_path: Path, known: str
) -> None:
    """Debian's 127.0.1.1 for its own name counts as none: it is every host's."""
    names.lay(two, known)
    executable(tmp_path / "mpirun", "#!/bin/sh\nenv\n")
    (first, _), _ = started(two, "--iface", "ib0", "mpirun", "./train", path=str(tmp_path))
    hostfile = two[0].outside(first["OMPI_MCA_orte_default_hostfile"])
    assert hostfile.read_text() == "10.78.0.1 slots=1\n10.78.0.2 slots=1\n"
    assert two[0].outside(first["HYDRA_HOST_FILE"]).read_text() == "10.78.0.1:1\n10.78.0.2:1\n"


def test_a_launcher_that_reads_no_variables_is_completed_and_explained(two: Hosts, programs: str) -> None:
    """The line that is started stands on stderr; the world's file is the command's own to read."""
    for rank, (variables, said) in enumerate(started(two, "--explain", "deepspeed", "train.py", path=programs)):
        line, hostfile = variables["LINE"], variables["MINGLE_HOSTFILE"]
        assert line.startswith(f"deepspeed --hostfile {hostfile} --no_ssh --node_rank {rank} ")
        assert line.endswith(
            f"--master_addr {variables['MASTER_ADDR']} --master_port {variables['MASTER_PORT']} train.py"
        )
        assert f"node{rank + 1}: becomes {line}" in said.splitlines()
        assert two[rank].outside(hostfile).read_text() == "node1 slots=1\nnode2 slots=1\n"


def test_verbatim_leaves_a_launcher_as_it_is(two: Hosts, programs: str) -> None:
    """Its own options name the nodes."""
    words = ("accelerate", "launch", "--config_file", "two.yaml", "train.py")
    for variables, _ in started(two, "--verbatim", *words, path=programs):
        assert variables["LINE"] == " ".join(words)


def test_a_launcher_of_the_whole_job_starts_on_rank_0_s_node_alone(two: Hosts, programs: str) -> None:
    """The others say so, and end well; the hosts stand in the files that Open MPI and Hydra read by themselves."""
    (first, _), (second, said) = started(two, "--slots", "3", "mpirun", "./train", path=programs)
    assert (first["LINE"], second) == ("mpirun ./train", {})
    assert said == "mingle: mpirun runs on rank 0's node and reaches this node from there\n"
    for name in ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"):
        assert two[0].outside(first[name]).read_text() == "node1 slots=3\nnode2 slots=3\n"
    assert two[0].outside(first["HYDRA_HOST_FILE"]).read_text() == "node1:3\nnode2:3\n"
    (first, _), _ = started(two, "horovodrun", "./train", path=programs)
    assert first["LINE"] == "horovodrun -np 2 -H node1:1,node2:1 ./train"
