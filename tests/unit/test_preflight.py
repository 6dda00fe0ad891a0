"""What is refused before check-in is what execve(2), the shells and Python would refuse, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.executables import executable

from mingle_hooks.job import member_spec, obstacle_to
from mingle_hooks.rendezvous.messages import Failure

# Scripts, in a directory of PATH.
FILES = {
    "script": "#!/bin/sh\nexit 0\n",
    "spaces": "#! \t/bin/sh \t -e \nexit 0\n",
    "without_end": "#!/bin/sh",
    "by_env": "#!/usr/bin/env script\n",
    "by_env_with_options": "#!/usr/bin/env -S sh -e\n",
    "by_env_without_line": "#!/usr/bin/env no_line\n",
    "by_env_missing": "#!/usr/bin/env no-such-python\n",
    "by_env_two_words": "#!/usr/bin/env sh -e\n",
    "dos": "#!/bin/sh\r\nexit 0\r\n",
    "no_interpreter": "#!/no/such/python\n",
    "directory_as_interpreter": "#!/usr\n",
    "data_as_interpreter": "#!/etc/passwd\n",
    "empty_interpreter": "#!\n",
    "no_line": "exit 0\n",
    "empty": "",
}
NESTED = 7  # scripts, each of which is the interpreter of the next


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Make the files, and a PATH that has a directory before theirs, with files that cannot be run."""
    for directory in ("first", "bin"):
        (tmp_path / directory).mkdir()
    place = tmp_path / "bin"
    for name, text in FILES.items():
        executable(place / name, text)
    for number in range(NESTED):
        before = f"{place}/nested{number - 1}" if number else "/bin/true"
        executable(place / f"nested{number}", f"#!{before}\n")
    (place / "data").write_text(FILES["script"])
    (place / "link").symlink_to("script")
    (place / "dead_link").symlink_to("nothing")
    (place / "loop").symlink_to("loop")
    for name in ("twice", "twice_bad"):
        (tmp_path / f"first/{name}").write_text(FILES["script" if name == "twice" else "no_interpreter"])
        executable(place / name, FILES["script"])
    (tmp_path / "first/twice_bad").chmod(0o755)
    (tmp_path / "first/data").mkdir()
    (tmp_path / "first/script").write_bytes(b"")
    return f"{tmp_path}/first:{tmp_path}/bin:/usr/bin:/bin"


def refused(words: Sequence[str], environ: Mapping[str, str], **job: str) -> Failure | None:
    """Return what keeps this process from starting a command as a member of a job of four."""
    return obstacle_to(words, member_spec(environ, {"id": "a", "nodes": "4", **job}))


NAMES = [
    *FILES,
    *(f"nested{number}" for number in range(NESTED)),
    *("data", "link", "dead_link", "loop", "twice", "twice_bad", "first", "true", "missing"),
]


@pytest.mark.parametrize("by", ["name", "path"])
def test_a_program_is_refused_where_execve_fails(path: str, by: str) -> None:
    """Found along PATH or by its path, through its `#!` lines."""
    place = path.split(":")[1]
    found, expected = {}, {}
    for name in NAMES:
        word = name if by == "name" else f"{place}/{name}"
        failure = refused([word], {"PATH": path})
        found[name] = failure.error().exit_code if failure is not None else 0
        expected[name] = status_of(word, path)
    assert found == expected
    assert {0, 126, 127} == set(found.values())


def status_of(word: str, path: str) -> int:
    """Return what comes of a command that is really executed: 0 where it begins, else 126 or 127."""
    places = [word] if "/" in word else [f"{directory}/{word}" for directory in path.split(":")]
    try:
        done = subprocess.run([word], env={"PATH": path}, capture_output=True, check=False)
    except OSError as error:
        return 126 if not isinstance(error, FileNotFoundError) or any(map(os.path.exists, places)) else 127
    return 126 if done.returncode == 127 else 0  # env(1) found no interpreter


SCRIPTS = [
    *("python gone.py", "python3 -u gone.py --lr 1", "python3.11 -W ignore -X dev -OO gone.py", "sh gone.sh"),
    *("python /no/such/gone.py", "bash -eux gone.sh one", "torchrun gone.py", "torchrun --nproc_per_node=2 gone.py"),
    "torchrun --nproc-per-node 2 --standalone gone.py config.yaml",
    "python -m torch.distributed.run --max-restarts 3 gone.py",
    "accelerate launch --mixed_precision bf16 gone.py",
    "deepspeed --num_gpus 2 gone.py",
]
UNCERTAIN = [
    *("python", "python -", "python -c pass gone.py", "python -m gone", "python -Wignore gone.py", "sh -c gone.sh"),
    *("bash -l gone.sh", "bash --rcfile rc gone.sh", "bash -o pipefail gone.sh", "bash -s gone.sh"),
    "sh script",  # found along PATH
    *("torchrun gone", "torchrun -m gone.py", "torchrun --mod gone.py", "torchrun --no-python gone.py"),
    *("torchrun --later data.py gone.py", "env A=1 python gone.py", "apptainer exec image python gone.py"),
    "wrapped_python gone.py",
]


@pytest.fixture
def launchers(path: str) -> str:
    """Add launchers to PATH that are Python scripts, and wrappers of a site that are not."""
    place = path.split(":")[1]
    for name in ("torchrun", "accelerate", "deepspeed", "apptainer", "wrapped_python"):
        with open(f"{place}/{name}", "w") as file:
            file.write(f"#!{place}/python\n" if name != "wrapped_python" else "#!/bin/sh\n")
        os.chmod(f"{place}/{name}", 0o700)
    for name in ("python", "python3", "python3.11"):
        os.symlink(sys.executable, f"{place}/{name}")
    return path


@pytest.mark.parametrize("words", SCRIPTS)
def test_a_script_that_is_certain_to_be_run_has_to_be_there(
    launchers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Behind an interpreter, or a launcher in Python; relative to the working directory."""
    monkeypatch.chdir(tmp_path)
    failure = refused(words.split(), {"PATH": launchers})
    assert failure.error().exit_code == 127
    assert "gone." in failure.error().seen
    if "/no/such" not in words:
        (tmp_path / "gone.py").touch()
        (tmp_path / "gone.sh").touch()
        assert refused(words.split(), {"PATH": launchers}) is None


def test_where_it_is_not_certain_what_is_run_nothing_is_refused(
    launchers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module, a command line, a directory, an option of a version to come, a site's wrapper, torchrun's variables."""
    monkeypatch.chdir(tmp_path)
    assert [words for words in UNCERTAIN if refused(words.split(), {"PATH": launchers}) is not None] == []
    for name in ("PET_MODULE", "PET_NO_PYTHON"):
        assert refused(["torchrun", "gone.py"], {"PATH": launchers, name: "1"}) is None


def test_what_rank_0_starts_for_all_has_to_be_there_only() -> None:
    """mpirun, where the first node is known."""
    nowhere = {"PATH": "/no/such"}
    assert refused(["mpirun", "true"], nowhere, rank="1") is None
    assert refused(["mpirun", "true"], nowhere) is None
    assert refused(["mpirun", "true"], nowhere, rank="0") is not None


@pytest.mark.parametrize(
    ("words", "kind"), [(["true"], "unwritable"), (["missing"], "command"), ([], None), (["mpirun", "true"], None)]
)
def test_a_directory_that_cannot_be_written_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Sequence[str], kind: str | None
) -> None:
    """It counts only where other nodes can write theirs; who starts for all cannot compare."""
    monkeypatch.chdir(tmp_path)
    executable(tmp_path / "mpirun")
    can = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **how: mode != os.W_OK and can(path, mode, **how))
    failure = refused(words, {"PATH": f"{tmp_path}:/usr/bin:/bin"}, rank="0")
    assert (failure and failure.kind) == kind
    if kind == "unwritable":
        assert failure.parts[1] == f"{tmp_path}: Permission denied"
