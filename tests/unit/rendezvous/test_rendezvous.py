"""meet(), end to end: members in threads of one host, each discovery backend by itself."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import SECRET

from mingle_hooks.errors import ConflictError, MingleError, MissingError, SecretError, UsageError
from mingle_hooks.rendezvous import rendezvous
from mingle_hooks.rendezvous.local_tasks import follow_first_task, serve_local_tasks
from mingle_hooks.rendezvous.member import Request
from mingle_hooks.rendezvous.rendezvous import meet
from mingle_hooks.rendezvous.wire import Attempt, Body, Material, check_in_ports

KEY = Material(b"the key of these tests")
LOOPBACK_HOSTS: dict[str, Any] = {"via": ("hosts",), "leader_hosts": ("127.0.0.1",)}


def observer(note: Callable[[str], None]) -> Any:
    """Return one that hears only notes."""
    return SimpleNamespace(progress=lambda _progress: None, failed=lambda _error: None, note=note, explain=None)


def request(attempt: str, **parts: Any) -> Request:
    """Return a member's request."""
    whole = {"key": KEY, "host": "node", "machine": "here", "slots": 1, "nodes": 3, "timeout_s": 15.0, **parts}
    return Request(Attempt(attempt), **whole)


def together(*requests: Request) -> tuple[list[Body | MingleError], list[str]]:
    """Return what each gets, in order, and the notes of all."""
    results: list[Body | MingleError] = [MingleError("", "", "")] * len(requests)
    notes: list[str] = []

    def one(index: int) -> None:
        try:
            results[index] = meet(requests[index], observer(notes.append))
        except MingleError as error:
            results[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, notes


def answers(results: list[Body | MingleError]) -> list[Body]:
    """Return the answers of members that all got one, the same one."""
    proven = [result for result in results if isinstance(result, dict)]
    assert len(proven) == len(results), results
    assert len({answer["digest"] for answer in proven}) == 1
    return proven


@pytest.mark.parametrize("backend", ["hosts", "master", "directory"])
@pytest.mark.parametrize("ranked", [True, False])
def test_each_backend_alone_forms_one_world(backend: str, *, ranked: bool, tmp_path: Path) -> None:
    """With ranks, and by election."""
    how: dict[str, Any] = {
        "hosts": LOOPBACK_HOSTS,
        "master": {"via": ("master",), "master": ("127.0.0.1", None)},
        "directory": {"via": ("directory",), "directory": str(tmp_path)},
    }[backend]
    members = [request(f"{backend} {ranked}", rank=rank if ranked else None, **how) for rank in range(3)]
    results, notes = together(*members)
    proven = answers(results)
    assert sorted(answer["rank"] for answer in proven) == [0, 1, 2]
    if ranked:
        assert [answer["rank"] for answer in proven] == [0, 1, 2]
    assert notes == []
    assert os.listdir(tmp_path) == []


def test_a_world_of_one_forms_alone() -> None:
    """It forms at once."""
    (answer,) = answers(together(request("one", nodes=1, rank=0, **LOOPBACK_HOSTS))[0])
    assert (answer["nodes"], answer["rank"]) == (1, 0)


def test_a_named_port_serves_check_in_and_world_also_when_several_candidates_share_a_host() -> None:
    """One of them gets it."""
    how: dict[str, Any] = {"via": ("master",), "master": ("127.0.0.1", 24_417)}
    proven = answers(together(*(request("named", **how) for _ in range(3)))[0])
    assert {answer["port"] for answer in proven} == {24_417}


def test_without_the_others_the_error_names_the_missing_members() -> None:
    """On those who came, alike."""
    members = [request("missing", rank=rank, timeout_s=2.0, **LOOPBACK_HOSTS) for rank in (0, 1)]
    results, _ = together(*members)
    assert [type(result) for result in results] == [MissingError, MissingError]
    assert len({str(result) for result in results}) == 1
    assert "rank 2" in str(results[0])


def test_without_a_leader_the_error_names_the_places_of_the_search() -> None:
    """And how."""
    ((result,), _) = together(request("alone", rank=1, timeout_s=0.5, **LOOPBACK_HOSTS))
    assert isinstance(result, MissingError)
    assert "127.0.0.1" in str(result)


@pytest.mark.parametrize("role", ["member", "leader", "first task", "another task"])
def test_a_host_that_was_suspended_past_its_deadline_ends_when_it_wakes(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLOCK_BOOTTIME has gone on, CLOCK_MONOTONIC has not."""
    clock, wakes_at = time.clock_gettime, time.monotonic() + 0.3

    def suspended(which: int) -> float:
        is_over = which == time.CLOCK_BOOTTIME and time.monotonic() > wakes_at
        return clock(which) + (1000.0 if is_over else 0.0)

    monkeypatch.setattr(time, "clock_gettime", suspended)
    alone = request("asleep", rank=int(role == "member"), timeout_s=120.0, **LOOPBACK_HOSTS)
    waits: dict[str, Callable[[], object]] = {
        "first task": lambda: serve_local_tasks(
            [str(tmp_path / "node")], "here", 2, 120.0, lambda _s, _peers: pytest.fail("met")
        ),
        "another task": lambda: follow_first_task([str(tmp_path / "node")], 1, 120.0),
    }
    with pytest.raises(MissingError):
        waits.get(role, lambda: meet(alone, observer(lambda _note: None)))()
    assert time.monotonic() - wakes_at < 60.0  # a bound on one that does not, and waits for 120 s


def test_a_contradiction_is_the_same_error_on_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """On all members alike, and it names where and how."""
    monkeypatch.setattr(rendezvous, "LINGER_S", 3.0)  # how long a failed leader awaits those who may still come
    leaders = [request("leaders", rank=rank, **LOOPBACK_HOSTS) for rank in (0, 0, 1)]
    twice = [request("twice", rank=rank, host=f"n{i}", **LOOPBACK_HOSTS) for i, rank in enumerate((0, 1, 1))]
    results, _ = together(*leaders, *twice)
    assert {type(result) for result in results} == {ConflictError}
    assert all("two leaders" in str(result) for result in results[:3])
    assert len({str(result) for result in results[3:]}) == 1
    assert "rank 1 claimed by" in str(results[3])


def test_another_key_is_refused_and_reported() -> None:
    """And hinders nobody."""
    wrong = request("key", rank=2, timeout_s=1.5, **LOOPBACK_HOSTS)._replace(key=Material(b"another key than that"))
    members = [request("key", rank=rank, **LOOPBACK_HOSTS) for rank in range(3)]
    results, notes = together(*members, wrong)
    answers(results[:3])
    assert isinstance(results[3], SecretError | MissingError)
    assert all("another key" in note for note in notes)


def test_strangers_at_the_leaders_ports_do_not_keep_a_world_from_forming() -> None:
    """They hold the ports that anybody can work out, and wait."""
    attempt = Attempt("squatted")
    open_ports, _ = check_in_ports(attempt, SECRET, range(20_000, 25_000))
    squatters = [socket.create_server(("127.0.0.1", port)) for port in open_ports]
    try:
        answers(together(*(request("squatted", rank=rank, **LOOPBACK_HOSTS) for rank in range(3)))[0])
    finally:
        for squatter in squatters:
            squatter.close()


@pytest.mark.parametrize("parts", [{"slots": 0}, {"slots": 10**6}, {"host": "bad name"}, {"rank": 10**6}, {"nodes": 0}])
def test_a_check_in_that_no_leader_accepts_is_refused_before_anything_is_opened(parts: dict[str, Any]) -> None:
    """A member does not call again and again to be refused."""
    with pytest.raises(UsageError):
        meet(request("bad", **{**LOOPBACK_HOSTS, "rank": 1, **parts}), observer(print))


def test_other_worlds_share_the_host_at_the_same_time() -> None:
    """Each forms by itself."""
    members = [request(f"world {w}", rank=rank, **LOOPBACK_HOSTS) for rank in range(3) for w in range(3)]
    results, _ = together(*members)
    worlds = [answers(results[w::3]) for w in range(3)]
    assert len({world[0]["digest"] for world in worlds}) == 3
    assert len({world[0]["port"] for world in worlds}) == 3
