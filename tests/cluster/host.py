"""One host: commands on it, its files and its firewall."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import network
from cluster.paths import walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.hosts import Hosts

# The longest that one command on a host may take unless the test says otherwise: far above what any needs.
COMMAND_S = 60.0
USERS = {"alice": 61001, "bob": 61002}  # outside the ranges that Debian gives to people and to packages
# The kernel's flag of a process whose memory it has taken away, and whose mounts it takes next (linux/sched.h).
PF_EXITING = 0x4
# What each host has for itself.
OWN = ("/run", "/tmp", "/var/tmp", "/dev/shm")


@dataclass
class Host:
    """One host of a set."""

    name: str
    number: int  # from 1; the last part of its addresses
    pid: int  # of the process that holds its namespaces
    hosts: Hosts = field(repr=False)
    rules: list[str] = field(default_factory=list)  # nft rules for what comes in
    port_rules: list[str] = field(default_factory=list)  # nft rules for what goes out, applied at the switch
    first_files: frozenset[str] = frozenset()  # what its own directories hold from the start

    def addr(self, iface: str = "eth0", *, ipv6: bool = False) -> str:
        """Return this host's address on the network of `iface`."""
        return network.address(iface, self.number, ipv6=ipv6)

    def popen(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        user: str = "root",
        cwd: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start a command on this host, and return it as a Popen whose pid is the command's own.

        It gets a clean environment (PATH with this Python's programs first, HOME, USER, LANG) and `env`, the
        user's home as its directory, its own session, and pipes for stdout and stderr. It is killed, at the
        latest, when the hosts are closed.
        """
        home = "/root" if user == "root" else f"/home/{user}"
        command = [
            *enter(self.pid, "--mount", "--uts"),
            *(["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user != "root" else ()),
            *("env", "-C", cwd or home, *argv),
        ]
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "errors": "surrogateescape",
            "start_new_session": True,
        }
        process = subprocess.Popen(command, env=clean_env(user, home) | dict(env or {}), **(settings | options))
        self.hosts.started.append(process)
        return process

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        timeout: float = COMMAND_S,
        input: str | None = None,  # noqa: A002 as subprocess.run names it
        check: bool = False,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end and return its status and text.

        Raise TimeoutExpired, with what it wrote, after `timeout` seconds: it and its group are killed first.
        """
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.popen(argv, **options)
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired as slow:
            kill_group(process)
            out, err = process.communicate(timeout=COMMAND_S)
            raise subprocess.TimeoutExpired(f"{self.name}: {list(argv)}", timeout, out, err) from slow
        done = subprocess.CompletedProcess(list(argv), process.returncode, out, err)
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {argv} ended with {done.returncode}\n{out}\n{err}")
        return done

    def outside(self, path: str | os.PathLike[str]) -> Path:
        """Return the path by which the test itself reaches a file of this host."""
        return Path(f"/proc/{self.pid}/root", os.fspath(path).lstrip("/"))

    def write(self, path: str, text: str, *, mode: int = 0o644, user: str = "root") -> None:
        """Write a file of this host; all hosts share /home and /etc (but for hosts and hostname)."""
        file = self.outside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        os.chown(file, USERS.get(user, 0), USERS.get(user, 0))

    def processes(self) -> dict[int, str]:
        """Return pid -> command line of what runs on this host, the holder left out."""
        own = namespace(self.pid)
        return {pid: line for pid, line in self.hosts.processes().items() if namespace(pid) == own}

    def files(self, *directories: str) -> set[str]:
        """Return all below these directories; without any, what came to the host's own since its start."""
        found = {path for top in directories or OWN for path in walk(self.outside("/"), top)}
        return found if directories else found - self.first_files

    def drop_multicast(self) -> None:
        """Let no multicast datagram in."""
        self._add(*network.NO_MULTICAST)

    def lose(self, fraction: float) -> None:
        """Lose a random fraction of the packets that come to this host, and of those that leave it."""
        self._add(network.loss(fraction))
        self.port_rules.append(network.loss(fraction))
        self.hosts.apply_switch_rules()

    def unplug(self) -> None:
        """Lose all packets, as a host does whose cable is pulled; clear_firewall() puts it back."""
        self._add("drop")
        self.port_rules.append("drop")
        self.hosts.apply_switch_rules()

    def clear_firewall(self) -> None:
        """Let everything through again."""
        if not self.rules and not self.port_rules:
            return
        self.rules.clear()
        self.port_rules.clear()
        self._add()
        self.hosts.apply_switch_rules()

    def _add(self, *rules: str) -> None:
        self.rules += rules
        self.hosts.nft(self.pid, network.host_rules(self.rules))


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a command that was started on a host, with its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def is_ending(pid: int) -> bool:
    """Tell whether a process has ended, or the kernel is about to take it away: it runs no line any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return bool(int(fields[6]) & PF_EXITING)


def command_line(pid: int) -> str:
    """Return a process's command line, or its name where it has none."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "(ended)"


def namespace(pid: int) -> str:
    """Return the UTS namespace of a process, which tells its host."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return str(Path(f"/proc/{pid}/ns/uts").readlink())
    return ""


def clean_env(user: str, home: str) -> dict[str, str]:
    """Return the environment of a fresh login: nothing of the developer's own or of a scheduler."""
    programs = Path(sys.executable).parent
    return {
        "PATH": f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
    }


def enter(pid: int, *namespaces: str) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net", *namespaces, "--"]
