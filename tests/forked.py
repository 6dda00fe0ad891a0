"""Runs of `mingle` as forks of one process that has loaded all of it: 15 ms each instead of 50 to 130."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.host import clean_env

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from cluster.host import Host
    from typing_extensions import Self

# Standard input is its orders, standard output its answers; a fork has neither. A list of orders is for forks that run
# at the same time, and is answered when the last of them has ended.
_ORIGIN = """
import ctypes, gc, importlib, json, os, pkgutil, sys
import mingle_hooks.cli
from mingle_hooks.cli.main import main
for found in pkgutil.walk_packages(mingle_hooks.__path__, "mingle_hooks."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError:  # what mingle, too, loads only where it is
            continue
setns = ctypes.CDLL(None, use_errno=True).setns

def become(order):
    for descriptor, path in enumerate([os.devnull, order["out"], order["err"]]):
        os.dup2(os.open(path, os.O_RDWR), descriptor)
    os.closerange(3, 16)
    sys.stdin = open(0, closefd=False)
    for namespace in [os.open(path, os.O_RDONLY) for path in order["namespaces"]]:
        if setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = [order["program"], *order["words"]]
    sys.exit(main())

gc.freeze()
for line in sys.stdin:
    pids = []
    for order in json.loads(line):
        pids.append(os.fork())
        if pids[-1] == 0:
            become(order)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
"""


class Forked:
    """The `mingle` of one Python, as a context manager."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._origin: subprocess.Popen[str] | None = None
        self._place = tempfile.TemporaryDirectory()

    def __enter__(self) -> Self:
        argv = [self._python, "-c", _ORIGIN]
        self._origin = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._origin is not None
        self._origin.communicate()
        self._place.cleanup()

    def run(
        self, *words: str, env: Mapping[str, str], cwd: str | os.PathLike[str] = "/"
    ) -> subprocess.CompletedProcess[str]:
        """Run `mingle` with these words and return its status and text; its standard input is empty."""
        (done,) = self._done([(words, env, [], cwd)])
        return done

    def run_on(
        self, members: Sequence[tuple[Host, Sequence[str], Mapping[str, str]]], cwd: str | os.PathLike[str] = "/root"
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run `mingle` with these words and variables on these hosts, as root, all at the same time."""
        entered = []
        for host, words, env in members:
            namespaces = [f"/proc/{host.pid}/ns/{name}" for name in ("net", "uts", "mnt")]
            entered.append((words, clean_env("root", "/root") | dict(env), namespaces, cwd))
        return self._done(entered)

    def _done(self, asked: Sequence[tuple[Any, ...]]) -> list[subprocess.CompletedProcess[str]]:
        assert self._origin is not None
        assert self._origin.stdin is not None
        assert self._origin.stdout is not None
        orders = []
        for number, (words, env, namespaces, cwd) in enumerate(asked):
            order = {"words": list(words), "env": dict(env), "namespaces": namespaces, "cwd": os.fspath(cwd)}
            order |= {name: str(Path(self._place.name, f"{name}.{number}")) for name in ("out", "err")}
            order["program"] = str(self._python.with_name("mingle"))
            for name in ("out", "err"):
                Path(order[name]).write_bytes(b"")
            orders.append(order)
        self._origin.stdin.write(json.dumps(orders) + "\n")
        self._origin.stdin.flush()
        statuses = json.loads(self._origin.stdout.readline())
        return [
            subprocess.CompletedProcess(["mingle", *order["words"]], status, *map(_text, (order["out"], order["err"])))
            for order, status in zip(orders, statuses, strict=True)
        ]


def _text(path: str) -> str:
    return Path(path).read_text()
