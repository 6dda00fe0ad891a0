"""What a member of a world is in these tests: a real shell on a host that evals `mingle env`."""

from __future__ import annotations

import ipaddress
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from subprocess import CompletedProcess

    from cluster.host import Host
    from forked import Forked

KEY = "00112233445566778899aabbccddeeff" * 2
KEYED = {"MINGLE_KEY": KEY}
OTHER_KEY = {"MINGLE_KEY": "ffeeddccbbaa99887766554433221100" * 2}
# A small all-reduce over MASTER_ADDR and MASTER_PORT, in which rank 0 opens the listener; then the variables.
REDUCE = f"python3 -IS {Path(__file__).with_name('reduce.py')}\nenv"
# What each fork wrote, in a shell of its own; with status, and what the shell writes.
EVALUATE = """for text in "$1"/text.*; do
    number=${text##*.} place=${text%/*}
    ( set --; eval "$(<"$text")" ) >"$place/out.$number" 2>"$place/err.$number" </dev/null
    echo $? >"$place/status.$number"
done"""
AT_ONCE = 8
# What a world is made of, and must be the same on every member.
SHARED = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "WORLD_SIZE", "MINGLE_ID", "MINGLE_WORLD")
# All that must not be there after a failure.
WORLD = (*SHARED, "NODE_RANK", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK", "MINGLE_RANK_OFFSET")


def evaluating(*options: str, then: str = "env", shell: str = "bash") -> list[str]:
    """Return a command line: a shell that evals `mingle env` with these options, as users type it, and goes on."""
    return [shell, "-ec", f'eval "$(mingle env "$@")"\n{then}', shell, *options]


def variables(done: CompletedProcess[str]) -> dict[str, str]:
    """Return what `env` printed in a shell that succeeded."""
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return parsed(done.stdout)


def parsed(text: str) -> dict[str, str]:
    """Return the NAME=value lines of a text, as `env` prints them."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def one_world(results: Iterable[CompletedProcess[str]]) -> list[dict[str, str]]:
    """Check that these members have one world, whole; return their variables, rank 0's first."""
    return agreed(variables(done) for done in results)


def agreed(found: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Check that these are the variables of one world, whole; return them, rank 0's first."""
    ranked = sorted(found, key=lambda its: int(its["NODE_RANK"]))
    assert len({tuple(its[name] for name in SHARED) for its in ranked}) == 1, ranked
    assert [its["NODE_RANK"] for its in ranked] == [str(rank) for rank in range(len(ranked))]
    assert {its["NNODES"] for its in ranked} == {str(len(ranked))}
    assert sum(int(its["LOCAL_WORLD_SIZE"]) for its in ranked) == int(ranked[0]["WORLD_SIZE"])
    return ranked


def is_on(addr: str, network: str) -> bool:
    """Tell whether an address is in a network."""
    return ipaddress.ip_address(addr) in ipaddress.ip_network(network)


def failed(done: CompletedProcess[str], code: int) -> str:
    """Check that a member's shell ended with `code` and had no world; return its stderr."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == "", done.stdout
    return done.stderr


def members(
    places: Sequence[Host],
    argv: Callable[[int], list[str]],
    *,
    env: Callable[[int], Mapping[str, str]] = lambda _number: KEYED,
    delays: Sequence[float] | None = None,
    timeout: float = 60.0,
) -> list[CompletedProcess[str]]:
    """Run member 0, 1, … on these hosts, which may repeat, each after its delay in seconds; results in order."""

    def one(number: int) -> CompletedProcess[str]:
        time.sleep(delays[number] if delays else 0)
        return places[number].run(argv(number), env=env(number), timeout=timeout)

    with ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(one, range(len(places))))


def all_evaluated(
    forked: Forked, its: Host, place: Path, asked: Sequence[tuple[Sequence[str], Mapping[str, str]]]
) -> list[CompletedProcess[str]]:
    """Return what becomes of a shell on a host that evals `mingle env` with each of these words and variables.

    The first and the last are started as users start them. The others, which may be hundreds, are forks, and a shell
    evals what they write. None writes into its directory.
    """
    said, here = place / "said", place / "here"
    said.mkdir()
    here.mkdir()
    started = [its.run(evaluating(*words, then=":"), env=env, cwd=here) for words, env in (asked[0], asked[-1])]
    members = [(its, ["env", *words], env) for words, env in asked[1:-1]]
    done = [one for at in range(0, len(members), AT_ONCE) for one in forked.run_on(members[at : at + AT_ONCE], here)]
    for number, one in enumerate(done):
        (said / f"text.{number:03}").write_text(one.stdout)
    its.run(["bash", "-c", EVALUATE, "bash", str(said)], cwd=here, check=True)
    for number, one in enumerate(done):
        status, out, err = ((said / f"{name}.{number:03}").read_text() for name in ("status", "out", "err"))
        one.returncode, one.stdout, one.stderr = int(status), out, one.stderr + err
    assert list(here.iterdir()) == []
    return [started[0], *done, started[1]]
