"""The commands as users type them: what they print, what they keep, and what they become."""

import re
from collections.abc import Callable

import pytest
from cluster.hosts import Hosts
from support.members import (
    KEYED,
    OTHER_KEY,
    REDUCE,
    SHARED,
    WORLD,
    besides_waits,
    evaluating,
    one_world,
    parsed,
    variables,
)
from support.recorded import STEP

TWO = ("--id", "job", "--nodes", "2")
# What a program can see of how it was started: signals, limits, descriptors.
STATE = 'grep "^Sig[IBC]" /proc/self/status; cat /proc/self/limits; ls /proc/self/fd'


def test_explain_prints_the_source_of_each_value_to_stderr(hosts: Callable[..., Hosts]) -> None:
    """Stdout is the same with and without it."""
    host = hosts(1)[0]
    env = {"MASTER_PORT": "23456", "NCCL_SOCKET_IFNAME": "mine"}
    done = host.run(evaluating("--id", "job", "--nodes", "1", "--for", "nccl", "--explain"), env=env)
    assert variables(done)["MASTER_PORT"] == "23456"
    assert all(line.startswith("node1: ") for line in done.stderr.splitlines())
    rows = {line.split()[1]: line for line in done.stderr.splitlines()}
    assert set(SHARED) < rows.keys()
    assert "the environment" in rows["MASTER_PORT"]
    assert "rank 0" in rows["MASTER_ADDR"]
    assert "--nodes" in rows["NNODES"]
    assert "your own value is kept" in rows["NCCL_SOCKET_IFNAME"]


LATE = r"\d+\.\d+ s"
# The network that node3 cannot use -> lines of rank 0, and of the second, which says how it found rank 0.
EXPLAINED = {
    "eth0": (
        r"node1: address 10\.77\.0\.1 \(eth0, .*not reached by node3$",
        r"node1: address 10\.78\.0\.1 \(ib0, .*chosen",
        rf"node1: last of 3 members to check in: node2 .* {LATE} after",
        rf"node1: last to be ready: node2, {LATE} after node[13]: {LATE} for a late start",
        r"node1: NODE_RANK +0 +--rank$",
        r"node2: MASTER_ADDR .* reached from 10\.78\.0\.2 \(ib0\)$",
        r"node2: rank 0 is node1 \(10\.7[78]\.0\.1\), found by ",
    ),
    "ib0": (
        r"node1: address 10\.77\.0\.1 \(eth0, .*chosen",
        r"node1: address 10\.78\.0\.1 \(ib0, .*not needed: slower",
    ),
}


@pytest.mark.parametrize("blocked", EXPLAINED)
def test_explain_gives_reasons_for_the_address_and_names_the_last_member(
    hosts: Callable[..., Hosts], blocked: str
) -> None:
    """Nobody is named for an address that was not needed: who has reached a better one has not tried it."""
    three = hosts(3)
    three[2]._add(f'iifname "{blocked}" drop')
    command = evaluating("--id", "job", "--nodes", "3", "--explain", then=":")
    first, second, _ = three.run_all(
        lambda host: [*command, "--rank", str(host.number - 1)], env=KEYED, delays=[0, 5.0, 0]
    )
    for line in EXPLAINED[blocked]:
        assert re.search(f"^{line}", first.stderr + second.stderr, re.MULTILINE), line


def test_no_wait_contacts_no_member_and_agrees_on_every_node(hosts: Callable[..., Hosts]) -> None:
    """Each node's own answer, from the scheduler's variables and the key alone, where there is one."""
    two = hosts(2)
    env = [{**STEP, "SLURM_NODEID": str(rank), "SLURM_PROCID": str(rank)} for rank in (0, 1)]
    found = {}
    for name, key in (("none", {}), ("one", KEYED), ("another", OTHER_KEY)):
        results = [host.run(evaluating("--no-wait"), env={**one, **key}) for host, one in zip(two, env, strict=True)]
        found[name] = one_world(results)[0]["MASTER_PORT"]
        assert one_world(results)[0]["MASTER_ADDR"] == "node1"
        assert [done.stderr for done in results] == ["", ""]
    assert len(set(found.values())) == len(found), "the key has no part in the port"


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


@pytest.mark.parametrize(
    "words",
    [("exec", *TWO), ("exec", "--together", *TWO), ("run", "--hosts", "node1")],
    ids=["exec", "together", "run"],
)
def test_the_key_stands_in_no_environment_of_the_command_and_its_children(
    hosts: Callable[..., Hosts], words: tuple[str, ...]
) -> None:
    """All that it starts would hand it on; `--keep-key` leaves it, and a mingle that the command starts has it."""
    two = hosts(2)[: 1 if words[0] == "run" else 2]

    def output(*more: str) -> str:
        processes = [host.popen(["mingle", *words, *more], env=KEYED) for host in two]
        found = [process.communicate(timeout=60) for process in processes]
        assert [process.returncode for process in processes] == [0] * len(two), found
        return "".join(out for out, _ in found)

    without = output("bash", "-c", ENVIRONS)
    assert without.count("MINGLE_WORLD=") == 3 * len(two)
    assert "MINGLE_KEY" not in without
    assert KEYED["MINGLE_KEY"] not in without
    assert output("--keep-key", "bash", "-c", ENVIRONS).count(f"MINGLE_KEY={KEYED['MINGLE_KEY']}") == 3 * len(two)
    inner = "bash -c 'echo $MINGLE_KEY'"
    assert output("bash", "-c", f"mingle exec --id inner --nodes 1 {inner}; echo =$MINGLE_KEY").count(
        f"={KEYED['MINGLE_KEY']}"
    ) == len(two)


def test_exec_unsets_what_an_earlier_mingle_left(hosts: Callable[..., Hosts]) -> None:
    """A task's ranks are not the node's; what is the user's stays."""
    left = {"RANK": "7", "LOCAL_RANK": "3", "PET_NNODES": "9", "MINGLE_WORLD": "0", "MINGLE_ID": "a"}
    env = {**left, "MINGLE_EXPORTS": " ".join(left), "MY_RANK": "7"}
    done = hosts(1)[0].run(["mingle", "exec", "--id", "b", "--nodes", "1", "--for", "none", "env"], env=env, check=True)
    found = parsed(done.stdout)
    assert not {"RANK", "LOCAL_RANK", "PET_NNODES"} & found.keys()
    assert (found["MY_RANK"], found["MINGLE_ID"]) == ("7", "b")


@pytest.mark.parametrize(
    ("nodes", "command", "code", "lines"),
    [
        ("1", ["sh", "-c", "exit 7"], 7, 0),
        ("1", ["/nosuch"], 127, 1),
        ("1", ["/etc/passwd"], 126, 1),
        ("1", ["sh", "-c", "kill -TERM $$"], -15, 0),
        ("2", ["echo", "started"], 69, 1),
        ("2 --via directory --directory /usr", ["echo", "started"], 71, 1),
    ],
    ids=["its own", "not found", "not executable", "a signal", "no world", "a directory that nobody may write"],
)
def test_exec_passes_on_the_exit_status(
    hosts: Callable[..., Hosts], nodes: str, command: list[str], code: int, lines: int
) -> None:
    """The command's own; 127 and 126, as in every shell, where there is none, and 69 without a world."""
    words = ["mingle", "exec", "--id", "job", "--timeout", "1", "--nodes", *nodes.split(), "--", *command]
    done = hosts(1)[0].run(words, env=KEYED, user="alice")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", lines)


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
