"""The examples of docs/api.md on hosts."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from cluster.hosts import Hosts

from mingle_hooks import errors

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
JOIN, FAIL, _ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
KEYED = {"MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2}
PYTHON = [sys.executable, "-c"]


def test_two_hosts_run_the_example_and_are_in_one_world(hosts: Callable[..., Hosts]) -> None:
    """The same address on both, each rank once, and the variables are set as `mingle env` sets them."""
    names = ["MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "PET_NODE_RANK", "NCCL_SOCKET_IFNAME", "MINGLE_WORLD"]
    show = f"\nprint(*(os.environ[name] for name in {names}))"
    done = hosts(2).run_all([*PYTHON, JOIN + show], env=KEYED)
    assert [one.returncode for one in done] == [0, 0], done
    assert [one.stderr for one in done] == ["", ""]  # it is a library
    told, values = zip(*sorted(one.stdout.splitlines() for one in done), strict=True)
    addr, port, *_ = values[0].split()
    assert told == tuple(f"node {rank} of 2, rank 0 at {addr}:{port}" for rank in (0, 1))
    for rank, line in enumerate(values):
        iface = "ib0" if addr.startswith("10.78") else "eth0"
        assert line.split()[:-1] == [addr, port, str(rank), "2", str(rank), f"={iface}"]
    assert len({line.split()[-1] for line in values}) == 1


def test_one_host_runs_the_example_and_fails_as_the_command_does(hosts: Callable[..., Hosts]) -> None:
    """The same code and the same line as `mingle env` gives."""
    (host,) = hosts(1)
    done = host.run([*PYTHON, FAIL], env=KEYED)
    typed = [str(Path(sys.executable).with_name("mingle")), *["env", "--id", "exp8", "--nodes", "2", "--timeout", "1"]]
    command = host.run(typed, env=KEYED)
    assert done.returncode == command.returncode == errors.MissingError.exit_code
    expected, seen, remedy = done.stdout.rstrip("\n").split(" | ")
    assert command.stderr.splitlines()[-1] == f"mingle: expected {expected}; saw {seen}; try {remedy}"
