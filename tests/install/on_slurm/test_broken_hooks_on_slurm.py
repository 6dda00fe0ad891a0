"""No node is ever drained and no job lost by a hook: on a real Slurm, with all kinds of things broken."""

from __future__ import annotations

import json
import sys
import sysconfig
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from breakages import ROUNDS, WORD, broken
from cluster.paths import PROJECT
from hooked_slurm import SHOW, all_idle, nothing_left, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.hosts import Host
    from cluster.slurm import SlurmCluster

# Names come from files first and then from a name server that swallows every question: users' names too, through
# Hesiod (a part of the C library), as they do from LDAP at sites. A program that looks up a user "61001" asks it.
LOST_NAMES = {
    "/etc/resolv.conf": "nameserver 10.77.0.99\noptions timeout:30 attempts:5\n",
    "/etc/nsswitch.conf": "passwd: files hesiod\ngroup: files\nhosts: files dns\n",
    "/etc/hesiod.conf": "lhs=.ns\nrhs=.example.org\n",
}
COUNT = """
table inet names {
  counter asked { }
  chain out { type filter hook output priority 0; th dport 53 counter name asked; }
}
"""
# Dropped by the firewall, a question would fail at once. So it goes out to a machine that is not there.
NOBODY = ["ip", "neighbour", "replace", "10.77.0.99", "lladdr", "02:00:00:00:00:99", "dev", "eth0"]


@pytest.mark.parametrize("which", ROUNDS)
def test_no_node_is_drained_and_no_job_lost_when_broken(hooked: SlurmCluster, which: str) -> None:
    """Whatever is broken, on each host something else, jobs run, and all nodes are idle afterwards."""
    with ExitStack() as stack:
        for host, what in zip(hooked.hosts, ROUNDS[which].values(), strict=False):
            stack.enter_context(broken(host, what))
        comment = f"--comment={WORD}"
        job = hooked.submit(f"srun python {SHOW}", "-N4", "-n4", comment, "-o", "/dev/null", user="alice")
        done = hooked.srun("-N4", "--ntasks-per-node=2", comment, "python", SHOW, user="alice")
        assert len(shown(done)) == 8
        assert hooked.wait(job) == "COMPLETED"
        all_idle(hooked)
        assert not any(list(host.outside("/run/elsewhere").glob("*")) for host in hooked.hosts)


def test_without_python_and_mingle_jobs_get_the_same(hooked: SlurmCluster) -> None:
    """The hooks need /bin/sh and nothing of what installed them: here every Python and the project are hidden."""
    programs = hooked.controller.run(["sh", "-c", "ls -d /usr/bin/python3* /usr/bin/mingle /usr/local/bin/mingle"])
    # Not sys.base_prefix, which is all of /usr where the Python is Debian's.
    hidden = [*programs.stdout.split(), sys.prefix, sysconfig.get_path("stdlib"), str(PROJECT)]
    hide = "[ -d {0} ] && mount -t tmpfs none {0} || mount --bind /dev/null {0}"
    with ExitStack() as last_first:
        for host in hooked.hosts:
            for path in hidden:
                host.run(["/bin/sh", "-c", hide.format(path)], check=True)
                last_first.callback(host.run, ["/bin/sh", "-c", f"umount {path}"], check=True)
        assert hooked.controller.run(["/bin/sh", "-c", "python3 -c pass || mingle --version"]).returncode != 0
        show = "echo $MASTER_ADDR $NODE_RANK $PET_NODE_RANK; cat /run/mingle/$SLURM_JOB_ID/key"
        done = hooked.srun("-N4", "/bin/sh", "-c", show, user="alice")
        lines = done.stdout.splitlines()
        assert sorted(line for line in lines if " " in line) == [f"node1 {i} {i}" for i in range(4)]
        assert len(lines) == 8
        all_idle(hooked)


@pytest.fixture
def nameless(hooked: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the hooked Slurm on hosts whose name service hangs, and whose questions are counted."""
    host = hooked.controller
    with ExitStack() as last_first:
        for each in hooked.hosts:
            hooked.hosts.nft(each.pid, COUNT)
            last_first.callback(hooked.hosts.nft, each.pid, "delete table inet names")
            each.run(NOBODY, check=True)
            last_first.callback(each.run, [*NOBODY[:2], "delete", *NOBODY[3:]], check=True)
        for path, text in LOST_NAMES.items():
            file = host.outside(path)
            last_first.callback(host.write, path, file.read_text() if file.exists() else "")
            host.write(path, text)
        yield hooked


def asked(host: Host) -> int:
    """Return how many packets have left a host for a name server."""
    done = host.run(["nft", "-j", "list", "counter", "inet", "names", "asked"], check=True)
    return int(next(each["counter"]["packets"] for each in json.loads(done.stdout)["nftables"] if "counter" in each))


def test_a_name_service_that_hangs_is_never_asked(nameless: SlurmCluster) -> None:
    """From the first Prolog to the last Epilog no host asks a name server anything, neither for hosts nor for users."""
    show = "echo x >/run/mingle/$SLURM_JOB_ID/mine; echo 1 1 >/run/mingle/$SLURM_JOB_ID/processes; echo $MASTER_ADDR"
    done = nameless.srun("-N4", "/bin/sh", "-c", show, user="alice")
    assert done.stdout.split() == ["node1"] * 4, done.stderr
    nothing_left(nameless)
    assert [asked(host) for host in nameless.hosts] == [0] * 4
    for name in ("hosts", "passwd"):
        assert nameless.controller.run(["timeout", "1", "getent", name, "not-there"]).returncode == 124
    assert asked(nameless.controller) > 0
