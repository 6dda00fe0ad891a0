"""Every command in the README does what the README says."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from light import BIN as LIGHT_BIN, TRAIN as LIGHT, VENV

from mingle_hooks import errors
from mingle_hooks.export.frameworks import FRAMEWORKS
from mingle_hooks.export.variables import SHELLS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
BIN = Path(sys.executable).parent
TRAIN = ROOT / "examples" / "train.py"
# It averages over all processes by sockets; the demo has torch do that.
WITHOUT_TORCH = f"""
import runpy, sys
sys.argv += ["--backend", "sockets"]
runpy.run_path({str(TRAIN)!r}, run_name="__main__")
"""


def block(language: str, mark: str) -> str:
    """Return the one block of that language which holds the mark."""
    (found,) = (text for its, text in BLOCKS if its == language and mark in text)
    return found


def inline(start: str) -> str:
    """Return the one command between backquotes that starts so."""
    (found,) = re.findall(rf"`({re.escape(start)}[^`]*)`", README.replace("\n", " "))
    return found


def trained(output: str) -> int:
    """Return how many processes say that they have trained together."""
    match = re.search(r"(\d+) processes at step [12]00: y = (?:3\.0|2\.99)", output)
    assert match, output
    return int(match[1])


def began(output: str) -> int:
    """Return how many processes of one world say that they have begun, each with its own rank."""
    ranks = re.findall(r"rank (\d+) of (\d+) begins", output)
    size = len(ranks)
    assert sorted(ranks) == [(str(rank), str(size)) for rank in range(size)], output
    return size


def test_the_slurm_script_starts_one_world_on_four_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The script as it stands, given to sbatch by a user who is not root."""
    shutil.copy(LIGHT, tmp_path)
    env = {"PATH": f"{LIGHT_BIN}:{BIN}:/usr/bin:/bin"}
    job = slurm.submit(block("bash", "#SBATCH"), f"--output={tmp_path}/out", user="alice", cwd=str(tmp_path), env=env)
    state = slurm.wait(job, 120)
    output = (tmp_path / "out").read_text()
    assert state == "COMPLETED", output
    assert began(output) == 4


def test_the_lines_of_the_table_start_one_world(slurm: SlurmCluster, tmp_path: Path) -> None:
    """One torchrun on each node, one process per task, and a shell in between."""
    shutil.copy(LIGHT, tmp_path)
    for nodes, start, size in (
        ("-N3", "srun mingle exec torchrun", 3),
        ("-N1 --ntasks-per-node=4", "srun mingle exec --scope task", 4),
        ("-N3", "srun bash -c", 3),
    ):
        line = f"PATH={LIGHT_BIN}:$PATH; {inline(start).replace('srun ', f'srun {nodes} ', 1)}"
        done = slurm.controller.run(["bash", "-c", line], user="alice", timeout=120, cwd=str(tmp_path))
        assert (done.returncode, began(done.stdout)) == (0, size), done.stderr


def test_the_line_for_pbs_starts_one_world_on_four_nodes(any_pbs: Callable[..., Any], tmp_path: Path) -> None:
    """What `mingle template` prints is given to qsub: of the stand-in, and of a real PBS where there is one."""
    shutil.copy(LIGHT, tmp_path)
    line = block("bash", "| qsub").replace("| qsub", "")
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "VIRTUAL_ENV": str(VENV)}
    made = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=True)
    pbs = any_pbs(4)
    job = pbs.submit(made.stdout, cwd=str(tmp_path))
    assert pbs.wait(job, 120) == 0, pbs.output(job)
    assert began(pbs.output(job)) == 4


def test_four_machines_without_a_scheduler_train(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """The key made once, the same on every machine, and then one line on each of them."""
    (tmp_path / "train.py").write_text(WITHOUT_TORCH)
    four = hosts(4)
    four[0].run(["bash", "-ec", block("bash", "umask 077")], user="alice", check=True)
    line = f"PATH={LIGHT_BIN}:$PATH; {block('bash', '--id exp7')}"
    done = four.run_all(["bash", "-c", line], user="alice", timeout=120, cwd=str(tmp_path))
    assert [one.returncode for one in done] == [0] * 4, [one.stderr for one in done]
    assert trained("".join(one.stdout for one in done)) == 4


def test_the_line_for_a_home_that_is_not_shared_makes_a_key(hosts: Callable[..., Hosts]) -> None:
    """It is exported, so srun hands it to every node."""
    line = block("bash", "MINGLE_KEY=$(mingle key)")
    done = hosts(1)[0].run(["bash", "-ec", f'{line}\nbash -c "echo \\$MINGLE_KEY"'], check=True)
    assert re.fullmatch(r"[0-9a-f]{64}\n", done.stdout)


def test_one_member_prints_what_is_shown(hosts: Callable[..., Hosts]) -> None:
    """The text that is shown, but for what is left out there; a port differs from day to day."""
    command, _, shown = block("console", "--nodes 1").removeprefix("$ ").partition("\n")
    done = hosts(1)[0].run(command.split(), check=True)
    pattern = re.sub(r"'2\d{4}'", r"'2\\d{4}'", re.escape(shown)).replace("…", ".*")
    assert re.fullmatch(pattern, done.stdout, re.DOTALL), done.stdout


def test_a_member_that_waits_in_vain_says_what_is_shown(hosts: Callable[..., Hosts]) -> None:
    """The line on stderr is the README's, and eval fails with the code of its table."""
    command, ranks = block("console", "--insecure").removeprefix("$ ").splitlines()
    done = hosts(1)[0].run(["bash", "-c", f'eval "$({command})"'])
    assert (done.returncode, done.stderr.splitlines()[-1]) == (errors.MissingError.exit_code, ranks)


def test_the_table_of_exit_codes_is_whole() -> None:
    """Each error has its line, with its code."""
    codes = {int(code) for line in re.findall(r"^\| ([\d, ]+) \|", README, re.MULTILINE) for code in line.split(",")}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MingleError)]
    assert {kind.exit_code for kind in kinds} | {75, 126, 127, 130, 143} == codes


def test_the_frameworks_and_shells_named_are_those_there_are() -> None:
    """None is forgotten, none is invented."""
    listed = re.search(r"what a framework reads: ([^.]*)\.", README.replace("\n", " "))
    assert listed
    assert sorted(re.split(r",\s+", listed[1])) == sorted(FRAMEWORKS)
    spoken = re.search(r"`--shell` prints ([^.]*)\.", README.replace("\n", " "))
    assert spoken
    languages = {row.success: name for name, row in reversed(SHELLS.items())}
    assert {*languages.values()} == set(re.split(r", | or ", spoken[1]))


def test_every_make_target_named_is_there() -> None:
    """`make test` is what runs this; `make demo` is run below, and `make cluster` by its own tests."""
    for target in ("demo", "test", "cluster", "bench"):
        assert f"make {target}" in README
    subprocess.run(["make", "--dry-run", "demo", "test", "cluster", "bench"], cwd=ROOT, check=True, capture_output=True)


def test_the_demo_forms_one_world_and_says_so(tmp_path: Path) -> None:
    """What `make demo` runs once the project is installed, for itself: without torch, which is 7 s of a processor."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MINGLE_", "SLURM_"))}
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(name='torch')\n")
    environ["PYTHONPATH"] = str(tmp_path)
    argv = [sys.executable, ROOT / "examples" / "demo.py"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "One world, four nodes" in done.stdout
    assert trained(done.stdout) == 4
