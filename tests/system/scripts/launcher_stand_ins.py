"""Stand-ins for launchers that are not installed with the tests: `launcher_stand_ins.py NAME WORDS…`.

Each takes the options that the generated scripts use, under the real one's names, and refuses all others; it
starts the processes with the variables that the real one gives. Read in accelerate 1.15, commands/launch.py;
deepspeed 0.19, launcher/runner.py and launch.py; ray 2.60, scripts/symmetric_run.py.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path


def accelerate(argv: list[str]) -> int:
    """Start this machine's part of the processes."""
    assert argv[0] == "launch"
    parser = argparse.ArgumentParser("accelerate launch", allow_abbrev=False)
    for name in ("--num_machines", "--num_processes", "--machine_rank", "--main_process_port"):
        parser.add_argument(name, required=True, type=int)
    parser.add_argument("--main_process_ip", required=True)
    parser.add_argument("--same_network", action="store_true", required=True)
    parser.add_argument("--multi_gpu", action="store_true", required=True)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-m", "--module", action="store_true")
    how.add_argument("--no_python", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(argv[1:])
    here, rest = divmod(given.num_processes, given.num_machines)
    assert not rest, "accelerate divides the processes by the machines"
    first = given.machine_rank * here
    master = (given.main_process_ip, given.main_process_port)
    commands = [python(given.command, is_module=given.module, is_program=given.no_python)] * here
    return processes(commands, list(range(first, first + here)), given.num_processes, master)


def deepspeed(argv: list[str]) -> int:
    """Count ranks over the hostfile, and start those of this node."""
    parser = argparse.ArgumentParser("deepspeed", allow_abbrev=False)
    for name in ("--hostfile", "--master_addr", "--master_port", "--node_rank"):
        parser.add_argument(name, required=True)
    parser.add_argument("--no_ssh", action="store_true", required=True)  # there is no ssh between the test hosts
    for name in ("--module", "--no_python", "--no_local_rank"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(argv)
    lines = Path(given.hostfile).read_text().split("\n")[:-1]
    slots = [int(line.partition(" slots=")[2]) for line in lines]
    rank = int(given.node_rank)
    command = python(given.command, is_module=given.module, is_program=given.no_python)
    script = 1 if given.no_python else 3 if given.module else 2  # deepspeed's own option follows it
    commands = [
        command if given.no_local_rank else [*command[:script], f"--local_rank={n}", *command[script:]]
        for n in range(slots[rank])
    ]
    first = sum(slots[:rank])
    return processes(
        commands, list(range(first, first + slots[rank])), sum(slots), (given.master_addr, given.master_port)
    )


def python(command: list[str], *, is_module: bool, is_program: bool) -> list[str]:
    """Return what to run: Python scripts and modules are run by this Python."""
    return command if is_program else [sys.executable, *(["-m"] if is_module else []), *command]


def processes(commands: list[list[str]], ranks: list[int], size: int, master: tuple[object, object]) -> int:
    """Start a process for each rank; the first that fails has the others ended, and its status is the launcher's."""
    same = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": len(ranks), "MASTER_ADDR": master[0], "MASTER_PORT": master[1]}
    running = []
    for local, (rank, command) in enumerate(zip(ranks, commands, strict=True)):
        mine = {name: str(value) for name, value in (same | {"RANK": rank, "LOCAL_RANK": local}).items()}
        running.append(subprocess.Popen(command, env=os.environ | mine))
    while running:
        for process in running:
            if process.poll():
                for other in running:
                    other.terminate()
                return process.wait()
        running = [process for process in running if process.poll() is None]
        time.sleep(0.05)
    return 0


def ray(argv: list[str]) -> int:
    """Be a head that starts the program once all workers are connected, or a worker until the head ends."""
    assert argv[0] == "symmetric-run"
    parser = argparse.ArgumentParser("ray symmetric-run", allow_abbrev=False)
    parser.add_argument("--address", required=True)
    parser.add_argument("--min-nodes", type=int, required=True)
    options, program = argv[1 : argv.index("--")], argv[argv.index("--") + 1 :]
    given = parser.parse_args(options)
    host, _, port = given.address.rpartition(":")
    address = (host.strip("[]"), int(port))
    if os.environ["NODE_RANK"] == "0":  # the real one looks for the address among its own
        with ExitStack() as stack:
            server = stack.enter_context(socket.create_server(address))
            for _ in range(given.min_nodes - 1):
                stack.enter_context(server.accept()[0])
            return subprocess.run(program, env=os.environ | {"RAY_ADDRESS": given.address}, check=False).returncode
    while True:
        try:
            with socket.create_connection(address) as connection:
                return len(connection.recv(1))
        except ConnectionRefusedError:
            time.sleep(0.2)  # a worker waits for its head


if __name__ == "__main__":
    sys.exit({"accelerate": accelerate, "deepspeed": deepspeed, "ray": ray}[sys.argv[1]](sys.argv[2:]))
