"""All inputs that are kept break no rule of their target, and a broken decoder breaks one."""

from collections.abc import Callable
from typing import Any

import pytest

from fuzz import corpus
from fuzz.targets import TARGETS
from mingle_hooks.export import hostfiles, variables
from mingle_hooks.rendezvous.connection import Connection
from mingle_hooks.schedulers import facts
from mingle_hooks.scripts import rewrite


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_once_breaks_nothing(name: str) -> None:
    """Each target has some inputs: real shapes, what reaches the most code, and every finding."""
    inputs = corpus.kept(name)
    assert len(inputs) >= 4
    for data in inputs:
        TARGETS[name].call(data)


def test_there_is_a_file_for_each_target_and_no_other() -> None:
    assert {path.stem for path in corpus.FOLDER.iterdir()} == set(TARGETS)


def test_a_line_has_any_bytes() -> None:
    for data in (b"", b"a\nb\\n\r\0", bytes(range(256)), "é".encode()):
        assert corpus.unescaped(corpus.escaped(data)) == data
        assert corpus.escaped(data).isprintable() or not data


BROKEN: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "exports": (variables, "quote", lambda value: f"'{value}'"),
    "frames": (Connection, "_keep", lambda connection, rest: setattr(connection, "_come", len(rest))),
    "host_list": (facts, "_hosts", lambda literals, _brackets: ["".join(literals)] * 2),
    "hosts_file": (hostfiles, "_without", lambda text, _world: text),
    "job_script": (rewrite, "lint_jobs", lambda _jobs: []),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_decoder_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs that are kept suffice for it."""
    monkeypatch.setattr(*BROKEN[name])
    with pytest.raises((AssertionError, ValueError, IndexError)):
        [TARGETS[name].call(data) for data in corpus.kept(name)]
