"""Members of a world in the tests: a real shell on a host evals `mingle env`."""

import ipaddress
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

from cluster.host import Host
from cluster.hosts import run_each
from support.forked import Forked

KEY = "00112233445566778899aabbccddeeff" * 2
KEYED = {"MINGLE_KEY": KEY}
OTHER_KEY = {"MINGLE_KEY": "ffeeddccbbaa99887766554433221100" * 2}
# Programs that tests start on hosts; each says in its first lines what it does and which arguments it takes.
PROGRAMS = Path(__file__).with_name("programs")
# A small all-reduce over MASTER_ADDR and MASTER_PORT, in which rank 0 opens the listener; then the variables.
REDUCER = PROGRAMS / "reduce.py"
REDUCE = f"python3 -IS {REDUCER}\nenv"
# Evals what each fork wrote in a shell of its own, and stores its status and output.
EVALUATE = """for text in "$1"/text.*; do
    number=${text##*.} place=${text%/*}
    ( set --; eval "$(<"$text")" ) >"$place/out.$number" 2>"$place/err.$number" </dev/null
    echo $? >"$place/status.$number"
done"""
AT_ONCE = 8
# Far above what any process here takes, unless it waits for its deadline, which is a failure then.
END_S = 40.0
# Variables that are the same on every member.
SHARED = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "WORLD_SIZE", "MINGLE_ID", "MINGLE_WORLD")
# Variables that must not be set after a failure.
WORLD = (*SHARED, "NODE_RANK", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK", "MINGLE_RANK_OFFSET")


def evaluating(*options: str, then: str = "env") -> list[str]:
    """Return a command line: a shell that evals `mingle env` with these options, as users type it, and goes on."""
    return ["bash", "-ec", f'eval "$(mingle env "$@")"\n{then}', "bash", *options]


def variables(done: CompletedProcess[str]) -> dict[str, str]:
    """Return what `env` printed in a shell that succeeded."""
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return parsed(done.stdout)


def parsed(text: str) -> dict[str, str]:
    """Return the NAME=value lines of a text, as `env` prints them."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def parsed_files(directory: Path, pattern: str = "task.*") -> list[dict[str, str]]:
    """Return what `env` printed into each of these files, in the order of their names."""
    return [parsed(path.read_text()) for path in sorted(directory.glob(pattern))]


def one_world(results: Iterable[CompletedProcess[str]]) -> list[dict[str, str]]:
    """Check that these members have one world, whole; return their variables, rank 0's first."""
    return agreed(variables(done) for done in results)


def agreed(found: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Check that these are the variables of one world, whole; return them, rank 0's first.

    Where the members ran REDUCE, each of them has the sum of all ranks.
    """
    ranked = sorted(found, key=lambda member: int(member["NODE_RANK"]))
    assert len({tuple(member[name] for name in SHARED) for member in ranked}) == 1, ranked
    assert [member["NODE_RANK"] for member in ranked] == [str(rank) for rank in range(len(ranked))]
    assert {member["NNODES"] for member in ranked} == {str(len(ranked))}
    assert sum(int(member["LOCAL_WORLD_SIZE"]) for member in ranked) == int(ranked[0]["WORLD_SIZE"])
    assert {member.get("SUM") for member in ranked} in ({None}, {str(sum(range(len(ranked))))}), ranked
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
    argv: list[str] | Callable[[int], list[str]],
    *,
    env: Callable[[int], Mapping[str, str]] = lambda _number: KEYED,
    delays: Sequence[float] | None = None,
    **options: Any,
) -> list[CompletedProcess[str]]:
    """Run member 0, 1, … on these hosts, which may repeat, each after its delay in seconds; results in order."""
    numbers = range(len(places))
    return run_each(
        places, (argv(number) if callable(argv) else argv for number in numbers), map(env, numbers), delays, **options
    )


def program(host: Host, name: str, *arguments: str | Path, **options: Any) -> Popen[str]:
    """Start one of PROGRAMS on a host, or Python code, and wait until it is ready."""
    line = [PROGRAMS / name] if name.endswith(".py") else ["-c", name]
    started = host.popen([sys.executable, *line, *arguments], **options)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n", started.communicate()
    return started


def stop(process: Popen[str]) -> str:
    """Kill a process and return what it wrote to stdout."""
    process.kill()
    return process.communicate(timeout=END_S)[0]


def ended(process: Popen[str]) -> CompletedProcess[str]:
    """Wait for the end of a process and return its status and text."""
    out, err = process.communicate(timeout=END_S)
    return CompletedProcess(process.args, process.returncode, out, err)


def lines(process: Popen[str]) -> Iterator[str]:
    """Return the lines that a running process writes to stderr, as they come."""
    assert process.stderr is not None
    return iter(process.stderr.readline, "")


def besides_waits(*texts: str) -> list[str]:
    """Return the lines of mingle but for those in which a member on a busy machine says how long it has waited."""
    return [line for text in texts for line in text.splitlines() if not re.search(r" after \d+ s\b", line)]


def until_line(process: Popen[str], text: str) -> None:
    """Wait until a process writes a line with this text to stderr."""
    assert any(text in line for line in lines(process)), f"no line with {text!r}"


def all_evaluated(
    forked: Forked, host: Host, place: Path, calls: Sequence[tuple[Sequence[str], Mapping[str, str]]]
) -> list[CompletedProcess[str]]:
    """Return what becomes of a shell on a host that evals `mingle env` with each of these options and variables.

    They may be hundreds, and are forks: a shell evals what they write. None writes into its directory.
    """
    output, here = place / "output", place / "here"
    output.mkdir()
    here.mkdir()
    forks = [(host, ["env", *options], env) for options, env in calls]
    done = [one for at in range(0, len(forks), AT_ONCE) for one in forked.run_on(forks[at : at + AT_ONCE], here)]
    for number, one in enumerate(done):
        (output / f"text.{number:03}").write_text(one.stdout)
    host.run(["bash", "-c", EVALUATE, "bash", str(output)], cwd=here, check=True)
    for number, one in enumerate(done):
        status, out, err = ((output / f"{name}.{number:03}").read_text() for name in ("status", "out", "err"))
        one.returncode, one.stdout, one.stderr = int(status), out, one.stderr + err
    assert list(here.iterdir()) == []
    return done
