"""Bad input: one line that says what was expected, seen and to try, a documented exit code, and no variable."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from cluster.hosts import Hosts, missing
from needs import skip_for_want_of
from slurm_step import STEP
from support.members import KEYED
from support.recorded import assigned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.host import Host

# Evals, as users do, and tells whether the environment is what it was.
EVAL = """before=$(env -u _); eval "$(mingle env --on-failure status "$@")"; code=$?
[ "$before" = "$(env -u _)" ] && echo unchanged; exit $code"""
LINE = re.compile(r"mingle: expected [^\n]+; saw [^\n]+; try [^\n]+\n")
JOB = ("--id", "job", "--nodes", "2", "--timeout", "1")
SLURM = {**STEP, "SLURM_NODEID": "0", "SLURM_PROCID": "0", **KEYED}
PBS = assigned("PBS_JOBID=7.ctl PBS_ENVIRONMENT=PBS_BATCH PBS_JOBCOOKIE=0123456789ABCDEF0123 PBS_NODENUM=0")
ALONE = ["unshare", "--net", "bash", "-c", 'ip link set lo up; exec "$@"', "bash"]


@dataclass(frozen=True)
class Bad:
    """One bad input: what is asked with which environment, and the exit code and words that it ends in."""

    options: tuple[str, ...]
    code: int
    says: str
    env: Mapping[str, str] = field(default_factory=lambda: KEYED)
    user: str = "root"
    before: tuple[str, ...] = ()  # a command to start it with


BAD = {
    "an empty id": Bad(("--id", "", "--nodes", "2"), 64, "not empty"),
    "MINGLE_NODES in words": Bad(("--id", "job"), 78, "MINGLE_NODES", {**KEYED, "MINGLE_NODES": "four"}),
    "the scheduler's rank of N": Bad((), 65, "node rank", {**SLURM, "SLURM_NODEID": "2"}),
    "no key": Bad(JOB, 77, "mingle key", {}),
    "no such key file": Bad((*JOB, "--key-file", "/root/nosuch"), 77, "/root/nosuch", {}),
    "a key that the group can read": Bad((*JOB, "--key-file", "/root/grouped"), 77, "chmod", {}),
    "a key of somebody else": Bad((*JOB, "--key-file", "/home/alice/key"), 77, "/home/alice/key", {}),
    "a key that cannot be read": Bad((*JOB, "--key-file", "/home/alice/roots"), 77, "/home/alice/roots", {}, "alice"),
    "no such interface": Bad((*JOB, "--iface", "nosuch0"), 71, "nosuch0"),
    "loopback only": Bad(("--timeout", "1"), 71, "loopback", SLURM, before=tuple(ALONE)),
    "no node file": Bad((), 65, "/nosuch", {**PBS, "PBS_NODEFILE": "/nosuch"}),
    "a billion hosts": Bad((), 65, "1000000000", {**SLURM, "SLURM_JOB_NODELIST": "node[1-1000000000]"}),
    "a port range that is full": Bad((*JOB, "--rank", "0", "--port-range", "23999-23999"), 71, "23999"),
    "a port that is taken": Bad((*JOB, "--rank", "0", "--master", "node1:23999"), 71, "23999"),
    "no such directory": Bad((*JOB, "--via", "directory", "--directory", "/nosuch"), 71, "/nosuch"),
    "an unwritable directory": Bad((*JOB, "--via", "directory", "--directory", "/usr"), 71, "/usr", user="alice"),
    "an unknown end": Bad(
        JOB, 78, "exit or status; saw 'x' (MINGLE_ON_FAILURE); try exit", {**KEYED, "MINGLE_ON_FAILURE": "x"}
    ),
    "settings that are no TOML": Bad(JOB, 78, "mingle.toml", {**KEYED, "XDG_CONFIG_HOME": "/root/broken"}),
    "no job": Bad(("--id", "a"), 64, "saw no job here; try srun in front, --id NAME --nodes N"),
}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """Give one host for the whole table, with the files that it names and a listener on port 23999."""
    skip_for_want_of(missing())
    with Hosts(1) as hosts:
        one = hosts[0]
        one.write("/root/grouped", "0123456789abcdef" * 2, mode=0o640)
        one.write("/home/alice/key", "0123456789abcdef" * 2, mode=0o600, user="alice")
        one.write("/home/alice/roots", "0123456789abcdef" * 2, mode=0o600)
        one.write("/root/broken/mingle/mingle.toml", "timeout = = 5\n")
        listen = "import socket, signal; s = socket.create_server(('', 23999)); print(flush=True); signal.pause()"
        listener = one.popen(["python3", "-c", listen])
        assert listener.stdout is not None
        listener.stdout.readline()
        yield one
        listener.kill()


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gives_one_line_a_code_and_nothing_else(host: Host, name: str) -> None:
    """The shell that evals is left as it was, with the code that the documentation names."""
    bad = BAD[name]
    command = [*bad.before, "bash", "-c", EVAL, "bash", *bad.options]
    done = host.run(command, env=bad.env, user=bad.user)
    assert LINE.fullmatch(done.stderr), done.stderr
    assert bad.says in done.stderr, done.stderr
    assert (done.returncode, done.stdout) == (bad.code, "unchanged\n"), done
    assert host.files() == set()
