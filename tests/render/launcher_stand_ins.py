"""Stand-ins for launchers that are not installed with the tests: `launcher_stand_ins.py NAME WORDS…`.

Each takes the options that the generated scripts use, under the real one's names, and refuses all others; it
starts the processes with the variables that the real one gives. Read in accelerate 1.15, commands/launch.py;
deepspeed 0.19, launcher/runner.py and launch.py; ray 2.5x, scripts/scripts.py.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path


def accelerate(words: list[str]) -> int:
    """Read the config file, as it is YAML that is JSON too, and start this machine's part of the processes."""
    assert words[0] == "launch"
    parser = argparse.ArgumentParser("accelerate launch", allow_abbrev=False)
    parser.add_argument("--config_file", required=True)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-m", "--module", action="store_true")
    how.add_argument("--no_python", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words[1:])
    config = json.loads(Path(given.config_file).read_text())
    size = config["num_processes"]
    here, rest = divmod(size, config["num_machines"])
    assert not rest, "accelerate divides the processes by the machines"
    assert config["compute_environment"] == "LOCAL_MACHINE"
    assert config["distributed_type"] == "MULTI_GPU"
    first = config["machine_rank"] * here
    master = (config["main_process_ip"], config["main_process_port"])
    commands = [python(given.command, is_module=given.module, is_program=given.no_python)] * here
    return processes(commands, list(range(first, first + here)), size, master)


def deepspeed(words: list[str]) -> int:
    """Count ranks over the hostfile, and start those of this node."""
    parser = argparse.ArgumentParser("deepspeed", allow_abbrev=False)
    for name in ("--hostfile", "--master_addr", "--master_port", "--node_rank"):
        parser.add_argument(name, required=True)
    parser.add_argument("--no_ssh", action="store_true", required=True)  # there is no ssh between the test hosts
    for name in ("--module", "--no_python", "--no_local_rank"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
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


def ray(words: list[str]) -> int:
    """Be a head that counts those who are connected, a worker that is connected, or ask the head."""
    parser = argparse.ArgumentParser("ray", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("status")
    start = commands.add_parser("start", allow_abbrev=False)
    start.add_argument("--head", action="store_true")
    start.add_argument("--block", action="store_true", required=True)  # without it, ray goes to the background
    for name in ("--node-ip-address", "--port", "--address"):
        start.add_argument(name)
    given = parser.parse_args(words)
    if given.command == "start" and given.head:
        return head((given.node_ip_address, int(given.port)))
    address = os.environ["RAY_ADDRESS"] if given.command == "status" else given.address
    host, _, port = address.rpartition(":")
    while True:
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
            break
        except ConnectionRefusedError:
            if given.command == "status":
                return 1
            time.sleep(0.2)  # a worker waits for its head
    with connection:
        connection.settimeout(None)
        connection.sendall(b"status\n" if given.command == "status" else b"join\n")
        while connection.recv(100):
            pass
    return 0


def head(address: tuple[str, int]) -> int:
    """Count the nodes, this one too, and tell the number to who asks."""
    nodes = [1]

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rw") as file:
            if file.readline() == "join\n":
                nodes[0] += 1
                file.readline()  # for as long as it lives
                nodes[0] -= 1
            else:
                file.write(f"{nodes[0]}\n")

    with socket.create_server(address) as server:
        while True:
            threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()


if __name__ == "__main__":
    sys.exit({"accelerate": accelerate, "deepspeed": deepspeed, "ray": ray}[sys.argv[1]](sys.argv[2:]))
