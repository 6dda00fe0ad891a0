"""The first line of the report for each way in which one of torchrun's eight workers on two hosts can fail.

With the real torchrun and torch. The hosts are two agents on this machine.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import places

places.PATIENCE_S = 180.0
AT_ONCE = 3
LOST_RANK = 5
# What rank 5 does -> what the report says of it. With "all" in front, all ranks do so; "record" is torch's own @record.
KINDS = {
    "raise ValueError('bad batch 17')": "ValueError: bad batch 17",
    "{}['weights']": "KeyError: 'weights'",
    "1 / 0": "ZeroDivisionError: division by zero",
    "open('/nowhere/data')": "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/data'",
    "import nowhere": "ModuleNotFoundError: No module named 'nowhere'",
    "assert 1 == 2": "AssertionError",
    "raise MemoryError": "MemoryError",
    "try: 1 / 0\nexcept ZeroDivisionError as error: raise OSError('no weights') from error": "OSError: no weights",
    "try: 1 / 0\nfinally: {}['later']": "KeyError: 'later'",
    "raise ExceptionGroup('two', [ValueError('inner'), KeyError('b')])": "ExceptionGroup: two (2 sub-exceptions)",
    "raise ValueError('first line\\nsecond line')": "ValueError: first line",
    "raise ValueError('Größe 5 ≠ 4')": "ValueError: Größe 5 ≠ 4",
    "raise SystemExit(3)": "rank 5: exit code 3; ",
    "sys.exit('no data in /nowhere')": 'rank 5: exit code 1 after "no data in /nowhere"',
    "import argparse; argparse.ArgumentParser(prog='train').parse_args(['--bad'])": (
        'rank 5: exit code 2 after "train: error: unrecognized arguments: --bad"'
    ),
    "os._exit(7)": "rank 5: exit code 7; ",
    **{
        f"os.kill(os.getpid(), signal.SIG{name})": f"rank 5: Signal {int(getattr(signal, f'SIG{name}'))} (SIG{name})"
        for name in ("KILL", "SEGV", "ABRT", "BUS", "TERM")
    },
    "import torch; torch.nn.Linear(3, 4)(torch.ones(2, 5))": "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    "record raise ValueError('recorded')": "ValueError: recorded",
    "record sys.exit(4)": "rank 5: exit code 4; ",
    "import loaded": "ValueError: bad sample",
    "import torch, torch.distributed; torch.distributed.all_reduce(torch.ones(4))": (
        "ValueError: Default process group has not been initialized"
    ),
    "all import meets; meets.train('raise ValueError(\"loss is nan\")')": "ValueError: loss is nan",
    "all import meets; meets.train('os._exit(9)')": "rank 5: exit code 9; ",
    "all import meets; meets.train('os.kill(os.getpid(), signal.SIGKILL)')": "rank 5: Signal 9 (SIGKILL)",
}
# A worker imports torch only where it has to: that takes more than a second of a processor.
WORKER = f"""
import os, signal, sys, time
kind, lost = open("kind").read(), os.environ["RANK"] == "{LOST_RANK}"
if kind.startswith("all ") or lost:
    time.sleep(1.0 if kind.startswith("all ") else 0.5)
    code = kind.removeprefix("all ").removeprefix("record ")
    def main():
        exec(code)
    if kind.startswith("record "):
        from torch.distributed.elastic.multiprocessing.errors import record
        main = record(main)
    main()
time.sleep(60)
"""
MODULES = {
    "loaded.py": """
import torch
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, at): raise ValueError("bad sample")
list(torch.utils.data.DataLoader(Samples(), num_workers=1))
""",
    # One fails, and the others lose their connections to it.
    "meets.py": f"""
import os, signal, torch, torch.distributed as dist
def train(fails):
    dist.init_process_group("gloo")
    for step in range(1000000):
        if step == 20 and dist.get_rank() == {LOST_RANK}:
            exec(fails)
        dist.all_reduce(torch.ones(4))
""",
}


def figures(part: str = "") -> dict[str, int]:
    """Return how many first lines are the worker's own, of the failures whose code has this part."""
    before = os.times()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(AT_ONCE) as pool:
        kinds = {kind: wanted for kind, wanted in KINDS.items() if part in kind}
        lines = list(pool.map(lambda at: _first_line(Path(name), *at), enumerate(kinds)))
    right = 0
    for (kind, wanted), line in zip(kinds.items(), lines, strict=True):
        is_right = wanted in line.partition("): ")[2] and line.startswith("mingle run: node2 (rank 1): ")
        right += is_right
        print(f"  {'right' if is_right else 'WRONG'}  {kind!r:60}  {line}")
    after = os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"  {right} of {len(kinds)} first lines are the worker's own; {used_s:.0f} s of a processor")
    return {"failures": len(kinds), "named": right}


def _first_line(place: Path, number: int, kind: str) -> str:
    own = place / str(number)
    own.mkdir()
    (own / "kind").write_text(kind)
    for name, text in {"worker.py": WORKER, **MODULES}.items():
        (own / name).write_text(text)
    run = places.Places(own)
    try:
        words = ("--grace", "5", "torchrun", "--nproc-per-node", "4", "worker.py")
        _, _, err = run.done(*words, hosts="node1,node2")
    finally:
        run.close()
    return next((line for line in err.splitlines() if line.startswith("mingle run: node")), err[-200:])


if __name__ == "__main__":
    figures(*sys.argv[1:])
