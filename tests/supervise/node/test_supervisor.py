"""A supervisor starts a command for a runner, and tells what becomes of it: real processes and sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fake_runner import Runner

from mingle_hooks.supervise.protocol import messages

if TYPE_CHECKING:
    from pathlib import Path


def test_it_starts_a_command_and_reports_its_end(tmp_path: Path) -> None:
    """With its status, output, and the world."""
    with Runner(tmp_path) as runner:
        runner.supervise()
        runner.start("sh", "-c", "echo out; echo err >&2; exit 7")
        ended = runner.wait_for(messages.ENDED)
        runner.wait_for(messages.CLEAN)
        runner.until(lambda: runner.drained)
        formed = runner.all_of(messages.FORMED)
        assert [said["nodes"] for said in formed] == [1]
        assert (ended["status"], ended["signal"], ended["formed"], ended["is_oom"]) == (7, None, True, False)
        assert sorted(ended["tail"].splitlines()) == ["err", "out"]
        assert (bytes(runner.output), bytes(runner.errors)) == (b"out\n", b"err\n")
        assert runner.leave(3) == 3
