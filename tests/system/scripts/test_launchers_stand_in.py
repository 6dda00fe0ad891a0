"""The stand-ins for torchrun and `accelerate launch` meet where the real ones would."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.needs import need
from support.programs import surroundings

PROGRAM = Path(surroundings.__file__).parent / "meets_where.py"
CONFIG = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
machine_rank: 0
mixed_precision: 'no'
num_machines: 1
num_processes: 8
"""
OVER = "--multi_gpu --num_processes 16 --num_machines 2"
# A command line, with PET_* in front as a shell takes them.
COMMANDS = f"""
torchrun train.py
torchrun --nnodes 2 --node-rank 1 --master_addr h --master-port 1234 train.py --nnodes 3
torchrun --nnodes=1:4 --rdzv_backend=c10d --rdzv_endpoint=h train.py
torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=[::1]:99 train.py
torchrun --nnodes=2 --rdzv_endpoint=h train.py
torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=:7010 train.py
torchrun --standalone --nnodes=2 --rdzv_endpoint=h:1 train.py
torchrun --nnodes=2 --nproc_per_node= train.py
torchrun --nnodes=2 --nproc_per_node=8 --role r: -r 3 -t 3 --tee 3 --max_restarts 0 -m pkg.train --node_rank 7
torchrun --nnode 2 --node_ra 1 train.py
torchrun --nonsense train.py
PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=h PET_MASTER_PORT=5 torchrun train.py
PET_NNODES=2 PET_NODE_RANK=x torchrun --nnodes=1 train.py
PET_NNODES=2 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=h:5 torchrun --nproc_per_node=8 train.py
MASTER_ADDR=h MASTER_PORT=5 NODE_RANK=1 NNODES=2 WORLD_SIZE=2 torchrun train.py
accelerate launch --multi-gpu --num-processes 8 train.py --num_machines 2
accelerate launch {OVER} --machine_rank 1 --main_process_ip h --main_process_port 1234 train.py
accelerate launch {OVER} --machine-rank 1 --main-process-ip h --main-process-port 1234 --same_network train.py
accelerate launch {OVER} --main_process_ip h --main_process_port 1234 train.py
accelerate launch {OVER} --rdzv_backend c10d --main_process_ip h --main_process_port 1234 train.py
accelerate launch {OVER} --rdzv_backend c10d --same_network --main_process_ip h --main_process_port 1234 train.py
accelerate launch --use_fsdp --num_processes=16 --num_machines=2 --machine_rank=1 --main_process_ip=h train.py
PET_NNODES=2 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=h:5 accelerate launch --multi_gpu train.py
"""


def found(which: str, home: Path, commands: list[tuple[dict[str, str], list[str]]]) -> list[Any]:
    """Return where these meet."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "HF_HOME": str(home)}
    command = [sys.executable, PROGRAM, which]
    done = subprocess.run(command, input=json.dumps(commands), env=environ, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    its: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return its


def test_they_meet_where_the_real_ones_would(tmp_path: Path) -> None:
    """Of many command lines, and of those that the real ones refuse."""
    need("torch", "accelerate")
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate/default_config.yaml").write_text(CONFIG)
    lines = COMMANDS.strip().splitlines()
    split = [line.split() for line in lines]
    starts = [next(at for at, word in enumerate(words) if word in ("torchrun", "accelerate")) for words in split]
    commands = [
        (dict(word.split("=", 1) for word in words[:start]), words[start:])
        for words, start in zip(split, starts, strict=True)
    ]
    stand_in, real = (dict(zip(lines, found(which, tmp_path, commands), strict=True)) for which in ("stand-in", "real"))
    assert stand_in == real
    assert 2 <= list(real.values()).count("does not start") <= 8
