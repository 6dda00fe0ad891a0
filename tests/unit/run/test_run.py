"""`mingle run` from its command line to its exit status, with several agents on this machine."""

import json
import os
import re
import resource
import signal
import subprocess
from typing import Any

import fastjsonschema
import pytest
from places import MINGLE, Places

from mingle_hooks.cli.template import events_schema

EVENT = fastjsonschema.compile(events_schema())

# COMMAND that no TERM ends, with a grandchild of its own session.
STUBBORN = "trap '' TERM; setsid sleep 1000 & touch begun.$RANK.$MINGLE_ATTEMPT; while :; do sleep 1000; done"


@pytest.fixture
def two(places: Places) -> Places:
    """Give hosts of which two are used: most is said of one, and of the others."""
    places.names = "node1,node2"
    return places


def test_clean_on_all_is_clean_and_each_line_has_its_host(places: Places) -> None:
    """More open files than the user may have are the runner's alone, and stdin that nobody gets is noted."""
    few = (24, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    (places.place / "data").write_text("data\n")
    tells = "echo $RANK of $WORLD_SIZE, $(ulimit -Sn) files; echo to stderr >&2; cat; printf rest"
    with (places.place / "data").open() as stdin:
        status, out, err = places.done(
            *("sh", "-c", tells),
            hosts=",".join(f"node{number}" for number in range(6)),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few),
            stdin=stdin,
        )
    rows = [f"node{rank}: {line}" for rank in range(6) for line in (f"{rank} of 6, 24 files", "rest")]
    note = "mingle run: COMMAND does not get stdin; to read FILE on each host, run `sh -c 'COMMAND < FILE'`"
    assert (status, sorted(out.splitlines())) == (0, sorted(rows))
    assert sorted(err.splitlines()) == [note, *(f"node{number}: to stderr" for number in range(6))]


def test_why_no_world_forms_is_printed_by_each_member_and_not_again_by_the_runner(two: Places) -> None:
    status, _, err = two.done("no-such-command")
    assert (status, err.count("no-such-command: No such file or directory")) == (127, 2)
    assert re.search(r"(?m)^mingle run: node[12] \(rank [01]\): no world formed after \d+ s \(status 127\)$", err)


def test_the_first_failure_is_the_status_and_all_others_end(places: Places) -> None:
    fails = "[ $RANK = 1 ] && while ! [ -e go ]; do sleep 0.01; done && echo it breaks >&2 && exit 7"
    run = places.start("--grace", "1", "--log-dir", "logs", "sh", "-c", f"{fails}; {STUBBORN}")
    places.begun(0, 2)
    (places.place / "go").touch()
    status, _, err = places.end(run)
    assert status == 7
    failed = r"mingle run: node2 \(rank 1\): exited with status 7 after \d+ s; its last lines:"
    assert re.search(failed + r"\n(  mingle: .*\n)*  it breaks", err)
    assert err.count("mingle run:") == 1
    logs = places.place / "logs"
    names = {path.name for path in logs.iterdir()}
    assert names == {"events.jsonl", "rank0-node1.log", "rank1-node2.log", "rank2-node3.log"}
    assert "node2 (rank 1): exited with status 7" in (logs / "rank2-node3.log").read_text()
    events = [json.loads(line) for line in (logs / "events.jsonl").read_text().splitlines()]
    for event in events:
        EVENT(event)
    kinds = [event["event"] for event in events]
    assert kinds[0] == "forming"
    assert {"formed", "started", "failed", "ended"} <= set(kinds)
    assert [event["host"] for event in events if event["event"] == "failed"] == ["node2"]
    for spent in [event["spent_ms"] for event in events if event["event"] == "started"]:
        asked, names, came, formed = spent
        assert 0 < asked <= asked + names <= came <= formed


def test_an_agent_that_never_comes(places: Places) -> None:
    status, _, err = places.done("true", hosts="node1,down")
    assert status == 75
    assert "No route to host" in err
    assert "mingle run: down: its agent could not be started\n" in err


def test_a_failed_attempt_is_followed_by_a_new_world_with_the_same_ranks(two: Places) -> None:
    """Each event is given to the line of --on-event, in order; one that fails is noted once and holds up nothing."""
    fails = "cat >>events; [ $(wc -l <events) -lt 3 ] || exit 3"
    tells = "echo $MINGLE_ATTEMPT $RANK $WORLD_SIZE; [ $MINGLE_ATTEMPT$RANK != 01 ] || exit 5"
    stays = "[ $MINGLE_ATTEMPT = 1 ] || exec sleep 1000"
    status, out, err = two.done(
        *("--restarts", "1", "--log-dir", "logs", "--on-event", fails), *("sh", "-c", f"{tells}; {stays}")
    )
    assert status == 0
    assert "mingle run: restarts: attempt 1\n" in err
    assert {f"node{rank + 1}: 1 {rank} 2" for rank in range(2)} <= set(out.splitlines())
    assert err.count("mingle run: --on-event: it ended with status 3\n") == 1
    assert (two.place / "events").read_text() == (two.place / "logs" / "events.jsonl").read_text()
    logs = {path.name for path in (two.place / "logs").iterdir()}
    assert logs == {"events.jsonl", *(f"rank{rank}-node{rank + 1}{n}.log" for rank in range(2) for n in ("", ".1"))}


def test_a_run_inside_a_run_on_one_host_needs_no_network_and_has_no_label(places: Places) -> None:
    inner = "echo $MINGLE_RUN_ID; exec mingle run sh -c 'echo $MINGLE_RUN_ID $WORLD_SIZE'"
    status, out, err = places.done("sh", "-c", inner, hosts="")
    outer, both, size = out.split()
    assert (status, size, err) == (0, "1", "")
    assert re.fullmatch(rf"{outer},[0-9a-f]{{16}}", both)


def test_the_key_is_the_users_or_a_fresh_one_and_the_runs_own_goes_nowhere(two: Places) -> None:
    tells = "echo $MINGLE_KEY; env | grep -c 'MINGLE_RUN_KEY\\|MINGLE_RUN_AT'; true"
    said = {*two.done("--no-label", "--keep-key", "sh", "-c", tells)[1].split()}
    assert ("0" in said, sorted(map(len, said))) == (True, [1, 64])
    two.environ["MINGLE_KEY"] = key = "ab" * 32
    assert two.done("--keep-key", "sh", "-c", "echo $MINGLE_KEY", hosts="")[1] == f"{key}\n"
    assert two.done("sh", "-c", "echo $MINGLE_KEY", hosts="")[1] == "\n"


def shell(places: Places, line: str) -> str:
    """Run a line of a shell, and return its output once nothing of it is left."""
    where: dict[str, Any] = {"cwd": places.place, "env": places.environ}
    said = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True, **where).stdout
    places.until(lambda: not places.processes(), "something is left")
    return said


@pytest.mark.parametrize(("redirection", "status"), [("<&- 2>&-", 4), (">/dev/full", 4), (">&-", 73)])
def test_it_needs_an_open_standard_output_and_no_other_stream(places: Places, redirection: str, status: int) -> None:
    line = f"{MINGLE} run --alone sh -c 'echo out; echo err >&2; exit 4' {redirection}; echo $? >status"
    shell(places, line)
    assert (places.place / "status").read_text() == f"{status}\n"


def test_in_the_background_it_goes_on_and_ctrl_c_is_not_its_own(places: Places) -> None:
    waits = "touch begun; while ! [ -e go ]; do sleep 0.01; done; echo out"
    hits = "while ! [ -e begun ]; do sleep 0.01; done; kill -INT $!; touch go; wait $!; echo $?"
    assert shell(places, f"{MINGLE} run --alone sh -c '{waits}' & {hits}") == "out\n0\n"


def test_a_reader_that_goes_ends_all(places: Places) -> None:
    said = shell(places, f"{{ {MINGLE} run --hosts node1,node2 yes; echo $? >status; }} | head -1")
    assert re.fullmatch(r"node[12]: y\n", said)
    assert (places.place / "status").read_text() == "141\n"


def test_a_job_that_saved_when_it_was_warned_is_queued_again(places: Places) -> None:
    """Any signal may be the warning, which does not end the runner; QUIT is not taken otherwise."""
    saves = "trap 'echo saved; exit 0' QUIT; touch begun.0.0; while :; do sleep 0.02; done"
    run = places.start("--warn-signal", "QUIT", "--again", "echo again", "bash", "-c", saves, hosts="")
    places.begun(0)
    os.kill(run.pid, signal.SIGQUIT)
    assert places.end(run)[:2] == (75, "saved\nagain\n")
