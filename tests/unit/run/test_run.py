"""`mingle run` from its command line to its exit status, with several agents on this machine."""

import json
import os
import re
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from places import MINGLE, Places

from mingle_hooks.cli.template import events_schema

EVENT = fastjsonschema.compile(events_schema())

# COMMAND that says it has begun, and goes on.
STAY = "echo begun; touch begun.$RANK.$MINGLE_ATTEMPT; exec sleep 1000"
# The same, which no TERM ends, with a grandchild of its own session.
STUBBORN = "trap '' TERM; setsid sleep 1000 & touch begun.$RANK.$MINGLE_ATTEMPT; while :; do sleep 1000; done"


@pytest.fixture
def two(places: Places) -> Places:
    """Give hosts of which two are used: most is said of one, and of the others."""
    places.names = "node1,node2"
    return places


def test_clean_on_all_is_clean_and_each_line_has_its_host(two: Places) -> None:
    status, out, err = two.done("sh", "-c", "echo $RANK of $WORLD_SIZE; echo to stderr >&2; printf rest")
    assert status == 0
    rows = [f"node{rank + 1}: {line}" for rank in range(2) for line in (f"{rank} of 2", "rest")]
    assert sorted(out.splitlines()) == sorted(rows)
    assert sorted(err.splitlines()) == [f"node{number}: to stderr" for number in (1, 2)]


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


def test_more_open_files_than_the_user_has_are_the_runners_alone(places: Places) -> None:
    few = (24, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    hosts = ",".join(f"node{number}" for number in range(6))
    status, out, err = places.done(
        "sh", "-c", "ulimit -Sn", hosts=hosts, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)
    )
    assert (status, sorted(out.splitlines())) == (0, [f"node{number}: 24" for number in range(6)]), err


def test_an_agent_that_never_comes(places: Places) -> None:
    status, _, err = places.done("true", hosts="node1,down")
    assert status == 75
    assert "No route to host" in err
    assert "mingle run: down: its agent could not be started\n" in err


def test_stdin_that_nobody_gets_is_said(two: Places) -> None:
    (two.place / "data").write_text("data\n")
    note = "mingle run: COMMAND does not get stdin; to read FILE on each host, run `sh -c 'COMMAND < FILE'`\n"
    for stdin, expected in ((two.place / "data", note), (Path(os.devnull), "")):
        with stdin.open() as file:
            assert two.done("cat", stdin=file) == (0, "", expected)


def test_each_event_is_given_to_the_line_of_on_event(two: Places) -> None:
    """In order, one after another; a line that fails is noted once, and does not hold up the run."""
    fails = "cat >>events; [ $(wc -l <events) -lt 3 ] || exit 3"
    fails_once = "sh", "-c", "[ $MINGLE_ATTEMPT = 1 ] || exit 5"
    status, _, err = two.done("--restarts", "1", "--log-dir", "logs", "--on-event", fails, *fails_once)
    assert status == 0
    assert err.count("mingle run: --on-event: it ended with status 3\n") == 1
    assert (two.place / "events").read_text() == (two.place / "logs" / "events.jsonl").read_text()
    logs = {path.name for path in (two.place / "logs").iterdir()}
    assert logs == {"events.jsonl", *(f"rank{rank}-node{rank + 1}{n}.log" for rank in range(2) for n in ("", ".1"))}


def test_a_failed_attempt_is_followed_by_a_new_world_with_the_same_ranks(two: Places) -> None:
    tells = "echo $MINGLE_ATTEMPT $RANK $WORLD_SIZE; [ $MINGLE_ATTEMPT$RANK != 01 ] || exit 5"
    status, out, err = two.done("--restarts", "1", "sh", "-c", f"{tells}; [ $MINGLE_ATTEMPT = 1 ] || {{ {STAY}; }}")
    assert status == 0
    assert "mingle run: restarts: attempt 1\n" in err
    assert {f"node{rank + 1}: 1 {rank} 2" for rank in range(2)} <= set(out.splitlines())


def test_one_host_needs_no_network_and_no_label(places: Places) -> None:
    assert places.done("sh", "-c", "echo $RANK $WORLD_SIZE", hosts="") == (0, "0 1\n", "")


def test_a_run_inside_a_run(places: Places) -> None:
    inner = "echo $MINGLE_RUN_ID; exec mingle run sh -c 'echo $MINGLE_RUN_ID $WORLD_SIZE'"
    status, out, _ = places.done("sh", "-c", inner, hosts="")
    outer, both, size = out.split()
    assert (status, size) == (0, "1")
    assert re.fullmatch(rf"{outer},[0-9a-f]{{16}}", both)


def test_the_key_is_the_users_or_a_fresh_one_and_the_runs_own_goes_nowhere(places: Places) -> None:
    tells = "echo $MINGLE_KEY; env | grep -c 'MINGLE_RUN_KEY\\|MINGLE_RUN_AT'; true"
    _, out, _ = places.done("--no-label", "--keep-key", "sh", "-c", tells, hosts="node1,node2")
    keys = {line for line in out.splitlines() if line != "0"}
    assert len(keys) == 1
    assert out.splitlines().count("0") == 2
    places.environ["MINGLE_KEY"] = key = "ab" * 32
    assert places.done("--keep-key", "sh", "-c", "echo $MINGLE_KEY", hosts="")[1] == f"{key}\n"
    assert places.done("sh", "-c", "echo $MINGLE_KEY", hosts="")[1] == "\n"


def shell(places: Places, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell."""
    where: dict[str, Any] = {"cwd": places.place, "env": places.environ}
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True, **where)


@pytest.mark.parametrize(
    ("redirection", "status"), [("<&-", 4), ("2>&-", 4), ("<&- 2>&-", 4), (">/dev/full", 4), (">&-", 73)]
)
def test_it_needs_an_open_standard_output_and_no_other_stream(places: Places, redirection: str, status: int) -> None:
    line = f"{MINGLE} run --hosts node1,node2 sh -c 'echo out; echo err >&2; exit 4' {redirection}; echo $? >status"
    shell(places, line)
    assert (places.place / "status").read_text() == f"{status}\n"
    places.until(lambda: not places.processes(), "something is left")


def test_in_the_background_it_goes_on_and_ctrl_c_is_not_its_own(places: Places) -> None:
    waits = "touch begun; while ! [ -e go ]; do sleep 0.01; done; echo out"
    hits = "while ! [ -e begun ]; do sleep 0.01; done; kill -INT $!; touch go; wait $!; echo $?"
    line = f"{MINGLE} run --hosts node1,node2 sh -c '{waits}' & {hits}"
    done = shell(places, line)
    assert sorted(done.stdout.split()) == ["0", "node1:", "node2:", "out", "out"]


def test_a_reader_that_goes_ends_all(places: Places) -> None:
    line = f"{{ {MINGLE} run --hosts node1,node2 yes; echo $? >status; }} | head -1"
    done = shell(places, line)
    assert re.fullmatch(r"node[12]: y\n", done.stdout)
    assert (places.place / "status").read_text() == "141\n"
    places.until(lambda: not places.processes(), "something is left")


def test_a_full_disk_below_the_logs_is_reported_once_and_hangs_nothing(places: Places) -> None:
    logs = places.place / "logs"
    logs.mkdir()
    for name in ("events.jsonl", "rank0-node1.log", "rank1-node2.log"):
        (logs / name).symlink_to("/dev/full")
    status, out, err = places.done("--log-dir", "logs", "sh", "-c", "seq 1000", hosts="node1,node2")
    assert status == 0
    assert len(out.splitlines()) == 2000
    assert err == "mingle run: no more logs are written below logs: No space left on device\n"


def test_a_job_that_saved_when_it_was_warned_is_queued_again(places: Places) -> None:
    warned = ("--limit", "30", "--warn", "28.5", "--warn-signal", "USR2", "--grace", "1")
    saves = "trap 'exit 0' USR2; while :; do sleep 0.02; done"
    assert places.done(*warned, "--again", "echo again", "bash", "-c", saves, hosts="")[:2] == (75, "again\n")


def test_a_warning_by_any_signal_that_may_be_one_does_not_end_the_runner(places: Places) -> None:
    """QUIT is not taken otherwise."""
    saves = "trap 'echo saved; exit 0' QUIT; touch begun.0.0; while :; do sleep 0.02; done"
    run = places.start("--warn-signal", "QUIT", "bash", "-c", saves, hosts="")
    places.begun(0)
    run.send_signal(signal.SIGQUIT)
    assert places.end(run)[:2] == (0, "saved\n")
