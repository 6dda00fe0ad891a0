"""Every nasty value in what stands in a script's body: containers, variables, modules, directories, commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nasty
import pytest

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

# fmt: off
NASTY = (
    *nasty.NASTY, " a", "a ", "a  b", "${HOME}", "a\rb", "-", "--bind=x", "a\\nb", "a #c", "\u2028", "a:b", "%", "@",
    "+", "x" * 4000, "{## c ##}",
)
# Bash has these only once they are used.
OF_BASH = (
    "BASHPID", "BASH_ARGV0", "BASH_COMMAND", "EPOCHSECONDS", "EPOCHREALTIME", "SRANDOM", "RANDOM", "SECONDS", "LINENO",
    "GROUPS", "FUNCNAME", "DIRSTACK", "HISTCMD", "COMP_WORDBREAKS", "PIPESTATUS", "BASH_SUBSHELL", "POSIXLY_CORRECT",
    "BASH_ENV", "ENV", "CDPATH", "HOSTNAME", "LC_ALL", "REPLY", "COPROC", "MAPFILE", "TIMEFORMAT", "OLDPWD", "PWD", "_",
    "TMOUT", "HOSTTYPE",
)
# fmt: on
APPTAINER = """#!/bin/sh
# A stand-in for Apptainer: it writes down its words, and runs what follows the options and the image.
printf '%s\\0' "$@" >"$0.words"
[ "$1" = exec ] || exit 255
shift
while case $1 in --nv | --bind=*) true ;; -*) exit 255 ;; *) false ;; esac do shift; done
shift
exec "$@"
"""
SRUN = """#!/bin/sh
# A stand-in for pyxis, which adds options to srun: it writes down srun's words and runs it without these.
printf '%s\\0' "$@" >"$0.words"
for word; do
  shift
  case $word in --container-image=* | --container-mounts=*) ;; *) set -- "$@" "$word" ;; esac
done
exec {srun} "$@"
"""
# To a file, as srun takes long lines apart.
TELL = (
    "import json, os, sys\n"
    "found = [sys.argv[2:], [os.environ[f'V{n}'] for n in range(len(sys.argv) - 2)], os.getcwd()]\n"
    "json.dump(found, open(sys.argv[1], 'w'))"
)


@pytest.mark.parametrize("image", ["i 'm\" $HOME;é\n.sif", "-x.sif", "reg#a b;$x", "/a b/x.sqsh"])
def test_a_container_and_all_words_arrive_in_a_job_that_ran(slurm: SlurmCluster, tmp_path: Path, image: str) -> None:
    """Image, binds, variables, modules, directory and command are the same on the node as in the description."""
    for name, text in (("apptainer", APPTAINER), ("srun", SRUN.format(srun=shutil.which("srun")))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    place = tmp_path / "-d 'q' \"é\" $(touch pwned);\n"
    place.mkdir()
    (tmp_path / "modules.sh").write_text(f'module() {{ printf "%s\\0" "$2" >>{tmp_path}/modules; }}\n')
    binds = [value for value in NASTY if "," not in value]
    job = describe(
        {
            "container": image,
            "bind": binds,
            "env": [f"V{number}={value}" for number, value in enumerate(NASTY)],
            "module": NASTY,
            "chdir": str(place),
            "setup": [f". {tmp_path}/modules.sh", f"PATH={tmp_path}:{Path(sys.executable).parent}:$PATH"],
            "output": f"{tmp_path}/out",
            "launcher": "plain",
        },
        [sys.executable, "-c", TELL, str(tmp_path / "told"), *NASTY],
    )
    # Modules are loaded after what --setup makes known.
    (tmp_path / "job.sh").write_bytes(os.fsencode(render("slurm", job)))
    given = ["sbatch", "--parsable", "job.sh"]
    done = slurm.controller.run(
        given, user="alice", cwd=tmp_path, env={"BASH_ENV": f"{tmp_path}/modules.sh"}, check=True
    )
    assert slurm.wait(done.stdout.strip()) == "COMPLETED", (tmp_path / "out").read_text()
    assert json.loads((tmp_path / "told").read_text()) == [[*NASTY], [*NASTY], str(place)]
    assert words_of(tmp_path / "modules") == [*NASTY]
    assert not list(tmp_path.rglob("pwned"))
    if image.endswith(".sif"):
        words = words_of(tmp_path / "apptainer.words")
        assert words[: 2 + len(binds)] == [
            "exec",
            *(f"--bind={bind}" for bind in binds),
            f"./{image}" if image[0] == "-" else image,
        ]
    else:
        mounts = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in binds)
        assert {f"--container-image={image}", f"--container-mounts={mounts}"} <= {*words_of(tmp_path / "srun.words")}


def words_of(path: Path) -> list[str]:
    """Return words that a program wrote, each ended by NUL."""
    return [os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("bind", value) for value in ("/a,/b", "", "\x7f")),
        *(("container", value) for value in ("", "\x01")),
        *(("module", value) for value in ("", "\x7f")),
        *(("chdir", value) for value in ("", "\x7f")),
        *(("setup", value) for value in ("", "a\nb", "#SBATCH -n 9", " # x", "\x1b")),
        *(
            ("env", value)
            for value in (
                "A=\x7f",
                "=1",
                "-x=1",
                "é=1",
                "A\nB=1",
                "UID=3",
                "BASHOPTS=x",
                "MINGLE_KEY=x",
            )
        ),
        *(("directive", value) for value in ("", "a\nb", "a\\", "\x1b")),
        *(("signal", value) for value in ("", "KILL", "USR1@x", "USR1\n@3", "USR1@0", "é")),
        *(("for", value) for value in ("", "-x", "jax torch", "jäx", "a\nb", "$x")),
        *(("launcher", value) for value in ("-x", "tor chrun", "torchrun\n", "../x")),
        *(("max-restarts", value) for value in ("-1", "1\n", "१", "1 2", "$x")),
        *(("nodes", value) for value in ("-1", "1\n", "२", "1 2", "$x")),
        *(("time", value) for value in ("-1", "1:2:3:4", "१", "1\n2", "$x")),
        *(("mem", value) for value in ("-1", "१", "1X", "$x")),
    ],
)
def test_a_value_that_no_place_carries_is_refused_by_name(field: str, value: str) -> None:
    """What would be changed on its way, on any scheduler, is an error that names the field."""
    many = field in ("bind", "module", "setup", "env", "directive", "for")
    with pytest.raises(UsageError, match=f"--{field}"):
        render("slurm", describe({"container": "x.sif", field: [value] if many else value}, ["true"]))


def test_a_variable_arrives_or_is_refused(tmp_path: Path) -> None:
    """Each name that bash knows by itself is refused, or has the value that it was given in the training."""
    listed = subprocess.run(["bash", "-c", "compgen -v"], env={}, capture_output=True, text=True, check=True).stdout
    script_ = tmp_path / "job.sh"
    for name in {*listed.split(), *OF_BASH} - {"PATH"}:
        try:
            job = describe({"env": [f"{name}=1x"], "launcher": "plain"}, ["env"])
        except UsageError:
            continue
        # What matters is what bash does to a variable.
        (tmp_path / "mingle").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
        (tmp_path / "mingle").chmod(0o755)
        script_.write_text(render("slurm", job))
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(["bash", script_], env=path, capture_output=True, text=True, check=True)
        assert f"\n{name}=1x\n" in f"\n{done.stdout}", name
