"""Stand-ins for what scripts find on a cluster beside training, this file under each name; what a script may ask for.

srun is the real one without what a test cluster does not have. ssh enters the host of that name with an environment of
its own. mpirun starts its ranks by srun, as Open MPI does its daemons. Containers, `uv run` and the like run their
command here. modules, conda and scontrol's absence ($PROOF_LACKS) need no more than a name.
"""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False  # typing would take longer than all else here
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import NoReturn

# What a test cluster can give, for `#SBATCH` and srun: the long name, the short one, and whether it takes no value.
JOB = {
    "nodes": "N", "ntasks": "n", "ntasks-per-node": "", "tasks-per-node": "", "gres": "", "gpus": "G",
    "gpus-per-node": "", "gpus-per-task": "", "ntasks-per-gpu": "", "job-name": "J", "distribution": "m", "signal": "",
}  # fmt: skip
STEP = {
    **JOB, "nodelist": "w", "exclude": "x", "export": "", "relative": "r", "output": "o", "error": "e", "input": "i",
    "wait": "W", "kill-on-bad-exit": "K", "open-mode": "", "het-group": "", "jobid": "",
}  # fmt: skip
# Without a value, or with one behind `=` only.
FLAGS = {
    "overlap": "", "label": "l", "unbuffered": "u", "overcommit": "O", "no-kill": "k", "quiet": "Q", "verbose": "v",
    "kill-on-bad-exit": "K", "requeue": "", "no-requeue": "", "multi-prog": "", "preserve-env": "E", "pty": "",
    "exclusive": "", "oversubscribe": "s", "contiguous": "", "spread-job": "", "use-min-nodes": "",
    "disable-status": "X",
    "immediate": "I", "no-container-mount-home": "", "container-mount-home": "", "container-writable": "",
    "container-readonly": "", "container-remap-root": "", "no-container-remap-root": "", "no-container-entrypoint": "",
    "hold": "H", "reboot": "", "parsable": "", "test-only": "", "get-user-env": "",
}  # fmt: skip
GONE = ("exclusive", "oversubscribe", "contiguous", "hold", "reboot", "pty", "get-user-env", "parsable", "test-only")
MOST_GPUS = 8


def split(words: list[str], known: Container[str]) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """Return the options that a test cluster has, as (long name, words), and what follows the options."""
    kept: list[tuple[str, list[str]]] = []
    at = 0
    shorts = {short: name for name, short in {**FLAGS, **STEP}.items() if short}
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word, at = words[at], at + 1
        if word == "--":
            break
        if word.startswith("--"):
            name, is_joined, value = word[2:].partition("=")
        else:
            name, value = shorts.get(word[1], word[1]), word[2:].removeprefix("=")
            is_joined = value
        its = [word]
        if not is_joined and name not in FLAGS and at < len(words):
            value, at = words[at], at + 1
            its.append(value)
        if name in ("gres", "gpus", "gpus-per-node", "gpus-per-task"):
            count = re.search(r"(?:^|[:=])(\d+)$", value.partition(",")[0])
            gpus = min(int(count[1]) if count else 1, MOST_GPUS)
            if name != "gpus" and "gpu" in value + name:
                kept.append((name, [f"--{name}={'gpu:' * (name == 'gres')}{gpus}"]))
        elif name in known or (name in FLAGS and name not in GONE and "container" not in name):
            kept.append((name, its))
    return kept, words[at:]


def srun(argv: list[str]) -> NoReturn:
    """Run the real one."""
    kept, rest = split(argv, STEP)
    become(["/usr/bin/srun", *(word for _, its in kept for word in its), *rest])


def ssh(argv: list[str]) -> NoReturn:
    """Enter the host, with what a login has and the tests' own variables."""
    while argv[0].startswith("-"):
        argv = argv[1 if argv[0][1:] in ("n", "q", "t", "tt", "T", "x", "A", "f") or len(argv[0]) > 2 else 2 :]
    host = argv[0].rpartition("@")[2]
    with open(f"{os.environ['PROOF_PLACE']}/../hosts", encoding="utf-8") as file:
        pid = dict(line.split() for line in file).get(host)
    if pid is None:
        sys.exit(f"ssh: Could not resolve hostname {host}")
    kept = {name: value for name, value in os.environ.items() if name.startswith("PROOF_")}
    its = {"HOME": "/root", "USER": "root", "PATH": os.environ["PATH"], **kept, "PROOF_HOST": host}
    where = ["nsenter", "--target", pid, "--net", "--mount", "--uts", "--", "env", "-i", "-C", "/root"]
    become([*where, *(f"{name}={value}" for name, value in its.items()), "bash", "-c", " ".join(argv[1:]) or "true"])


# Open MPI's, and Horovod's, which is mostly a way to it.
MPI = ("mpirun", "mpiexec", "orterun", "horovodrun")
WITH_VALUE = """
x np n c N H host hosts hostfile machinefile map-by bind-to rank-by ppn p num-proc start-timeout ssh-port cycle-time-ms
network-interfaces network-interface gloo-timeout-seconds fusion-threshold-mb timeline-filename log-level
""".split()  # noqa: SIM905 a line for each otherwise


def mpirun(argv: list[str]) -> NoReturn:
    """Start so many ranks over the job's hosts, with Open MPI's variables; --mca takes two words."""
    at, given = 0, {}
    while at < len(argv) and argv[at].startswith("-"):
        name, takes = argv[at].lstrip("-"), 3 if argv[at].endswith("mca") else 2
        given[name] = "".join(argv[at + 1 : at + 2])
        if name == "x" and "=" in given[name]:
            variable, _, value = given[name].partition("=")
            os.environ[variable] = value
        has_value = takes == 3 or name in WITH_VALUE or given[name].isdecimal()
        at += takes if has_value else 1
    ranks = next(
        (given[name] for name in ("np", "n", "c", "num-proc") if name in given), os.environ.get("SLURM_NTASKS", "1")
    )
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    its = {"RANK": "PROCID", "SIZE": "NTASKS", "LOCAL_RANK": "LOCALID"}
    place = "; ".join(f"export OMPI_COMM_WORLD_{name}=$SLURM_{of}" for name, of in its.items())
    each = str(-(-int(ranks) // int(nodes)))
    step = ["--overlap", "--overcommit", "-N", nodes if int(ranks) >= int(nodes) else "1", "-n", ranks]
    gone = "unset SLURM_PROCID SLURM_LOCALID SLURM_NODEID"
    become(
        [
            "/usr/bin/srun",
            *step,
            f"--ntasks-per-node={each}",
            "bash",
            "-c",
            f'{place}; {gone}; exec "$@"',
            "bash",
            *argv[at:],
        ]
    )


def inside(argv: list[str]) -> NoReturn:
    """Run the command of `apptainer exec [option]… IMAGE`, `uv run`, `conda run -n NAME`, `numactl [option]…` here."""
    import shutil

    verb = -1 if NAME in BARE else next((at for at, word in enumerate(argv) if word in ("exec", "run")), None)
    if verb is None:
        sys.exit(0)
    rest = argv[verb + 1 :]
    while rest and rest[0].startswith("-"):
        rest = rest[1 if "=" in rest[0] or rest[0] in ALONE else 2 :]
    while rest and shutil.which(rest[0]) is None:  # an image, unless the site's module names it
        rest = rest[1:]
    become(rest or ["true"])


BARE = ("numactl", "taskset", "shifter")
ALONE = """
--nv --rocm --cleanenv -e --contain -c --containall -C --writable-tmpfs --no-capture-output --frozen --no-sync --all
--localalloc -l --entrypoint
""".split()  # noqa: SIM905 a line for each otherwise


def resolve(argv: list[str]) -> NoReturn:
    """Say a name's address as nslookup, host and `dig +short` do."""
    import socket

    try:
        address = socket.gethostbyname(argv[-1])
    except OSError as error:
        sys.exit(f"{argv[-1]}: {error}")
    said = {"host": f"{argv[-1]} has address {address}", "dig": address}
    print(said.get(NAME, f"Server: 127.0.0.1\n\nName: {argv[-1]}\nAddress: {address}"))
    sys.exit(0)


RESOLVERS = ("nslookup", "host", "dig")


def become(argv: list[str]) -> NoReturn:
    """Become a program."""
    try:
        os.execvp(argv[0], argv)  # noqa: S606 as the script itself would
    except OSError as error:
        sys.exit(f"{argv[0]}: {error}")


NAME = os.path.basename(sys.argv[0])
SAID = {"nvidia-smi": "".join(f"GPU {number}: NVIDIA H100\n" for number in range(MOST_GPUS))}
INSIDE = (
    *BARE,
    "apptainer",
    "singularity",
    "singularity_wrapper",
    "uv",
    "poetry",
    "pixi",
    "conda",
    "mamba",
    "micromamba",
)
NOTHING = ("module", "ml", "spack", "wandb", "hf", "huggingface-cli", "pip", "nvidia-smi", "pkill", "git", "activate")


def main() -> None:
    """Do what the program does whose name this process has."""
    if NAME == "scontrol":
        lacks = os.environ.get("PROOF_LACKS") == NAME
        sys.exit("scontrol: command not found") if lacks else become(["/usr/bin/scontrol", *sys.argv[1:]])
    if NAME in NOTHING:
        sys.stdout.write(SAID.get(NAME, ""))
        sys.exit(0)
    named = {"srun": srun, "ssh": ssh, **dict.fromkeys(MPI, mpirun), **dict.fromkeys(RESOLVERS, resolve)}
    named.get(NAME, inside)(sys.argv[1:])
