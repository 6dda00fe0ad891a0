"""What must hold after every schedule on real hosts: the simulator's rules, as far as they can be seen from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator

from simulator.seats import CLOSING_S, COMMIT_S, TURNS_S, count_worlds, latest, misplaced

from chaos.outcome import Hit, Outcome, Process, Trained
from chaos.schedules import BRIEF_S, GRACE_S, SILENCE_S, STOPPED_S, WAYS, Schedule

# README's table. 70 is a bug.
STATUSES = {0, 64, 65, 69, 71, 73, 75, 76, 77, 78, 126, 127, 130, 143}
KILLED = 137
# What the runner adds to the time of a loss, in seconds: the report, and COMMAND's end, which it waits for; machine.py.
REPORT_S, CLEAN_S = 0.5, 5.0
# It tries so long, in seconds, to end what is left on a host that it does not reach; machine.py.
SWEEP_S = 10.0
# An agent that no runner has welcomed yet looks for one so long, in seconds; it runs no COMMAND; agent.py.
APPROACH_S = 30.0
# That COMMAND began is seen so long after COMMIT, in seconds, on a busy machine.
SEEN_S = 1.0
# The last line on stderr: whose it is, and a host, a value or a remedy in it.
NAMES_CAUSE = re.compile(r"mingle( run)?: .*(expected .*; saw .*; try |node\d|ended|ending)")
# What a shell gets to eval from a mingle that failed, and from one that was killed, perhaps after it had written.
FAILURE = re.compile(
    r"eval unset [\w ]+; case \$- in \*i\*\) \(exit (\d+)\);; \*\) exit \1;; esac;\nexit (\1|137)\n|exit \d+\n"
)
WORLD = re.compile(r"eval unset [\w ]+ && \{\n(export \w+='[^']*';\n)+\} \|\| case .+ esac;\n(exit 137\n)?")


def violations(schedule: Schedule, outcome: Outcome) -> list[str]:
    """Return what a schedule broke, in words; nothing where all is well."""
    jobs = ("first", "second") if schedule.second_s else ("first",)
    found = [line for job in jobs for line in _of_job(schedule, outcome, job)]
    found += [line for process in outcome.processes for line in _ending(schedule, outcome, process)]
    found += [
        f"eval got {text!r}" for text in outcome.evaluated if not (WORLD.fullmatch(text) or FAILURE.fullmatch(text))
    ]
    found += [f"left: {line}" for line in outcome.left]
    return [*found, *_survivors(schedule, outcome)]


def _of_job(schedule: Schedule, outcome: Outcome, job: str) -> Iterator[str]:
    """Yield what is wrong with the worlds of one job."""
    trained = [its for its in outcome.trained if its.job == job]
    seats = [its.seat for its in trained]
    if (count := count_worlds(seats)) > 1:
        yield f"{count} worlds of the {job} job: {seats}"
        return
    yield from misplaced(seats)
    yield from (f"{seat.name} trains alone" for seat in seats if seat.nodes == 1)
    missing = schedule.nodes - len({seat.rank for seat in seats})
    if seats and missing > len(_excused(schedule, outcome, job, trained)):
        yield f"half a world: {missing} of {schedule.nodes} members of the {job} job do not train"
    if not schedule.is_calm(job) or any(_is_prolonged(hit) for hit in outcome.hits):
        return
    if missing:
        yield f"no world of the {job} job in a calm schedule"
    bad = [its for its in outcome.processes if its.job == job and its.status != 0]
    yield from (f"{its.name} of the {job} job ended with {its.status} in a calm schedule" for its in bad)


def _excused(schedule: Schedule, outcome: Outcome, job: str, trained: list[Trained]) -> set[str]:
    """Return the hosts that may lack a world that others have: killed, or out of reach of COMMIT."""
    hosts = {f"node{number + 1}" for number in range(schedule.nodes)} - {its.host for its in trained}
    begun_s, leader = min(its.at_s for its in trained), trained[0].leader
    hits = [hit for hit in outcome.hits if job == "first" or not hit.fault.is_of_process]
    if job == "first" and any(_breaks(schedule, outcome, hit) for hit in hits):
        return hosts  # those that train are ended, too
    found = {hit.host for hit in hits if hit.fault.kind in ("kill", "replace") and hit.processes}
    found |= {hit.host for hit in hits if _missed_commit(hit, begun_s)}
    is_leader_lost = leader in {hit.host for hit in hits if _missed_commit(hit, begun_s) or _killed_after(hit, begun_s)}
    return hosts if is_leader_lost else hosts & found


def _missed_commit(hit: Hit, begun_s: float) -> bool:
    """Tell whether a host was out of reach for as long as both ends waited; the one documented split."""
    is_long = hit.ended_s - max(hit.began_s, begun_s) >= COMMIT_S - SEEN_S
    return hit.fault.kind in ("stop", "unplug") and is_long and hit.began_s <= begun_s + CLOSING_S


def _is_prolonged(hit: Hit) -> bool:
    """Tell whether a busy machine has made more of a brief pause than the schedule asked for."""
    return hit.fault.kind in ("stop", "unplug") and hit.ended_s - hit.began_s > BRIEF_S + SEEN_S


def _killed_after(hit: Hit, begun_s: float) -> bool:
    """Tell whether a leader was killed when others had its COMMIT already, which a host shows a moment later."""
    is_killed = hit.fault.kind in ("kill", "replace") and hit.processes > 0
    return is_killed and begun_s - SEEN_S <= hit.began_s <= begun_s + CLOSING_S


def _breaks(schedule: Schedule, outcome: Outcome, hit: Hit) -> bool:
    """Tell whether a run that ends together has to end for it; --together waits longer for a silent host."""
    way, lasts_s = WAYS[schedule.way], hit.ended_s - hit.began_s
    if hit.fault.kind == "kill":
        return way.stays and hit.processes > 0
    if hit.fault.kind == "unplug":
        return way.command == "run" and lasts_s > SILENCE_S + CLEAN_S / 2
    # Of a run that is about to start, only some may have been there to be stopped, such as the warden, which waits.
    is_all = any(its.job == "first" and its.host == hit.host and its.at_s < hit.began_s for its in outcome.trained)
    return way.command == "run" and hit.fault.kind == "stop" and is_all and lasts_s > STOPPED_S + CLEAN_S / 2


def _ending(schedule: Schedule, outcome: Outcome, process: Process) -> Iterator[str]:
    """Yield what is wrong with the end of one process."""
    name = f"{process.name} of the {process.job} job"
    hits = [hit for hit in outcome.hits if process.job == "first" or not hit.fault.is_of_process]
    stopped_s = sum(hit.ended_s - hit.began_s for hit in hits if hit.fault.kind in ("stop", "unplug"))
    is_killed = any(hit.processes and hit.fault.kind in ("kill", "replace") for hit in hits)
    if process.ended_s is None or process.status is None:
        yield f"{name} never ended"
        return
    limit_s = latest(process.began_s, schedule.deadline_s(process.job), stopped_s) + schedule.trains_s
    if process.ended_s > limit_s:
        yield f"{name} ended {process.ended_s - limit_s:.1f} s late"
    if process.status not in STATUSES | ({KILLED} if is_killed else set()):
        yield f"{name} ended with {process.status}"
    last = process.stderr.rstrip("\n").rpartition("\n")[2]
    if process.status not in (0, KILLED) and not NAMES_CAUSE.search(last) and not _is_told(schedule, outcome, process):
        yield f"{name} ended with {process.status} and did not say why: {last!r}"


def _is_told(schedule: Schedule, outcome: Outcome, process: Process) -> bool:
    """Tell whether another of a run that ends together says why, once for all; who says it may be who was killed."""
    if not WAYS[schedule.way].stays or process.job != "first":
        return False
    return any(
        NAMES_CAUSE.search(its.stderr) or its.status == KILLED for its in outcome.processes if its.job == "first"
    )


def _heard_s(outcome: Outcome, hit: Hit) -> float:
    """Return when the runner hears of it at the latest: after a cut, TCP may wait for as long again as that lasted."""
    cuts = [its for its in outcome.hits if its.fault.kind == "unplug" and its.ended_s > hit.began_s]
    return max((2 * its.ended_s - its.began_s for its in cuts if its is not hit), default=0.0)


def _survivors(schedule: Schedule, outcome: Outcome) -> Iterator[str]:
    """Yield what is wrong after the loss of a part of a run that ends all together."""
    for hit in (hit for hit in outcome.hits if _breaks(schedule, outcome, hit)):
        waits_s = {"kill": REPORT_S, "unplug": SILENCE_S + 1.0 + SWEEP_S}.get(hit.fault.kind, hit.ended_s - hit.began_s)
        is_formed = any(its.job == "first" and its.at_s < hit.began_s for its in outcome.trained)
        waits_s += 0.0 if is_formed else max(schedule.timeout_s, APPROACH_S)
        limit_s = max(hit.began_s + waits_s, _heard_s(outcome, hit)) + GRACE_S + CLEAN_S + TURNS_S
        if outcome.over_s > limit_s:
            yield f"the run went on for {outcome.over_s - hit.began_s:.1f} s after: {hit.fault}"
        if all(its.status == 0 for its in outcome.processes if its.job == "first"):
            yield f"the run ended well after: {hit.fault}"
