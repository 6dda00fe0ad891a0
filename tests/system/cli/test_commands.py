"""The commands as users type them: what they print, what they keep, and what they become."""

import re
from collections.abc import Callable

import pytest
from cluster.hosts import Hosts
from support.members import (
    KEYED,
    REDUCE,
    WORLD,
    besides_waits,
    evaluating,
    one_world,
    parsed,
    variables,
)

TWO = ("--id", "job", "--nodes", "2")
# What a program can see of how it was started: signals, limits, descriptors.
STATE = 'grep "^Sig[IBC]" /proc/self/status; cat /proc/self/limits; ls /proc/self/fd'


LATE = r"\d+\.\d+ s"
# Lines of rank 0, and of the second, which says how it found rank 0; node3 cannot use the first network.
EXPLAINED = (
    r"node1: address 10\.77\.0\.1 \(eth0, .*not reached by node3$",
    r"node1: address 10\.78\.0\.1 \(ib0, .*chosen",
    rf"node1: last of 3 members to check in: node2 .* {LATE} after",
    rf"node1: last to be ready: node2, {LATE} after node[13]: {LATE} for a late start",
    r"node1: NODE_RANK +0 +--rank$",
    r"node1: NCCL_SOCKET_IFNAME .*your own value is kept",
    r"node2: MASTER_PORT +23456 +the environment",
    r"node2: MASTER_ADDR .* reached from 10\.78\.0\.2 \(ib0\)$",
    r"node2: rank 0 is node1 \(10\.7[78]\.0\.1\), found by ",
)


def test_explain_gives_the_source_of_each_value_and_names_the_last_member(hosts: Callable[..., Hosts]) -> None:
    """It goes to stderr, and stdout stays fit for eval."""
    three = hosts(3)
    three[2]._add('iifname "eth0" drop')
    command = evaluating("--id", "job", "--nodes", "3", "--for", "nccl", "--explain", then=":")
    env = {**KEYED, "MASTER_PORT": "23456", "NCCL_SOCKET_IFNAME": "mine"}
    done = three.run_all(lambda host: [*command, "--rank", str(host.number - 1)], env=env, delays=[0, 5.0, 0])
    for line in EXPLAINED:
        assert re.search(f"^{line}", done[0].stderr + done[1].stderr, re.MULTILINE), line


def test_one_member_needs_no_network_no_key_and_nobody(hosts: Callable[..., Hosts]) -> None:
    """It gets loopback and a port that it can listen on."""
    host = hosts(1)[0]
    command = ["unshare", "--net", "bash", "-c", 'ip link set lo up; exec "$@"', "bash"]
    world = variables(host.run([*command, *evaluating("--id", "job", "--nodes", "1", "--slots", "3", then=REDUCE)]))
    assert (world["MASTER_ADDR"], world["NODE_RANK"], world["WORLD_SIZE"]) == ("127.0.0.1", "0", "3")
    assert world["SUM"] == "0"
    assert host.files() == set()
    assert not [path for path in host.files("/root") if "mingle" in path]


def test_exec_becomes_the_command_with_the_variables_and_nothing_else_changed(hosts: Callable[..., Hosts]) -> None:
    """The same process id; signals, limits and open files as the caller had them."""
    two = hosts(2)
    argv = ["mingle", "exec", *TWO, "--", "bash", "-c", f"{STATE}; echo PID=$$; env"]
    processes = [host.popen(argv, env=KEYED) for host in two]
    plain = two[0].run(["bash", "-c", STATE])
    found = []
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, besides_waits(err)) == (0, [])
        assert out.startswith(plain.stdout), (out, plain.stdout)
        found.append(parsed(out))
        assert found[-1]["PID"] == str(process.pid)
    assert sorted(one["NODE_RANK"] for one in found) == ["0", "1"]
    assert found[0]["MINGLE_WORLD"] == found[1]["MINGLE_WORLD"]


ENVIRONS = "cat /proc/$$/environ; bash -c 'cat /proc/$$/environ; exec cat /proc/self/environ'"


@pytest.mark.parametrize("words", [("exec", "--together", *TWO), ("run", "--hosts", "node1")], ids=["together", "run"])
def test_the_key_stands_in_no_environment_of_the_command_and_its_children(
    hosts: Callable[..., Hosts], words: tuple[str, ...]
) -> None:
    """Everything that COMMAND starts would pass the key on; `--keep-key` leaves it there."""
    two = hosts(2)[: 1 if words[0] == "run" else 2]
    for more, count in ((), 0), (("--keep-key",), 3 * len(two)):
        processes = [host.popen(["mingle", *words, *more, "bash", "-c", ENVIRONS], env=KEYED) for host in two]
        output = "".join(process.communicate(timeout=60)[0] for process in processes)
        assert [process.returncode for process in processes] == [0] * len(two), output
        assert (output.count("MINGLE_WORLD="), output.count(KEYED["MINGLE_KEY"])) == (3 * len(two), count)


# Number of nodes, command -> its exit status, and the lines on stderr.
STATUSES = {
    ("1", "sh -c 'exit 7'"): (7, 0),
    ("1", "sh -c 'kill -TERM $$'"): (-15, 0),
    ("1", "/nosuch"): (127, 1),
    ("1", "/etc/passwd"): (126, 1),
    ("2", "echo started"): (69, 1),
    ("2 --via directory --directory /usr", "echo started"): (71, 1),
}


def test_exec_passes_on_the_exit_status(hosts: Callable[..., Hosts]) -> None:
    """Without COMMAND the status is 127 or 126, as in every shell, and without a world 69 or 71."""
    host = hosts(1)[0]
    for (nodes, command), expected in STATUSES.items():
        line = f"exec mingle exec --id job --timeout 1 --nodes {nodes} -- {command}"
        done = host.run(["bash", "-c", line], env=KEYED, user="alice")
        assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (*expected, ""), line


def test_what_the_user_exported_alike_is_used_by_all(hosts: Callable[..., Hosts]) -> None:
    """MASTER_ADDR, a name here, and MASTER_PORT stay as they are, and a listener there is reached."""
    env = {**KEYED, "MASTER_ADDR": "node1-ib", "MASTER_PORT": "23456"}
    results = hosts(2).run_all(lambda host: evaluating(*TWO, "--rank", str(host.number - 1), then=REDUCE), env=env)
    worlds = one_world(results)
    assert (worlds[0]["MASTER_ADDR"], worlds[0]["MASTER_PORT"]) == ("node1-ib", "23456")
    assert [world["SUM"] for world in worlds] == ["1", "1"]


def test_what_an_earlier_mingle_exported_is_replaced_and_unset_by_a_failure(hosts: Callable[..., Hosts]) -> None:
    """A second eval in the same shell makes a new world; a third, which fails, leaves none of it."""
    script = """eval "$(mingle env --id first --nodes 2 --for torchrun)"; first=$MINGLE_WORLD
eval "$(mingle env --id second --nodes 2 --for none)"; echo FIRST=$first; env
eval "$(mingle env --id third --nodes 2 --timeout 1 --rank $((NODE_RANK + 2)) --on-failure status)"
echo CODE=$?; env | sed s/^/AFTER_/"""
    found = [parsed(done.stdout) for done in hosts(2).run_all(["bash", "-c", script], env=KEYED)]
    assert {one["MINGLE_ID"] for one in found} == {"second"}
    assert found[0]["FIRST"] == found[1]["FIRST"] != found[0]["MINGLE_WORLD"]
    for one in found:
        assert "PET_NNODES" not in one
        assert one["CODE"] == "64"
        assert not [name for name in WORLD if f"AFTER_{name}" in one]
