"""Several hosts on one machine: namespaces with a name, two networks, a shared home and a firewall each."""

from __future__ import annotations

import contextlib
import functools
import json
import marshal
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster import holder, network
from cluster.host import COMMAND_S, OWN, USERS, Host, clean_env, command_line, enter, is_ending
from cluster.paths import needed_paths, outermost, reachable

TOOLS = ("ip", "nft", "unshare", "nsenter", "setpriv")
# Sixteen hosts are ready within 2 s on two busy cores.
START_S = 60.0
HOLDER = "import sys; sys.path.append(sys.argv[1]); import holder; holder.main()"
# What all hosts of a set share and the machine does not see.
SHARED = ("/home", "/root")


def missing() -> list[str]:
    """Return what this machine lacks for hosts, in words; an empty list where they can be had."""
    lacks = [] if sys.platform == "linux" else ["Linux"]
    if os.geteuid() != 0:
        lacks.append("root")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacks += [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    if not lacks:
        lacks += [] if makes_namespaces() else ["the right to make namespaces"]
    return lacks


@functools.cache
def makes_namespaces() -> bool:
    """Tell whether this process may have namespaces of its own: root in a chroot or a plain container may not."""
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def has_ipv6() -> bool:
    """Tell whether this machine's kernel speaks IPv6; where it does not, hosts have IPv4 only."""
    return Path("/proc/sys/net/ipv6").exists()


class Hosts:
    """A set of hosts, as a context manager: made on entry, and gone with all that runs on them on exit.

    `count` hosts named node1, node2, … have eth0 (10.77.0.i, fd77::i) and ib0 (10.78.0.i, fd78::i). Each has
    its own name, /run, /tmp, /var/tmp, /dev/shm, /etc/hosts and /etc/hostname. They share /home, /root and a
    private copy of /etc; `share` names directories of this machine that they see too. All else is the
    machine's own. Python, this project and what it imports are there under their usual paths for every user.
    """

    def __init__(
        self, count: int = 4, *, ipv4: bool = True, ipv6: bool = True, share: Iterable[str | Path] = ()
    ) -> None:
        self.count, self.ipv4 = count, ipv4
        self.ipv6 = ipv6 and has_ipv6()
        self.share = [os.path.realpath(s) for s in share]
        self.tag = f"{holder.tag_of(os.getpid())}:{secrets.token_hex(4)}"
        self._list: list[Host] = []
        self.started: list[subprocess.Popen[str]] = []
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Hosts:
        holder.reap_dead_owners()
        # -I and -S: the holder needs nothing but the library, and is there in half the time without the rest; as a
        # module it is not compiled for each set of hosts.
        self._holder = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", HOLDER, str(Path(holder.__file__).parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
        try:
            self._make(self._holder)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Host]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, index: int) -> Host:
        return self._list[index]

    def _make(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        names = [f"node{i}" for i in range(1, self.count + 1)]
        marshal.dump(self._plan(names), process.stdin)
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise ChildProcessError("the hosts did not start; the holder's own message stands above")
        pids = json.loads(answer)
        self._list = [Host(n, i, p, self) for i, (n, p) in enumerate(zip(names, pids, strict=True), 1)]
        _tool(process.pid, ["ip", "-batch", "-"], network.switch_lines(pids))
        for host in self:
            lines = network.host_lines(host.number, ipv4=self.ipv4, ipv6=self.ipv6)
            _tool(host.pid, ["ip", "-batch", "-"], lines)
            host.first_files = frozenset(host.files())

    def _plan(self, names: list[str]) -> dict[str, Any]:
        keep, covered = reachable([*needed_paths(), *self.share])
        return {
            "tag": self.tag,
            "names": names,
            "own": list(OWN),
            "shared": outermost([*SHARED, *covered]),
            "keep": keep,
            "users": USERS,
            "etc_entries": {
                "passwd": [f"{n}:x:{u}:{u}:{n}:/home/{n}:/bin/bash" for n, u in USERS.items()],
                "group": [f"{n}:x:{u}:" for n, u in USERS.items()],
            },
            "etc_replaced": {
                "hosts": self._hosts_file(names),
                # There is no name server; a question to this machine is refused at once.
                "resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
            },
        }

    def _hosts_file(self, names: list[str]) -> str:
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for number, name in enumerate(names, 1):
            for iface in network.NETWORKS:
                alias = name if iface == "eth0" else f"{name}-ib"
                lines.append(f"{network.address(iface, number, ipv6=not self.ipv4)} {alias}")
        return "\n".join(lines) + "\n"

    def run_all(
        self,
        argv: Sequence[str | os.PathLike[str]] | Callable[[Host], Sequence[str | os.PathLike[str]]],
        *,
        env: Mapping[str, str] | Callable[[Host], Mapping[str, str]] | None = None,
        delays: Sequence[float] | None = None,
        timeout: float = COMMAND_S,
        **options: Any,
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run a command on all hosts, each after its delay in seconds; the results are in host order."""
        return run_each(
            self,
            (argv(host) if callable(argv) else argv for host in self),
            (env(host) if callable(env) else env for host in self),
            delays,
            timeout=timeout,
            **options,
        )

    def lose(self, fraction: float) -> None:
        """Lose a random fraction of the packets between any two hosts, in both directions."""
        for host in self:
            host._add(network.loss(fraction))

    def drop_multicast(self) -> None:
        """Let no multicast datagram through to any host."""
        for host in self:
            host.drop_multicast()

    def clear_firewall(self) -> None:
        """Let everything through again, everywhere."""
        for host in self:
            host.clear_firewall()

    def ip(self, lines: Iterable[str], host: Host | None = None) -> None:
        """Run lines of `ip -batch` on a host, or on the switch that all are plugged into."""
        assert self._holder is not None
        _tool(host.pid if host else self._holder.pid, ["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def nft(self, pid: int, text: str) -> None:
        """Load an nft file in the network namespace of process `pid`."""
        _tool(pid, ["nft", "-f", "-"], text)

    def apply_switch_rules(self) -> None:
        """Make the hosts' rules for what leaves them the only ones on the switch."""
        assert self._holder is not None
        ports = {network.port_name(n, h.number): h.port_rules for h in self if h.port_rules for n in network.NETWORKS}
        self.nft(self._holder.pid, network.switch_rules(ports))

    def processes(self) -> dict[int, str]:
        """Return pid -> command line of all that runs on the hosts, the holders and what is ending left out."""
        held = {host.pid for host in self} | {self._holder.pid if self._holder else os.getpid()}
        known = dict.fromkeys(held, self.tag) | {os.getpid(): ""}
        own = [pid for pid, tag in holder.tagged(known).items() if tag == self.tag and pid not in held]
        return {pid: command_line(pid) for pid in own if not is_ending(pid)}

    def close(self) -> None:
        """End all that runs on the hosts, and the hosts; raise TimeoutError when something is left."""
        if self._holder is None:
            return
        process, self._holder = self._holder, None
        for its in (process.stdin, process.stdout):
            assert its is not None
            with contextlib.suppress(BrokenPipeError):
                its.close()
        status = process.wait(holder.END_WITHIN_S + 5)
        holder.end(self.tag)  # in case somebody killed the holder
        for started in self.started:
            started.wait(COMMAND_S)
            for pipe in (started.stdin, started.stdout, started.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self.started.clear()
        assert status == 0, f"the holder of the hosts ended with {status}; its own message stands above"


def run_each(
    places: Iterable[Host],
    argvs: Iterable[Sequence[str | os.PathLike[str]]],
    envs: Iterable[Mapping[str, str] | None],
    delays: Sequence[float] | None = None,
    **options: Any,
) -> list[subprocess.CompletedProcess[str]]:
    """Run a command on each of these hosts, which may repeat, each after its delay in seconds; results in order."""

    def one(
        host: Host, argv: Sequence[str], env: Mapping[str, str] | None, delay_s: float
    ) -> subprocess.CompletedProcess[str]:
        time.sleep(delay_s)
        return host.run(argv, env=env, **options)

    some = list(places)
    with ThreadPoolExecutor(len(some)) as pool:
        return list(pool.map(one, some, argvs, envs, delays or [0.0] * len(some)))


def _tool(pid: int, argv: list[str], text: str) -> None:
    done = subprocess.run(
        [*enter(pid), *argv],
        input=text,
        text=True,
        capture_output=True,
        timeout=START_S,
        check=False,
        env=clean_env("root", "/"),
    )
    if done.returncode:
        raise OSError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}\n{text}")
