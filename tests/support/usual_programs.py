"""Programs of usual jobs, which say what the real ones would do: this file under each name.

What each reads is written at its function; everything else that a real one reads is the same in every job here.
They start hundreds of times, so each imports only what it needs.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing would take longer than all else here
if TYPE_CHECKING:
    import argparse

VISIBLE = "CUDA_VISIBLE_DEVICES"


def first(*names: str) -> str | None:
    """Return the first of these variables that is set."""
    return next((os.environ[name] for name in names if name in os.environ), None)


def torch_launcher(name: str, argv: list[str]) -> argparse.Namespace:
    """torch/distributed/run.py: PET_<DEST> is the default of each option, and --standalone takes nnodes as well."""
    import argparse

    parser = argparse.ArgumentParser(prog=name)
    defaults = {
        "nnodes": "1:1", "nproc_per_node": "1", "node_rank": "0", "rdzv_backend": "static", "rdzv_endpoint": "",
        "rdzv_id": "none", "master_addr": "127.0.0.1", "master_port": None,
    }  # fmt: skip
    for dest, default in defaults.items():
        options = {f"--{dest}", f"--{dest.replace('_', '-')}"}
        parser.add_argument(*options, dest=dest, default=os.environ.get(f"PET_{dest.upper()}", default))
    parser.add_argument("--standalone", action="store_true", default=bool(int(os.environ.get("PET_STANDALONE", "0"))))
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


def torchrun(argv: list[str]) -> str:
    """Tell the world as run() of torch/distributed/run.py makes it."""
    args = torch_launcher("torchrun", argv)
    least, most = (args.nnodes.split(":") * 2)[:2]
    is_alone = args.rdzv_backend == "static" and not args.rdzv_endpoint and args.master_port is None and most == "1"
    if args.standalone or is_alone:
        where = "with itself" if least == "1" else f"waits for {least} nodes"
    elif args.rdzv_backend == "static":
        endpoint = args.rdzv_endpoint or f"{args.master_addr}:{args.master_port or 29500}"
        where = f"node {args.node_rank} of {most} at {endpoint}"
    else:
        where = f"{least} to {most} nodes by {args.rdzv_backend} at {args.rdzv_endpoint}"
    return f"torchrun {args.nproc_per_node} processes, {where}, GPUs {os.environ.get(VISIBLE)}"


def accelerate(argv: list[str]) -> str:
    """accelerate/utils/launch.py: torchrun's defaults, over which go the options of its own that were given."""
    import argparse

    parser = argparse.ArgumentParser(prog="accelerate")
    names = ("num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port", "config_file")
    for name in names:
        parser.add_argument(f"--{name}")
    parser.add_argument("--multi_gpu", action="store_true")
    parser.add_argument("script")
    given = parser.parse_args(argv[1:])
    if given.config_file:
        with open(given.config_file, encoding="utf-8") as file:
            for line in file:
                name, _, value = line.strip().partition(": ")
                if getattr(given, name, 0) is None:
                    setattr(given, name, value)
    machines, processes = int(given.num_machines or 1), int(given.num_processes or 1)
    words = [f"--nproc_per_node={processes // machines}"]
    if machines > 1:
        words += [f"--nnodes={machines}", f"--node_rank={given.machine_rank}", f"--master_addr={given.main_process_ip}"]
    if given.main_process_port:
        words.append(f"--master_port={given.main_process_port}")
    return torchrun([*words, given.script])


def lightning(_argv: list[str]) -> str:
    """lightning/fabric/plugins/environments: under srun SLURM_*, else its own; each variable only where unset."""
    outside = "as launched by another" if "LOCAL_RANK" in os.environ else "launches by itself"
    if os.environ.get("SLURM_JOB_NAME") != "interactive" and "SLURM_NTASKS" in os.environ:
        place = f"rank {os.environ['SLURM_PROCID']} of {os.environ['SLURM_NTASKS']}"
        return f"lightning {place}, {'a port of the job' if 'MASTER_PORT' not in os.environ else 'a port given'}"
    port = os.environ.get("MASTER_PORT", "a free port")
    return f"lightning {outside}, node {first('NODE_RANK', 'GROUP_RANK') or 0}, {port}, GPUs {os.environ.get(VISIBLE)}"


def trainer(_argv: list[str]) -> str:
    """accelerate/state.py and the Trainer: LOCAL_RANK says distributed; rank and size by the first name that is set."""
    rank = first("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
    size = first("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
    local = first("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")
    return f"trainer rank {rank} of {size}, local rank {local}, GPUs {os.environ.get(VISIBLE)}"


def env_init(_argv: list[str]) -> str:
    """torch.distributed's env://: these four, none of them with a default."""
    return "env:// " + " ".join(os.environ.get(n, "-") for n in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"))


def deepspeed(argv: list[str]) -> str:
    """deepspeed/launcher/runner.py and launch.py: all from its options, whatever the environment says."""
    import argparse

    parser = argparse.ArgumentParser(prog="deepspeed")
    parser.add_argument("--num_gpus", default="4")
    parser.add_argument("--master_port", default="29500")
    parser.add_argument("script")
    given = parser.parse_args(argv)
    return f"deepspeed {given.num_gpus} processes at 127.0.0.1:{given.master_port}"


def spawn(_argv: list[str]) -> str:
    """torch.multiprocessing.spawn as in torch's examples: an address of its own, and a port unless there is one."""
    return f"spawn at localhost:{os.environ.setdefault('MASTER_PORT', '12355')}"


def mpirun(argv: list[str]) -> str:
    """Open MPI under Slurm: ranks on its own host are its children, for others srun starts an orted on each host."""
    import subprocess

    each, nodes = int(argv[1]), int(os.environ["SLURM_JOB_NUM_NODES"])
    others = str(nodes - 1)
    if nodes > 1:
        places = ["--ntasks-per-node=1", "-N", others, "-n", others, "-r1"]
        orted = ["srun", *places, "orted", argv[1], str(nodes), *argv[2:]]
        subprocess.run(orted, check=True)
    start_ranks(0, each, nodes, argv[2:])
    return ""


def orted(argv: list[str]) -> str:
    """Its processes have its environment, and their places."""
    start_ranks(1 + int(os.environ["SLURM_NODEID"]), int(argv[0]), int(argv[1]), argv[2:])
    return ""


def start_ranks(node: int, each: int, nodes: int, argv: list[str]) -> None:
    """Run the ranks of one node."""
    import subprocess

    for local in range(each):
        places = {"RANK": node * each + local, "SIZE": nodes * each, "LOCAL_RANK": local}
        env = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in places.items()}
        subprocess.run(argv, env={**os.environ, **env}, check=True)


def main() -> None:
    """Say what the program does whose name this process has."""
    said = globals()[os.path.basename(sys.argv[0]).replace("-", "_")](sys.argv[1:])
    if said:
        os.write(1, f"{said}\n".encode())


if __name__ == "__main__":
    main()
