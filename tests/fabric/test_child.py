"""Asking devices in a child: who is waited for, and for how long."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mingle_hooks.net import devices as child
from mingle_hooks.net.addresses import read_attribute as attribute

if TYPE_CHECKING:
    import pytest

SPINS_S, ANSWER_S = 0.4, 0.05


def test_a_child_that_gets_no_processor_is_not_taken_for_a_device_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has longer; one that waits for anything else has not."""
    monkeypatch.setattr(child, "ANSWER_S", ANSWER_S)
    monkeypatch.setattr(child, "BUSY_S", 30.0)  # other tests may have the processors
    here = os.getpid()

    def asked(path: str) -> str:
        if os.getpid() == here:
            return attribute(path)
        if path == "hangs":
            time.sleep(60)
        end = time.process_time() + SPINS_S
        while time.process_time() < end:
            pass
        return path

    monkeypatch.setattr(child, "read_attribute", asked)
    assert child.read_in_child(["works"]) == {"works": "works"}
    began = time.monotonic()
    assert child.read_in_child(["hangs"]) is None
    assert time.monotonic() - began < 30
