"""`mingle run` with several agents on this machine: what takes long, or needs a control group."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

from memory_group import EATS
from places import Places, path_without

# COMMAND that says it has begun, and goes on.
STAY = "echo begun; touch begun.$RANK.$MINGLE_ATTEMPT; exec sleep 1000"


def test_a_sweep_that_hangs_is_ended_before_the_next_attempt(places: Places) -> None:
    places.environ["SWEEP_HANGS"] = "1"
    sleeps = "grep -lszx 4711 /proc/[0-9]*/cmdline | sed s/cmdline/environ/"
    counts = f'grep -lszx "MARK=$MARK" $({sleeps}) | wc -l'
    ended = f"until [ $({counts}) = 0 ]; do sleep 0.02; done; echo ended"  # TERM was sent; the kernel may take a while
    command = f"[ $MINGLE_ATTEMPT = 0 ] || {{ {ended}; exit; }}; {STAY}"
    run = places.start("--restarts", "1", "--spares", "1", "sh", "-c", command, hosts="node1,node2,node3")
    places.begun(0, 1)
    os.kill(places.agent("node2")[1], signal.SIGKILL)  # its warden then leaves nothing
    status, out, err = places.end(run)
    assert (status, sorted(out.splitlines()[-2:])) == (0, ["node1: ended", "node3: ended"]), err
    assert "node2 cannot be reached" in err


def test_a_reader_that_stops_holds_up_nothing(places: Places) -> None:
    fails = "[ $RANK = 0 ] && exec yes; while ! [ -e go ]; do sleep 0.01; done; exit 6"
    run = places.start("--silence", "2", "sh", "-c", fails, hosts="node1,node2")
    assert run.stdout is not None
    places.until(lambda: [line for line in places.processes().values() if line == "yes "], "no output")
    (places.place / "go").touch()
    assert run.stderr is not None
    assert run.wait(timeout=30) == 6
    assert "exited with status 6" in run.stderr.read()


SAID = "no rank has written anything for 2 s"
HANGS = "import time\ndef hangs():\n    print('begun', flush=True); time.sleep(1000)\n"


def python(text: str) -> tuple[str, ...]:
    """Return a command that hangs after these lines."""
    return sys.executable, "-c", f"{HANGS}{text}\nhangs()"


def test_the_stacks_of_all_ranks_are_shown_and_kept_and_all_end(places: Places) -> None:
    places.environ |= {"PYTHONFAULTHANDLER": "1", "PATH": f"{places.place / 'bin'}:{path_without('py-spy')}"}
    status, out, err = places.done("--stall", "2", "--restarts", "1", "--log-dir", "logs", *python(""))
    assert status == 75
    assert out.count("begun") == 6
    assert err.count(f"mingle run: {SAID}\n") == 2
    assert err.count("restarts: attempt 1") == 1
    for rank, host in enumerate(("node1", "node2", "node3")):
        logs = [(places.place / "logs" / f"rank{rank}-{host}{n}.log").read_text() for n in ("", ".1")]
        for text, label, times in ((err, f"{host}: ", 2), (logs[0], "", 1), (logs[1], "", 1)):
            assert text.count(f'{label}  File "<string>", line 3 in hangs') == times
            said = rf"{host} \(rank {rank}\): its stacks:\n  process \d+: what faulthandler"
            assert len(re.findall(said, text)) == times


def test_one_rank_that_writes_keeps_all(places: Places) -> None:
    writes = "import os, sys\nfor _ in range(30 * (os.environ['RANK'] == '1')): os.write(1, b'.'); time.sleep(.1)"
    ends = "if os.environ['RANK'] == '1': sys.exit(7)"
    status, _, err = places.done("--stall", "2", *python(f"{writes}\n{ends}"), hosts="node1,node2")
    assert (status, "has written anything" in err) == (7, False)


def test_a_reader_that_does_not_read_is_no_stall(places: Places) -> None:
    writes = "import os, sys\nif os.environ['RANK'] == '0':\n  for _ in range(32): os.write(1, b'x' * (1 << 20))"
    waits = "else: time.sleep(4); open('late', 'w')\nsys.exit(7)"
    run = places.start("--stall", "3", *python(f"{writes}\n{waits}"), hosts="node1,node2")
    places.until((places.place / "late").exists, "nobody waits")
    status, _, err = places.end(run)
    assert (status, "has written anything" in err) == (7, False)


def test_a_kill_for_want_of_memory_is_named(places: Places, group: Path) -> None:
    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    status, _, err = places.done(sys.executable, "-c", EATS, hosts="", preexec_fn=enter)
    assert status == 137
    assert re.search(r": killed by SIGKILL after \d+ s: out of memory$", err, re.MULTILINE), err
