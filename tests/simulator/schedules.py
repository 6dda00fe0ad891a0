"""What happens in one run: who comes when, as what, and what goes wrong. All of it from one seed."""

import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from tempfile import TemporaryDirectory
from typing import NamedTuple

from support.gathering import request

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import PEER_LOST_S
from mingle_hooks.rendezvous.member import Request
from mingle_hooks.rendezvous.wire import Attempt, Material
from simulator.network import ASKS_S, Host, Network, SimSocket
from simulator.process import Process, simulated
from simulator.timeline import Timeline

FRAMES = """HELLO CHALLENGE REFUSED VERIFY VERIFIED CHECKIN WELCOME REACHED PROGRESS ANSWER READY HOLD COMMIT DONE
FAILED GAVE_UP MOVED RIVAL"""
KINDS = {getattr(wire, name): name for name in FRAMES.split()}
# Nobody waits longer than its own deadline and what the design adds to it; see rules.py.
HORIZON_S = 600.0
# With so much time left when the last one comes, in seconds, a world has to form where nothing happens.
CALM_S = 8.0
# A member asks by multicast 8 times in 10 s, and gets two answers each time. With a tenth of the datagrams lost, all of
# that fails once in 10^7 members; with three tenths, once in 3,000: seed 53335322 ends at its deadline.
CERTAIN_LOSS = 0.1
# What is started "at the same time" starts within this, in seconds.
TOGETHER_S = 0.4
# Where one directory announces all leaders by right, one may have waited so long, and the others come within that.
WAITED_S, SOON_S = 3.0, 0.5
VIA = {
    "slurm": ("hosts",), "slurm+multicast": ("hosts", "multicast"), "ranks": ("multicast",), "bare": ("multicast",),
    "master": ("master",), "directory": ("directory",), "ranks+directory": ("directory",),
}  # fmt: skip
MODES = tuple(VIA)
FAULTS = (
    *("kill", "replace", "stop", "reset", "cut", "cut one way", "isolate", "dark", "jump", "replay", "slow"),
    *("suspend", "time of day", "forge", "half-open"),
)
# Frames at which faults strike: the later, the worse.
MOMENTS = ("CHECKIN", "REACHED", "ANSWER", "READY", "READY", "COMMIT", "COMMIT", "DONE")
# The end of a check-in is where worlds split: a third of all schedules is about nothing else.
LAST_FAULTS = ("stop", "stop", "reset", "reset", "cut", "isolate", "kill", "suspend", "suspend", "forge", "half-open")
LASTING_S = (0.05, 1.0, 5.0, 12.0, 25.0, 45.0)
# For how long a host is suspended while its world closes, in seconds: longer than a lease.
ASLEEP_S = (35.0, 45.0, 70.0)
# How far the time of day jumps, in seconds.
OF_DAY_S = (-1e7, -3600.0, -30.0, 30.0, 3600.0, 1e7)
LAST_MOMENTS = ("ANSWER", "READY", "READY", "COMMIT")


class Oddity(NamedTuple):
    """What one of the processes does not have in common with the others."""

    kind: str
    who: int


class Fault(NamedTuple):
    """What goes wrong, and at which frame; None: at any time."""

    kind: str
    moment: str | None
    who: int
    other: int
    lasts_s: float


class Plan(NamedTuple):
    """What a seed stands for."""

    seed: int
    mode: str
    nodes: int
    timeouts: tuple[float, ...]  # of each process, in seconds
    arrivals: tuple[float, ...]  # of each process, in seconds
    faults: tuple[Fault, ...]
    oddity: Oddity | None
    loss: float
    networks: int

    @property
    def is_calm(self) -> bool:
        """Whether nothing happens that could keep a world from forming."""
        spare_s = min(self.timeouts) - max(self.arrivals)
        kinds = [fault.kind for fault in self.faults]
        # The time of day matters to nobody, and a connection that is lost unsaid is found out.
        lost, harmless = kinds.count("half-open"), kinds.count("time of day")
        is_healed = lost + harmless == len(kinds) and spare_s > CALM_S + 2 * PEER_LOST_S * lost
        return is_healed and self.oddity is None and not (VIA[self.mode] == ("multicast",) and self.loss > CERTAIN_LOSS)


def plan(seed: int, rng: random.Random) -> Plan:
    """Return the plan that a seed stands for; what the faults do is drawn while it runs."""
    mode, nodes = rng.choice(MODES), rng.choice((2, 2, 3, 3, 4, 5))
    timeout_s = rng.choice((2.0, 5.0, 10.0, 20.0))
    spread = rng.choice((0.0, 0.01, 0.5, timeout_s * 0.5, timeout_s * 1.1))
    arrivals = tuple(rng.uniform(0.0, spread) for _ in range(nodes))
    faults = tuple(_fault(rng, nodes) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4))))
    odd = rng.choice(("", "", "", "wrong nodes", "wrong key", "same host name", "one more", "rank twice"))
    theme = rng.choice(("any", "any", "any", "just in time", "commit", "asleep", "half-open", "calm", "two of each"))
    if theme == "just in time":  # the last one comes as the others are about to give up
        arrivals = (*(0.0,) * (nodes - 1), timeout_s - rng.uniform(0.0, rng.choice((0.03, 0.1, 0.3))))
    if theme == "half-open":
        timeout_s, arrivals = 150.0, tuple(rng.uniform(0.0, rng.choice((0.01, 5.0))) for _ in range(nodes))
    if theme in DRAWN:
        odd, draw = "", DRAWN[theme]
        faults = tuple(draw(rng, nodes) for _ in range(rng.choice((1, 1, 2))))
    if theme in ("calm", "two of each"):
        odd, faults = "", ()
    if theme == "two of each":  # somebody starts the whole world twice, at the same time
        mode = rng.choice(MODES[2:])  # a scheduler gives each rank once
        odd, arrivals = theme, tuple(rng.uniform(0.0, TOGETHER_S) for _ in range(2 * nodes))
        if mode == "ranks+directory":
            others_s = rng.uniform(0.0, WAITED_S)
            arrivals = (0.0, *(others_s + rng.uniform(0.0, SOON_S) for _ in range(2 * nodes - 1)))
            # The second of them does not answer for a while, though not for as long as it is waited for.
            faults = (Fault("stop", "HELLO", nodes, 0, rng.choice((0.5, 2.0, 4.0))),)
    # The first, who often leads, may be more patient than the others.
    longer_s = rng.choice((0.0, 60.0)) if theme in ("commit", "asleep") else 0.0
    return Plan(
        seed=seed,
        mode=mode,
        nodes=nodes,
        timeouts=(timeout_s + longer_s,) + (timeout_s,) * 2 * nodes,
        arrivals=arrivals,
        faults=faults,
        oddity=Oddity(odd, rng.randrange(nodes)) if odd else None,
        loss=rng.choice((0.0, 0.0, 0.1, 0.3)) if theme != "two of each" else 0.0,
        networks=rng.choice((1, 1, 2)),
    )


def _fault(rng: random.Random, nodes: int) -> Fault:
    moment = rng.choice(MOMENTS) if rng.random() < 0.6 else None
    return Fault(rng.choice(FAULTS), moment, rng.randrange(nodes), rng.randrange(nodes), rng.choice(LASTING_S))


def _late_fault(rng: random.Random, nodes: int) -> Fault:
    moment = rng.choice(("READY", "COMMIT", "COMMIT"))
    return Fault(rng.choice(("reset", "reset", "cut")), moment, rng.randrange(nodes), 0, rng.choice((0.05, 1.0, 12.0)))


def _last_fault(rng: random.Random, nodes: int) -> Fault:
    if rng.random() < 0.2:
        return Fault("stop", "READY", 0, 0, max(LASTING_S))  # the leader holds old promises when it goes on
    who = rng.choice((0, rng.randrange(nodes)))
    return Fault(rng.choice(LAST_FAULTS), rng.choice(LAST_MOMENTS), who, rng.randrange(nodes), rng.choice(LASTING_S))


def _sleep(rng: random.Random, nodes: int) -> Fault:
    """Suspend a host, mostly the leader's, while it closes the world."""
    who = rng.choice((0, 0, rng.randrange(nodes)))
    return Fault("suspend", rng.choice(LAST_MOMENTS), who, 0, rng.choice(ASLEEP_S))


def _unsaid(rng: random.Random, nodes: int) -> Fault:
    """Lose a connection so that one end does not notice, or have the time of day jump."""
    kind = rng.choice(("half-open", "half-open", "half-open", "time of day"))
    return Fault(kind, rng.choice(MOMENTS), rng.randrange(nodes), rng.randrange(nodes), 0.0)


# Themes that are about faults of one sort.
DRAWN = {"just in time": _late_fault, "commit": _last_fault, "asleep": _sleep, "half-open": _unsaid}


class Schedule:
    """One run of a plan. After run(), `processes` tell how each ended, and `trace` what happened."""

    def __init__(self, seed: int, *, trace: bool = False, planned: Plan | None = None) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - the point of it is that it can be repeated
        self.plan = planned or plan(seed, self.rng)
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.rng, self._seen)
        self.network.loss, self.network.twice = self.plan.loss, 0.1
        self.network.has_slow_packets = self.plan.oddity is None or self.plan.oddity.kind != "two of each"
        self.processes: list[Process] = []
        self._over = 0  # how many of them, from the first on, have ended
        self.key = Material(b"k" * 32)
        self._directory = ""  # that all hosts share, while it runs
        self.trace: list[str] | None = [] if trace else None
        # From, to, hosts: when it could not be reached, or not act; of two, when they could not reach each other.
        self.troubles: list[tuple[float, float, set[str]]] = []
        self._triggers: list[tuple[str, int, Fault]] = []  # frame, how many of it come before, what then
        self._places = self._make_hosts()
        self._arrange()

    def run(self) -> None:
        """Let it happen."""
        has_directory = "directory" in VIA[self.plan.mode]
        with TemporaryDirectory() if has_directory else nullcontext("") as self._directory, simulated(self.rng):
            self.timeline.run(self._is_over, HORIZON_S)

    def _is_over(self) -> bool:
        while self._over < len(self.processes) and self.processes[self._over].ended is not None:
            self._over += 1  # asked after every event: none that has ended is looked at again
        return self._over == len(self.processes) >= self._expected

    def say(self, what: str) -> None:
        """Note an event."""
        if self.trace is not None:
            self.trace.append(f"{self.timeline.now:9.4f}  {what}")

    # Who takes part.

    def _make_hosts(self) -> list[Host]:
        same = self.plan.oddity is not None and self.plan.oddity.kind == "same host name"
        hosts = []
        for index in range(2 * self.plan.nodes):
            addresses = (f"10.77.0.{index + 1}", f"10.78.0.{index + 1}")
            host = Host(f"node{index}", addresses[: self.plan.networks])
            hosts.append(self.network.add(host))
        self._names = ["node" if same else host.name for host in hosts]
        return hosts

    def _arrange(self) -> None:
        plan = self.plan
        arrivals = list(enumerate(plan.arrivals))
        if plan.oddity is not None and plan.oddity.kind == "one more":
            arrivals.append((plan.nodes, self.rng.uniform(0.0, max(plan.timeouts))))
        self._expected = len(arrivals)
        for index, when in arrivals:
            self.timeline.after(when, lambda index=index: self.start(index))  # type: ignore[misc]
        for fault in plan.faults:
            if fault.moment is not None:
                self._triggers.append((fault.moment, self.rng.randrange(plan.nodes - 1), fault))
            else:
                self.timeline.after(self.rng.uniform(0.0, max(plan.timeouts) + 5.0), self._act(fault))

    def start(self, index: int) -> None:
        """Start the process of this index; again where it ran before."""
        again = sum(p.name.startswith(f"p{index}") for p in self.processes)
        process = Process(self.network, self._places[index], f"p{index}" + "'" * again, self._request(index))
        self.processes.append(process)
        self.say(f"{process.name} starts on {process.host.name}: rank {process.request.spec.rank}")
        process.start()

    def _request(self, index: int) -> Request:
        plan, odd = self.plan, self.plan.oddity
        kind = odd.kind if odd is not None and odd.who == index else ""
        ranked = plan.mode.startswith(("slurm", "ranks"))
        rank = min(index, plan.nodes - 1) if ranked else None
        if odd is not None and odd.kind == "two of each" and ranked:
            rank = index % plan.nodes
        if kind == "rank twice" and rank is not None:
            rank = (rank + 1) % plan.nodes
        return request(
            attempt=Attempt("a"),
            key=self.key if kind != "wrong key" else Material(b"o" * 32),
            host=self._names[index],
            machine=self._places[index].name,
            slots=1 + index,
            rank=rank,
            nodes=plan.nodes + (kind == "wrong nodes"),
            timeout_s=plan.timeouts[index],
            leader_hosts=("node0",) if plan.mode.startswith("slurm") else (),
            master=("node0", None) if plan.mode == "master" else None,
            directory=self._directory or None,
            via=VIA[plan.mode],
            port_range=range(20_000, 20_400),
            wants_roster=(plan.seed + index) % 3 == 0,
        )

    # What goes wrong.

    def _seen(self, source: Host, target: Host, data: bytes) -> None:
        kind = KINDS.get(data[4], "?") if len(data) >= wire.HEADER.size else "?"
        if self.trace is not None:
            self.say(f"{source.name} > {target.name}  {kind}")
        for trigger in [t for t in self._triggers if t[0] == kind]:
            self._triggers.remove(trigger)
            if trigger[1]:
                self._triggers.append((kind, trigger[1] - 1, trigger[2]))
            elif trigger[2].kind == "suspend" and self.rng.random() < 0.5:
                self._act(trigger[2])()  # in the midst of a turn: what is left of it happens after the sleep
            else:
                # At once, before the frame has arrived, or within the next milliseconds.
                self.timeline.after(self.rng.choice((0.0, 0.001, 0.003)), self._act(trigger[2]))

    def _act(self, fault: Fault) -> Callable[[], None]:
        who, other, lasts_s = fault.who, fault.other, fault.lasts_s
        acts: dict[str, Callable[[], None]] = {
            "kill": lambda: self._kill(who),
            "replace": lambda: self._replace(who, min(lasts_s, 5.0)),
            "stop": lambda: self._stop(who, lasts_s),
            "reset": lambda: self._reset(who),
            "cut": lambda: self._cut({(who, other), (other, who)}, lasts_s),
            "cut one way": lambda: self._cut({(who, other)}, lasts_s),
            "isolate": lambda: self._cut(self._around(who), lasts_s),
            "dark": lambda: self._cut(self._around(who), HORIZON_S),
            "jump": lambda: self._jump(who, lasts_s),
            "replay": self._replay,
            "slow": lambda: self._slow(who, lasts_s),
            "suspend": lambda: self._suspend(who, lasts_s),
            "time of day": lambda: self._set_time_of_day(who),
            "forge": lambda: self._forge(who),
            "half-open": lambda: self._lose(who),
        }
        return acts[fault.kind]

    def _of(self, who: int) -> list[Process]:
        return self._of_host(self._places[who])

    def _of_host(self, host: Host) -> list[Process]:
        return [p for p in self.processes if p.is_alive and p.host is host]

    def _kill(self, who: int) -> None:
        for process in self._of(who):
            self.say(f"{process.name} is killed")
            process.kill()

    def _replace(self, who: int, pause_s: float) -> None:
        """Kill a process, once in a schedule, and start it again: more would be a second world by right."""
        if self._of(who) and self._expected + 1 < 2 * self.plan.nodes:
            self._kill(who)
            self._expected += 1
            self.timeline.after(pause_s, lambda: self.start(who))

    def _stop(self, who: int, lasts_s: float) -> None:
        for process in self._of(who):
            self.say(f"{process.name} is stopped for {lasts_s} s")
            self._note_trouble(lasts_s, who)
            process.stop()
            self.timeline.after(lasts_s, process.go_on)

    def _reset(self, who: int) -> None:
        for process in self._of(who):
            self.say(f"{process.name}: its connections are reset")
            for sock in list(process.sockets.values()):
                if sock.pipe is not None:
                    sock.reset_peer()
                    sock.fail(104)

    def _around(self, who: int) -> set[tuple[int, int]]:
        others = [index for index in range(len(self._places)) if index != who]
        return {(who, index) for index in others} | {(index, who) for index in others}

    def _cut(self, pairs: set[tuple[int, int]], lasts_s: float) -> None:
        names = [(self._places[a].name, self._places[b].name) for a, b in sorted(pairs)]
        self.say(f"cut for {lasts_s} s: {', '.join(f'{a}>{b}' for a, b in names)}")
        for a, b in sorted(pairs):
            self.network.cut(self._places[a].name, self._places[b].name, 1)
            self._note_trouble(lasts_s, a, b)

        def heal() -> None:
            for a, b in names:
                self.network.cut(a, b, -1)

        self.timeline.after(lasts_s, heal)
        if lasts_s > PEER_LOST_S:
            self.timeline.after(PEER_LOST_S, lambda: self._notice(pairs))

    def _notice(self, pairs: set[tuple[int, int]]) -> None:
        """Have the kernels give up what has been cut for so long; the kernel of a suspended host does so later."""
        places = [(self._places[a], self._places[b]) for a, b in sorted(pairs)]
        ends = [end for a, b in places for end in self.network.connections(a) if end.peer and end.peer.host is b]
        for end in dict.fromkeys([*ends, *(end.peer for end in ends if end.peer)]):
            wakes_at = max((p.wakes_at for p in self._of_host(end.host)), default=0.0)
            if wakes_at <= self.timeline.now:
                end.notice()
            else:
                self.timeline.after(wakes_at - self.timeline.now + ASKS_S, end.notice_end)

    def _suspend(self, who: int, lasts_s: float) -> None:
        """Suspend a host: nothing on it acts, nothing gets in or out, and its monotonic clock stands still."""
        self.say(f"{self._places[who].name} is suspended for {lasts_s} s")
        self._note_trouble(lasts_s, who)
        for process in self._of(who):
            process.sleep(lasts_s)
        self._cut(self._around(who), lasts_s)

    def _set_time_of_day(self, who: int) -> None:
        by_s = self.rng.choice(OF_DAY_S)
        for process in self._of(who):
            self.say(f"{process.name}: the time of day jumps by {by_s} s")
            process.of_day_s += by_s

    def _forge(self, who: int) -> None:
        """Change the next frames between a host and the others, both ways."""
        self.say(f"the next frames from and to {self._places[who].name} are changed")
        for a, b in sorted(self._around(who)):
            self.network.forged[self._places[a].name, self._places[b].name] = self.rng.choice((1, 1, 2, 4))

    def _lose(self, who: int) -> None:
        """Lose a connection of a host, from one of its ends; the other end does not notice."""
        ends = self.network.connections(self._places[who])
        if ends:
            end = self.rng.choice(ends)
            end = end if self.rng.random() < 0.5 or end.peer is None else end.peer
            self.say(f"{end.host.name} loses a connection, and the other end is not told")
            self.network.lose(end)

    def _jump(self, who: int, by_s: float) -> None:
        """Put a process's clock forward, as a virtual machine that slept does."""
        for process in self._of(who):
            self.say(f"{process.name}: its clock jumps by {by_s} s")
            self._note_trouble(by_s, who)
            process.skew_s += by_s
            process.wake()

    def _slow(self, who: int, lasts_s: float) -> None:
        host = self._places[who]
        self.say(f"{host.name} is slow for {lasts_s} s")
        self._note_trouble(lasts_s, who)
        host.slowness_s = 1.0

        def recover() -> None:
            host.slowness_s = 0.0

        self.timeline.after(lasts_s, recover)

    def _replay(self) -> None:
        """Replay every datagram, and every call, to the host that it was sent to."""
        self.say("all that was said is said again")
        for data in self.network.datagrams[-200:]:
            for link in list(self.network.links):
                link.take(data, ("10.77.0.99", 5000))
        for (_, name), said in list(self.network.streams.items())[-40:]:
            host = next(h for h in self._places if h.name == name)
            for port in list(host.listeners):
                Stranger(self.network).call(host.addresses[0], port, b"".join(said))

    def _note_trouble(self, lasts_s: float, *who: int) -> None:
        hosts = {self._places[index].name for index in who}
        self.troubles.append((self.timeline.now, self.timeline.now + lasts_s, hosts))


class Stranger:
    """A peer that connects, sends recorded bytes, and never reads."""

    def __init__(self, network: Network) -> None:
        self.network, self.host = network, network.add(Host("stranger", ("10.77.0.99", "10.78.0.99")))
        self.sockets: dict[int, SimSocket] = {}
        self._sock, self._data = SimSocket(self), b""

    def call(self, address: str, port: int, data: bytes) -> None:
        """Connect, and send it once there is a connection."""
        self._data = data
        with suppress(BlockingIOError):
            self._sock.connect((address, port))

    def wake(self) -> None:
        """Say it."""
        if self._data and self._sock.is_open and self._sock.pipe is not None:
            self._sock.pipe.push(self._data)
            self._data = b""
