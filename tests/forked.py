"""Runs of `mingle` as forks of one process that has loaded all of it: 15 ms each instead of 50 to 130."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

# Standard input is its orders, standard output its answers; a fork has neither.
_ORIGIN = """
import gc, importlib, json, os, pkgutil, sys
gc.disable()  # as mingle itself does
import importlib.metadata, importlib.readers, textwrap, zipfile  # what many calls load late
import mingle_hooks.cli
from mingle_hooks.cli.main import main
for found in pkgutil.walk_packages(mingle_hooks.__path__, "mingle_hooks."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError:  # what mingle, too, loads only where it is
            continue
gc.freeze()
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for descriptor, path in enumerate([os.devnull, order["out"], order["err"]]):
            os.dup2(os.open(path, os.O_RDWR), descriptor)
        sys.stdin = open(0, closefd=False)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        sys.argv = [order["program"], *order["words"]]
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
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
        assert self._origin is not None
        assert self._origin.stdin is not None
        assert self._origin.stdout is not None
        out, err = Path(self._place.name, "out"), Path(self._place.name, "err")
        for file in (out, err):
            file.write_bytes(b"")
        order = {"words": words, "env": dict(env), "cwd": os.fspath(cwd), "out": str(out), "err": str(err)}
        order["program"] = str(self._python.with_name("mingle"))
        self._origin.stdin.write(json.dumps(order) + "\n")
        self._origin.stdin.flush()
        status = int(self._origin.stdout.readline())
        return subprocess.CompletedProcess(["mingle", *words], status, out.read_text(), err.read_text())
