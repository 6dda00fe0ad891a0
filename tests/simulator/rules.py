"""What must hold after every schedule: one world or none, each with a reason in time, and nothing left open."""

from itertools import pairwise

from mingle_hooks.errors import MingleError
from simulator.process import Process
from simulator.schedules import Schedule
from simulator.seats import CLOSING_S, COMMIT_S, Seat, count_worlds, latest, misplaced

# The end of a killed process is known everywhere after this long, where no cut holds it up.
DEAD_S = 1.0
# From a leader's last look into the directory to COMMIT, where nothing happens.
LAST_LOOK_S = 0.02


def violations(schedule: Schedule) -> list[str]:
    """Return what a schedule broke, in words; nothing where all is well."""
    found = [*_endings(schedule), *_worlds(schedule), *_left(schedule)]
    found += [f"split: {p.name} has no world, and others have: {p.outcome()}" for p in _split(schedule, excused=False)]
    if schedule.plan.is_calm:
        found += [f"{p.name} has no world in a calm run: {p.outcome()}" for p in schedule.processes if p.answer is None]
    return found


def documented(schedule: Schedule) -> list[Process]:
    """Return the processes that missed COMMIT in the one documented way: the others have a world without them."""
    return _split(schedule, excused=True)


def _endings(schedule: Schedule) -> list[str]:
    found = []
    for process in schedule.processes:
        if process.ended is None:
            found.append(f"{process.name} never ended")
        elif process.killed is None and process.answer is None:
            if not isinstance(process.error, MingleError):
                found.append(f"{process.name}: a bug: {process.error!r}")
            if process.ended > _latest(schedule, process):
                found.append(f"{process.name} ended {process.ended - _latest(schedule, process):.1f} s late")
    return found


def _latest(schedule: Schedule, process: Process) -> float:
    """Return when a process has to have ended, its own stops not counted."""
    stopped = sum(end - begin for begin, end, hosts in schedule.troubles if process.host.name in hosts)
    assert process.began is not None
    return latest(process.began, process.request.timeout_s, stopped)


def _worlds(schedule: Schedule) -> list[str]:
    inside = [p for p in schedule.processes if p.answer is not None]
    if not inside:
        return []
    seats = [_seat(p) for p in inside]
    if (count := count_worlds(seats)) > 1:
        ends = ", ".join(f"{p.name} {p.outcome()}" for p in inside)
        return [] if _are_apart(schedule) else [f"{count} worlds: {ends}"]
    found = misplaced(seats)
    found += [f"{p.name} is in with another key" for p in inside if p.request.key != schedule.key]
    leader = next((p for p in schedule.processes if p.leads), None)
    if leader is None:
        return [*found, "a world that nobody led"]
    members = set(leader.rendezvous._leader.roster._entries)  # type: ignore[union-attr]
    for process in schedule.processes:
        if process.rendezvous is None or process.member not in members or process.killed is None:
            continue
        is_known = process.killed < (leader.formed or 0.0) - DEAD_S
        if is_known and not any(_is_troubled(schedule, p, process.killed) for p in (process, leader)):
            found.append(f"{process.name}, long dead, is counted in")
    return found


def _split(schedule: Schedule, *, excused: bool) -> list[Process]:
    """Return the members of a world that others have who ended without it, by themselves, and are excused, or not."""
    leader = next((p for p in schedule.processes if p.leads), None)
    if leader is None or not any(p.answer is not None for p in schedule.processes):
        return []
    members = leader.rendezvous._leader.roster._entries  # type: ignore[union-attr]
    missed = [p for p in schedule.processes if p.rendezvous is not None and p.answer is None and p.killed is None]
    return [p for p in missed if p.member in members and _is_excused(schedule, p, leader) == excused]


def _are_apart(schedule: Schedule) -> bool:
    """Whether each leader by right of a directory began when the world before its own had formed: two runs, then."""
    led = sorted((p.formed or 0.0, p.began or 0.0) for p in schedule.processes if p.leads)
    in_turn = all(began > formed - LAST_LOOK_S for (formed, _), (_, began) in pairwise(led))
    return schedule.plan.mode == "ranks+directory" and in_turn


def _seat(process: Process) -> Seat:
    answer, spec = process.answer, process.request.spec
    assert answer is not None
    world = (answer["digest"], answer["addr"], answer["port"])
    place = (answer["rank"], answer["nodes"], answer["offset"], spec.slots, answer["size"])
    return Seat(process.name, world, *place, asked_nodes=spec.nodes, asked_rank=spec.rank)


def _is_excused(schedule: Schedule, process: Process, leader: Process) -> bool:
    """Return whether COMMIT could not reach a process for long enough: the one documented split."""
    promised, said = process.promised, leader.formed
    if promised is None or said is None or promised[0] > said:
        return False  # the leader had no promise of it
    if leader.killed is not None and said <= leader.killed <= said + CLOSING_S:
        return True
    return any(
        hosts <= {process.host.name, leader.host.name}
        and end - max(begin, said) >= COMMIT_S
        and begin <= said + CLOSING_S
        for begin, end, hosts in schedule.troubles
    )


def _is_troubled(schedule: Schedule, process: Process, since: float) -> bool:
    """Return whether something delayed this host's frames from then on."""
    return any(process.host.name in hosts and end >= since for _, end, hosts in schedule.troubles)


def _left(schedule: Schedule) -> list[str]:
    found = []
    for process in schedule.processes:
        if process.ended is not None and process.sockets:
            found.append(f"{process.name} left {len(process.sockets)} sockets open")
        if process.ended is not None and any(link.owner is process for link in schedule.network.links):
            found.append(f"{process.name} left a multicast link open")
    return found


def broken(seed: int) -> list[str]:
    """Return what the schedule of this seed breaks."""
    schedule = Schedule(seed)
    schedule.run()
    return violations(schedule)
