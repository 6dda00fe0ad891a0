"""`make cluster`: four hosts with a real Slurm, and a shell on the first one; all gone at its end.

Commands on a pipe are run instead: `echo 'srun -N4 hostname' | make cluster`.
"""

import importlib.util
import os
import signal
import subprocess
import sys

from cluster import hosts as cluster_hosts, slurm as cluster_slurm
from cluster.host import USERS
from cluster.hosts import Hosts
from cluster.paths import PROJECT
from cluster.slurm import SlurmCluster

WELCOME = """
You are {user} on node1, one of {count} hosts with two networks (eth0, ib0) and a real Slurm.
They share your home, with train.py in it; /tmp is each host's own. Try:

    srun -N4 mingle exec {launcher} train.py
    srun -N4 mingle exec --explain true
    srun -N4 bash -c 'eval "$(mingle env)"; echo "$NODE_RANK of $NNODES, $MASTER_ADDR leads"'
    sbatch -N2 --wrap 'srun mingle exec {launcher} train.py'
    srun -N2 bash -c '[ $SLURM_NODEID = 1 ] || mingle exec --timeout 5 true'    # node2 never calls
    srun -w node3 --pty bash

Everything is gone when you leave (exit or Ctrl-D).
"""


COUNT = 4


def main(user: str = "alice") -> int:
    """Start the cluster, give the person a shell or run what is on the pipe, and return its exit status."""
    if user != "root" and user not in USERS:
        known = ", ".join(("root", *USERS))
        sys.stderr.write(f"expected one of {known}; saw {user!r}; try make cluster WHO=alice\n")
        return 64
    if lacks := cluster_hosts.missing() + cluster_slurm.missing():
        sys.stderr.write(f"no cluster on this machine for want of {', '.join(lacks)}\n")
        return 69
    # Ctrl-C is for what runs in the shell. A handler, unlike SIG_IGN, is not handed on to it.
    signal.signal(signal.SIGINT, lambda *_: None)
    with Hosts(COUNT) as hosts, SlurmCluster(hosts):
        hosts[0].run(["cp", f"{PROJECT}/examples/train.py", "."], user=user, check=True)
        launcher = "torchrun" if importlib.util.find_spec("torch") else "python3"
        sys.stderr.write(WELCOME.format(user=user, count=COUNT, launcher=launcher))
        sys.stderr.flush()
        return shell(hosts, user)


def shell(hosts: Hosts, user: str) -> int:
    """Run an interactive shell on the first host, or the commands from the pipe."""
    env = {"TERM": os.environ.get("TERM", "dumb"), "PS1": rf"{user}@\h:\w\$ "}
    if sys.stdin.isatty():
        argv, stdin = ["bash", "--norc", "-i"], None
    else:
        # As one argument, for srun would take the commands that follow it for its tasks' input.
        argv, stdin = ["bash", "-c", sys.stdin.read()], subprocess.DEVNULL
    process = hosts[0].popen(argv, env=env, user=user, stdin=stdin, stdout=None, stderr=None, start_new_session=False)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
