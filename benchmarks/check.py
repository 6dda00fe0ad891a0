"""`mingle check` of healthy hosts: how long it takes, what it costs, and whom it would leave out, which is nobody.

Simulated hosts are real probes on loopback, all in this process. Test hosts have a process each, started by an ssh
that enters them; `python -m benchmarks.check HOSTS ROUNDS LOSS LOGIN_S BUSY` makes so many rounds on them, with a
share of all packets lost, logins that take so many seconds, and processors that so many other processes take.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts
from cluster.paths import MINGLE, PROJECT
from cluster.ssh import ssh
from unit.check.test_check_simulated import Simulated, check

if TYPE_CHECKING:
    from collections.abc import Iterator

SIMULATED = (4, 16, 64, 256, 512, 800)
LIMITS_S = {"800 simulated": 10.0, "64 hosts": 6.0}
# Hosts, rounds, share of lost packets, seconds of a login, busy processes.
ROUNDS = ((4, 20, 0.0, 0.0, 0), (16, 5, 0.0, 0.0, 0), (64, 3, 0.0, 0.0, 0), (4, 5, 0.01, 0.0, 1), (4, 2, 0.0, 5.0, 0))
LONGEST_S = 300.0
# All hosts share this machine's table of neighbours, which 64 of them fill.
NEIGHBOURS = [Path(f"/proc/sys/net/ipv4/neigh/default/gc_thresh{number}") for number in (1, 2, 3)]
SLOW_SSH = '#!/bin/sh\nsleep {}\nexec {}/ssh "$@"\n'


def simulated(count: int) -> dict[str, float]:
    """Check so many simulated hosts."""
    before_s = time.process_time()
    found = check(count, Simulated)
    return {"seconds": found.took_s, "processor seconds": round(time.process_time() - before_s, 2)}


def on_hosts(count: int, rounds: int, loss: float, login_s: float, busy: int) -> dict[str, Any]:
    """Check so many healthy test hosts again and again."""
    seconds, cpu_s, statuses, findings, excluded = [], [], Counter[int](), Counter[str](), 0
    for took_s, used_s, done in _runs(count, rounds, loss, login_s, busy):
        seconds.append(took_s)
        cpu_s.append(used_s)
        statuses[done.returncode] += 1
        found = json.loads(done.stdout) if done.stdout else {"exclude": [], "findings": [{"text": done.stderr}]}
        findings.update(finding["text"] for finding in found["findings"] if not finding.get("is_note"))
        excluded += bool(found["exclude"])
    return {
        "rounds": len(seconds),
        "rounds with an exclusion": excluded,
        "seconds": round(statistics.median(seconds), 2),
        "longest": round(max(seconds), 2),
        "processor seconds": round(statistics.median(cpu_s), 2),
        "statuses": {str(status): times for status, times in statuses.items()},
        "findings": dict(findings.most_common(5)),
    }


def _runs(
    count: int, rounds: int, loss: float, login_s: float, busy: int
) -> Iterator[tuple[float, float, subprocess.CompletedProcess[str]]]:
    with ExitStack() as stack:
        for path in NEIGHBOURS:
            stack.callback(path.write_text, path.read_text())
        for number, path in enumerate(NEIGHBOURS, 1):
            path.write_text(str(max(number << 14, int(path.read_text()))))
        (PROJECT / "build").mkdir(exist_ok=True)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=PROJECT / "build")))
        place.chmod(0o755)
        hosts = stack.enter_context(Hosts(count, share=[place]))
        programs = ssh(hosts, place)
        if login_s:
            slow = place / "ssh"
            slow.write_text(SLOW_SSH.format(login_s, programs))
            slow.chmod(0o755)
            programs = place
        if loss:
            hosts.lose(loss)
        for _ in range(busy):
            burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(burner.wait)
            stack.callback(burner.kill)
        env = {"PATH": f"{programs}:{MINGLE.parent}:/usr/bin:/bin:/usr/sbin"}
        argv = [str(MINGLE), "check", "--json", "--hosts", ",".join(host.name for host in hosts)]
        for _ in range(rounds):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            done = hosts[0].run(argv, env=env, timeout=LONGEST_S)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            yield time.monotonic() - began, used_s, done


def figures() -> dict[str, Any]:
    """Return a row for each number of simulated hosts, and for each kind of rounds on test hosts."""
    found: dict[str, Any] = {}
    for count in SIMULATED:
        found[f"{count} simulated"] = simulated(count)
    for row in ROUNDS:
        count, _, loss, login_s, busy = row
        name = f"{count} hosts{f', {loss:.0%} loss' * bool(loss)}{f', logins of {login_s:g} s' * bool(login_s)}"
        found[f"{name}{f', {busy} processor busy' * bool(busy)}"] = on_hosts(*row)
    for name, row_found in found.items():
        limit = f" (limit {LIMITS_S[name]:g} s)" if name in LIMITS_S else ""
        print(f"  {name}: {json.dumps(row_found)}{limit}")
    return found


if __name__ == "__main__":
    hosts_, rounds_, loss_, login_, busy_ = sys.argv[1:]
    print(json.dumps(on_hosts(int(hosts_), int(rounds_), float(loss_), float(login_), int(busy_))))
