"""Stands for a supervisor: writes what it has been given to DIRECTORY/HOST.LOCAL.

    starter_probe.py DIRECTORY [--host NAME] [--local N] [--environ FILE | --stdin] [--keep PREFIX]…

Other processes' command lines are searched for the secret meanwhile.
"""

import json
import os
import socket
import sys


def word(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else ""


def given(file: str) -> bytes:
    if file:
        with open(file, "rb") as opened:
            return opened.read()
    return sys.stdin.buffer.read() if "--stdin" in sys.argv else b""


def shown(name: str) -> bytes:
    try:
        with open(f"/proc/{name}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def main() -> None:
    file, own = word("--environ"), dict(os.environ)
    keeps = tuple(b for a, b in zip(sys.argv, sys.argv[1:], strict=False) if a == "--keep")
    data = os.fsdecode(given(file))
    environ = dict(line.split("=", 1) for line in data.split("\0") if line)
    environ |= {name: value for name, value in own.items() if not data or name.startswith(keeps)}
    secret = environ["MINGLE_RUN_KEY"].encode()
    told = {
        "environ": environ,
        "own": own,
        "cwd": os.getcwd(),
        "umask": os.umask(0),
        "hostname": socket.gethostname(),
        "cpus": len(os.sched_getaffinity(0)),
        "stdin": sys.stdin.read() if "--stdin" not in sys.argv else "",
        "mode": oct(os.stat(file).st_mode & 0o777) if file else None,
        "owner": os.stat(file).st_uid if file else os.getuid(),
        "shown": [shown(name).decode(errors="replace") for name in os.listdir("/proc") if secret in shown(name)],
    }
    host = word("--host") or os.environ["SLURMD_NODENAME"]
    local = word("--local") or os.environ["SLURM_LOCALID"]
    path = os.path.join(sys.argv[1], f"{host}.{local}")
    with open(path + ".new", "w") as out:
        json.dump(told, out)
    os.rename(path + ".new", path)


main()
