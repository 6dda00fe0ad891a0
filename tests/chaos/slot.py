"""A set of hosts with its Slurm, on which one schedule after the other is played."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cluster.host import Host, kill_group
from cluster.hosts import Hosts
from cluster.network import NETWORKS
from cluster.paths import BIN
from cluster.slurm import SlurmCluster
from cluster.ssh import ssh
from simulator.seats import Seat
from support.members import KEYED
from typing_extensions import Self

from chaos import faults
from chaos.outcome import Hit, Outcome, Process, Trained
from chaos.schedules import GRACE_S, LONG_S, SILENCE_S, STOPPED_S, TRAINS_S, WAYS, Fault, Schedule

HERE = Path(__file__).parent
# Above the latest end that the rules allow.
HORIZON_S = 120.0
LOOK_S, LOOK_AGAIN_S = 0.02, 0.1
# On which members meet, by default.
PORTS = range(20000, 25000)
# What Slurm, mount and others write on a host of their own accord.
NOT_OURS = ("/run/slurm", "/run/munge", "/run/mount")


class Slot:
    """Hosts and their Slurm, as a context manager."""

    def __init__(self, place: Path, nodes: int) -> None:
        self.place, self.nodes = place, nodes

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.place.mkdir(exist_ok=True)
            stack.callback(shutil.rmtree, self.place)
            self.place.chmod(0o777)
            self.hosts = stack.enter_context(Hosts(self.nodes, share=[self.place]))
            self.slurm = stack.enter_context(SlurmCluster(self.hosts, conf_lines=["MinJobAge=10"]))
            self.ssh = ssh(self.hosts, self.place, needs_network=True)
            self.first_sockets = {host.name: _listening(host) for host in self.hosts}
            self.first_files = {host.name: host.files() for host in self.hosts}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def play(self, schedule: Schedule) -> Outcome:
        """Play a schedule, and return what came of it; the hosts are as before."""
        place = self.place / str(schedule.seed)
        place.mkdir()
        place.chmod(0o777)
        try:
            with (place / "log").open("w") as log:
                return _Play(self, schedule, place, log).run()
        finally:
            shutil.rmtree(place)

    def left(self) -> list[str]:
        """Return the processes, sockets and files that are left on the hosts, and remove the files."""
        found = [f"{line} still runs" for line in self.slurm.strays().values()]
        for host in self.hosts:
            found += [f"{host.name} {its}" for its in _listening(host) - self.first_sockets[host.name]]
            files = host.files() - self.first_files[host.name]
            files = {path for path in files if not path.startswith(NOT_OURS)}
            if files:
                host.run(["rm", "-rf", *files], check=True)
            found += [f"{host.name} {path}" for path in files]
        return found


class Event(NamedTuple):
    """Something to do so many seconds after the beginning; what is not optional is waited for."""

    at_s: float
    do: Callable[[], None]
    is_optional: bool = False


class _Play:
    """One schedule as it happens."""

    def __init__(self, slot: Slot, schedule: Schedule, place: Path, log: Any) -> None:
        self.slot, self.schedule, self.place, self.log, self.hosts = slot, schedule, place, log, slot.hosts
        self.way = WAYS[schedule.way]
        self.user, self.home = ("root", "/root") if self.way.starter in ("each", "ssh") else ("alice", "/home")
        self.started: list[subprocess.Popen[str]] = []
        self.hits: dict[Fault, Hit] = {}
        self.mends: dict[Fault, Callable[[], None]] = {}
        self.events: list[Event] = []
        self.began = 0.0

    def run(self) -> Outcome:
        if self.schedule.has_new_key:
            self.hosts[0].run(["rm", "-rf", "/home/alice/.config/mingle"], check=True)
        (self.place / "meet").mkdir(mode=0o700)
        self.began = time.time()
        try:
            self._start()
            arranged: set[Fault] = set()
            while self._goes_on():
                for fault in set(self.schedule.faults) - arranged:
                    if (since_s := self._since(fault)) is not None:
                        arranged.add(fault)
                        self._at(since_s + fault.at_s, fault)
                for event in [its for its in self.events if its.at_s <= self._now()]:
                    self.events.remove(event)
                    event.do()
                time.sleep(LOOK_S)
            over_s = self._now()
            never_ended = [its for its in self.started if its.poll() is None]
        finally:
            for fault in list(self.mends):
                self._mend(fault)
            for process in self.started:
                kill_group(process)
                process.wait()
        if self.way.starter in ("srun", "salloc"):
            self.slot.slurm.cancel_all()
        return self._outcome(over_s, never_ended)

    def _now(self) -> float:
        return time.time() - self.began

    def _goes_on(self) -> bool:
        """Tell whether there is something to wait for: of a run that ends all together, nothing may go on either."""
        if self._now() > HORIZON_S:
            return False
        if any(its.poll() is None for its in self.started) or not all(event.is_optional for event in self.events):
            return True
        if not self.way.stays or not any(faults.members(host) for host in self.hosts):
            return False
        time.sleep(LOOK_AGAIN_S)
        return True

    # What goes wrong.

    def _since(self, fault: Fault) -> float | None:
        """Return from when a fault's time counts, if it is known yet."""
        if fault.after == "world":
            return self._now() if next(self.place.glob("world.first.*"), None) else None
        if fault.after == "connection":
            return self._now() if any(_has_members(host) for host in self.hosts) else None
        return max(self.schedule.offsets_s) if fault.after == "last" else 0.0

    def _at(self, at_s: float, fault: Fault) -> None:
        host = self.hosts[fault.host]

        def make() -> None:
            began_s = self._now()
            count, self.mends[fault] = faults.make(fault, host, self.home, self.place)
            if fault.kind in ("kill", "replace", "stop") and not count:  # nothing runs there yet
                self.events.append(Event(began_s + LOOK_AGAIN_S, make, is_optional=True))
                return
            self.hits[fault] = Hit(fault, began_s, self._now(), count)
            if fault.kind in ("twice", "replace"):
                again = Event(self._now() + fault.lasts_s, lambda: self._start_on(host, f".again{at_s:.2f}"))
                self.events.append(again)
            elif fault.lasts_s:
                self.events.append(Event(self._now() + fault.lasts_s, lambda: self._mend(fault), is_optional=True))

        self.events.append(Event(at_s, make, is_optional=fault.kind != "twice"))

    def _mend(self, fault: Fault) -> None:
        if fault in self.mends:
            self.mends.pop(fault)()
            if fault in self.hits:
                self.hits[fault] = replace(self.hits[fault], ended_s=self._now())

    # How processes start.

    def _start(self) -> None:
        schedule, starter = self.schedule, self.way.starter
        if starter == "each":
            for host in self.hosts:
                self._start_on(host, "")
        else:
            one_each = [f"-N{schedule.nodes}", "--ntasks-per-node=1"]
            before = {"srun": ["srun", *one_each], "salloc": ["salloc", "--quiet", *one_each], "ssh": []}[starter]
            self._popen(self.hosts[0], [*before, *self._task("", schedule.offsets_s), *self._line(None)], self.user)
        for host in self.hosts if schedule.second_s else ():
            words = ["exec", "--id", "second", "--nodes", str(schedule.nodes), "--timeout", f"{LONG_S:g}"]
            train = ["sh", str(HERE / "train.sh"), str(self.place), "second", f"{TRAINS_S:g}"]
            self._popen(host, [*self._task(".second", schedule.second_s), "mingle", *words, *train], "root")

    def _start_on(self, host: Host, suffix: str) -> None:
        offsets = (0.0,) * self.schedule.nodes if suffix else self.schedule.offsets_s
        self._popen(host, [*self._task(suffix, offsets), *self._line(host)], self.user)

    def _task(self, suffix: str, offsets: tuple[float, ...]) -> list[str]:
        times = ",".join(f"{offset:.3f}" for offset in offsets)
        return ["sh", str(HERE / "task.sh"), str(self.place), suffix, times]

    def _line(self, host: Host | None) -> list[str]:
        """Return what is typed, on this host or for all."""
        schedule, command = self.schedule, self.way.command
        words = ["--timeout", f"{schedule.timeout_s:g}"]
        if command == "run":
            words += ["--grace", str(GRACE_S), "--silence", f"{SILENCE_S},{STOPPED_S}"]
        if self.way.starter == "ssh":
            words += ["--hosts", ",".join(its.name for its in self.hosts)]
        if host is not None:
            words += ["--id", f"chaos{schedule.seed}", "--nodes", str(schedule.nodes)]
            words += ["--rank", str(host.number - 1)] if schedule.has_ranks else []
            words += ["--via", schedule.via] if schedule.via else []
            words += ["--master", "node1"] if schedule.via == "master" else []
            words += ["--directory", str(self.place / "meet")] if schedule.via == "directory" else []
        train = ["sh", str(HERE / "train.sh"), str(self.place), "first", f"{schedule.trains_s:g}"]
        train += ["stubborn"] * schedule.is_stubborn
        if command == "env":
            return ["bash", str(HERE / "eval.sh"), str(self.place / "eval"), *words, "--", *train]
        return ["mingle", *(["exec", "--together"] if command == "together" else [command]), *words, *train]

    def _popen(self, host: Host, argv: list[str], user: str) -> None:
        env = {"PYTHONPATH": str(HERE / "clock"), "CHAOS_CLOCKS": str(self.place)} | (KEYED if user == "root" else {})
        if self.way.starter == "ssh":
            env["PATH"] = f"{self.slot.ssh}:{BIN}:/usr/sbin:/usr/bin:/sbin:/bin"
        self.started.append(host.popen(argv, env=env, user=user, stdout=self.log, stderr=subprocess.STDOUT))

    # What came of it.

    def _outcome(self, over_s: float, never_ended: list[subprocess.Popen[str]]) -> Outcome:
        left = [f"a process that never ended: {its.args!r}" for its in never_ended] + self.slot.left()
        return Outcome(
            processes=tuple(self._process(path) for path in sorted(self.place.glob("began.*"))),
            trained=tuple(self._trained(path) for path in sorted(self.place.glob("world.*"))),
            hits=tuple(self.hits.values()),
            evaluated=tuple(path.read_text() for path in self.place.glob("eval.*")),
            over_s=over_s,
            left=tuple(left),
            log=(self.place / "log").read_text(errors="replace"),
        )

    def _process(self, began: Path) -> Process:
        name = began.name.removeprefix("began.")
        status = self.place / f"status.{name}"
        ended = status.stat().st_mtime - self.began if status.exists() else None
        return Process(
            name=name,
            job="second" if name.endswith(".second") else "first",
            began_s=began.stat().st_mtime - self.began,
            ended_s=ended,
            status=int(status.read_text()) if ended is not None else None,
            stderr=(self.place / f"err.{name}").read_text(errors="replace"),
        )

    def _trained(self, file: Path) -> Trained:
        job, name, _pid = file.name.removeprefix("world.").split(".")
        its_id, world, address, port, nodes, rank, offset, slots, size = file.read_text().split()
        host = next(host for host in self.hosts if host.name == name)
        leader = next((it.name for it in self.hosts if address in map(it.addr, NETWORKS)), address)
        has_ranks = job == "first" and (self.schedule.has_ranks or self.way.starter != "each")
        return Trained(
            job,
            name,
            file.stat().st_mtime - self.began,
            Seat(
                file.name,
                (its_id, world, address, port, nodes),
                int(rank),
                int(nodes),
                int(offset),
                int(slots),
                int(size),
                asked_nodes=self.schedule.nodes,
                asked_rank=host.number - 1 if has_ranks else None,
            ),
            leader,
        )


def _listening(host: Host) -> set[str]:
    """Return the ports on which something listens on a host, and those that take datagrams."""
    listens = {("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")}
    return {
        f"{protocol} port {port} is open" for protocol, state, port in _sockets(host) if (protocol, state) in listens
    }


def _has_members(host: Host) -> bool:
    """Tell whether a member has a connection on a host."""
    return any(state == "01" and port in PORTS for _, state, port in _sockets(host))


def _sockets(host: Host) -> Iterator[tuple[str, str, int]]:
    """Yield protocol, state and local port of the sockets on a host, as the kernel has them in hexadecimal numbers."""
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        path = Path(f"/proc/{host.pid}/net/{protocol}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            yield protocol, fields[3], int(fields[1].rpartition(":")[2], 16)
