"""Runs of `mingle` as forks of one process that has loaded all of it: 15 ms each instead of 50 to 130."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.host import Host, clean_env

# Standard input is its orders, standard output its answers; a fork has neither. A list of orders is for forks that run
# at the same time, and is answered when the last of them has ended.
_ORIGIN = """
import ctypes, gc, importlib, json, os, pkgutil, sys, time
gc.disable()  # as mingle itself does
import importlib.metadata, importlib.readers, textwrap, zipfile  # what many calls load late
import mingle_hooks.cli
from mingle_hooks.cli.main import main
for found in pkgutil.walk_packages(mingle_hooks.__path__, "mingle_hooks."):
    if not found.name.endswith(("__main__", ".jax", ".lightning")):  # the last two load what no command does
        try:
            importlib.import_module(found.name)
        except ImportError:  # what mingle, too, loads only where it is
            continue
setns = ctypes.CDLL(None, use_errno=True).setns

def gone():
    reading, writing = os.pipe()
    os.close(reading)
    return writing

def become(order):
    for descriptor, path in enumerate(order["streams"]):
        os.dup2(gone() if path == "|" else os.open(path or os.devnull, os.O_RDWR), descriptor)
    os.closerange(3, 16)
    sys.stdin = open(0, closefd=False)
    for descriptor, name in enumerate(["stdin", "stdout", "stderr"]):
        if order["streams"][descriptor] is None:  # as Python has it whose stream is closed
            os.close(descriptor)
            setattr(sys, name, None)
    for namespace in [os.open(path, os.O_RDONLY) for path in order["namespaces"]]:
        if setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
    time.sleep(order["delay_s"])
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

    def __enter__(self) -> Forked:
        argv = [str(self._python), "-c", _ORIGIN]
        self._origin = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._origin is not None
        self._origin.communicate()
        self._place.cleanup()

    def run(
        self,
        *words: str,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] = "/",
        streams: Mapping[int, str | None] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `mingle` with these words and return its status and text; its standard input is empty.

        Each of its `streams` may be a file, "|" for a pipe whose reader has gone, or None where it is closed.
        """
        order = {"words": words, "env": dict(env), "namespaces": [], "cwd": os.fspath(cwd), "delay_s": 0.0}
        return self._done([order], streams or {})[0]

    def run_on(
        self,
        members: Sequence[tuple[Host, Sequence[str], Mapping[str, str]]],
        cwd: str | os.PathLike[str] = "/root",
        delays: Sequence[float] | None = None,
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run `mingle` with these words and variables on these hosts, as root, each after its delay in seconds.

        A fork enters a host as nsenter(1) does; the results are in order, when the last has ended.
        """
        orders = []
        for number, (host, words, env) in enumerate(members):
            namespaces = [f"/proc/{host.pid}/ns/{name}" for name in ("net", "uts", "mnt")]
            its = {"env": clean_env("root", "/root") | dict(env), "delay_s": delays[number] if delays else 0.0}
            orders.append({"words": list(words), "namespaces": namespaces, "cwd": os.fspath(cwd), **its})
        return self._done(orders, {})

    def _done(
        self, orders: list[dict[str, Any]], streams: Mapping[int, str | None]
    ) -> list[subprocess.CompletedProcess[str]]:
        assert self._origin is not None
        assert self._origin.stdin is not None
        assert self._origin.stdout is not None
        texts = []
        for number, order in enumerate(orders):
            texts.append([Path(self._place.name, f"{name}.{number}") for name in ("out", "err")])
            for path in texts[-1]:
                path.write_bytes(b"")
            order["program"] = str(self._python.with_name("mingle"))
            usual = dict(enumerate([os.devnull, *map(str, texts[-1])]))
            order["streams"] = [*{**usual, **streams}.values()]
        self._origin.stdin.write(json.dumps(orders) + "\n")
        self._origin.stdin.flush()
        statuses = json.loads(self._origin.stdout.readline())
        return [
            subprocess.CompletedProcess(["mingle", *order["words"]], status, *(path.read_text() for path in written))
            for order, written, status in zip(orders, texts, statuses, strict=True)
        ]
