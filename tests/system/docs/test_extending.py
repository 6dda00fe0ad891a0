"""docs/extending.md: each file and line as the page shows it, in a copy of the package, and then used."""

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import DOCS, ROOT

from mingle_hooks.files import toml

PAGE = (DOCS / "extending.md").read_text()
FILES = re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FUNCTIONS = re.findall(r"^In `([\w./-]+)`[^\n]*:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CHANGES = re.findall(r"^In `([\w./-]+)`[^\n]*:\n\n```diff\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OF_PLUGIN = ("mingle_acme/", "pyproject.toml")


class Copy:
    """A copy of the package with all rows of the page, and a plugin beside it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for folder in ("mingle_hooks", "templates"):
            shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for path, text in FILES:
            self.write(path, text)
        for path, change in CHANGES:
            before = "".join(f"{line[1:]}\n" for line in change.splitlines() if not line.startswith("+"))
            after = "".join(f"{line[1:]}\n" for line in change.splitlines())
            table = (place / path).read_text()
            assert table.count(f"\n{before}") == 1, (path, before)
            (place / path).write_text(table.replace(f"\n{before}", f"\n{after}"))
        for path, text in FUNCTIONS:  # above the file's table, or at its end where the table is in another file
            known = (place / path).read_text()
            before = next((f"\n{change.splitlines()[0][1:]}\n" for where, change in CHANGES if where == path), None)
            at = len(known) if before is None else known.index(before) + 1
            (place / path).write_text(f"{known[:at]}\n\n{text}\n\n{known[at:]}")
        for name in ("fleetrun", "acmerun"):
            self.program(name, 'echo "$0" "$@"')
        self.write("home/nodes", "localhost\nelsewhere\n")
        self.installed()
        assert compileall.compile_dir(place / "mingle_hooks", quiet=1)

    def write(self, path: str, text: str) -> Path:
        """Write a file."""
        (self.place / path).parent.mkdir(exist_ok=True)
        (self.place / path).write_text(text)
        return self.place / path

    def program(self, name: str, text: str) -> None:
        """Put a program on PATH."""
        self.write(f"bin/{name}", f"#!/bin/sh\n{text}\n").chmod(0o755)

    def installed(self) -> None:
        """Write what pip would of the plugin's own metadata."""
        project = toml((self.place / "pyproject.toml").read_bytes())["project"]
        info = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        self.write(f"{info}/METADATA", head)
        groups = project["entry-points"].items()
        texts = [f"[{group}]\n" + "".join(f"{n} = {m}\n" for n, m in points.items()) for group, points in groups]
        self.write(f"{info}/entry_points.txt", "".join(texts))

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start its mingle, in an environment that holds nothing else."""
        given = {"PATH": f"{self.place}/bin:{os.environ['PATH']}", "HOME": str(self.place / "home"), **environ}
        command = [sys.executable, "-m", "mingle_hooks", *words]
        return subprocess.Popen(
            command, cwd=self.place, env=given, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def output(self, *words: str, **environ: str) -> str:
        """Return what its mingle says."""
        return ended(self.start(*words, **environ))

    def refused(self, *words: str, **environ: str) -> tuple[int, str]:
        """Return the status and the one line on stderr of its mingle that fails."""
        process = self.start(*words, **environ)
        _, error = process.communicate(timeout=120)
        assert error.count("\n") == 1, error
        return process.returncode, error


def ended(process: subprocess.Popen[str]) -> str:
    """Return what a process said that ends well."""
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out


def met(members: list[subprocess.Popen[str]]) -> list[dict[str, str]]:
    """Return the variables of members that meet; all have ended, whatever became of one."""
    output = [member.communicate(timeout=120) for member in members]
    assert [member.returncode for member in members] == [0] * len(members), output
    return [json.loads(out) for out, _ in output]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Make a copy with all that the page shows; who breaks it mends it."""
    return Copy(tmp_path_factory.mktemp("copy"))


def test_each_kind_of_row_is_one_place_to_edit() -> None:
    """A table with at most one function in its file; a launcher of scripts and a scheduler's directives need none."""
    assert len(CHANGES) == len({path for path, _ in CHANGES}) == 10
    assert len(FUNCTIONS) == 5
    assert all(path.startswith(OF_PLUGIN) for path, _ in FILES)


def test_a_new_schedulers_members_meet_with_a_key_of_their_home(copy: Copy) -> None:
    """Nothing but its variables: id, number and hosts come from the adapter, the key is made in the home."""
    environ = {"COBALT_JOBID": "12", "COBALT_NODEFILE": str(copy.place / "home/nodes")}
    words = ("env", "--shell", "json", "--timeout", "60", "--via", "hosts", "--rank")
    members = [copy.start(*words, str(rank), **environ) for rank in range(2)]
    worlds = met(members)
    assert [(one["MINGLE_ID"], one["NNODES"], one["NODE_RANK"]) for one in worlds] == [("12", "2", r) for r in "01"]
    assert worlds[0]["MINGLE_WORLD"] == worlds[1]["MINGLE_WORLD"]


def test_scripts_for_it_are_made(copy: Copy) -> None:
    """The script has the new scheduler's directives and starts the new launcher."""
    options = "--nodes 2 --time 90 --account physics --launcher paddle -- train.py"
    script = copy.output("template", "cobalt", *options.split())
    assert "\n#COBALT -n 2\n#COBALT -t 90\n#COBALT -A physics\n" in script
    assert "  python3 -m paddle.distributed.launch python3 train.py\n" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "cobalt" in copy.output("template", "list")
    options = "--ntasks-per-node 2 -- fleetrun --log_dir logs train.py"
    typed = copy.output("template", "cobalt", *options.split())
    assert "mingle run --for paddle,nccl,gloo --slots 2 -- \\\n  fleetrun --log_dir logs train.py\n" in typed


def test_its_starter_starts_a_run_on_all_hosts(copy: Copy) -> None:
    """A shell plays the part of ssh, and the environment comes by stdin."""
    copy.program("ssh", 'for line; do :; done\nexec sh -c "$line"')
    job = {"COBALT_JOBID": "12", "COBALT_NODEFILE": str(copy.place / "home/nodes"), "X": "it's"}
    output = copy.output("run", "--timeout", "60", "sh", "-c", 'echo "$COBALT_JOBID $NODE_RANK/$NNODES $X"', **job)
    assert sorted(output.splitlines()) == ["elsewhere: 12 1/2 it's", "localhost: 12 0/2 it's"]


def test_a_new_shell_is_spoken(copy: Copy) -> None:
    """It has text for a world and for a failure, and help and completion know it."""
    assert "\n$env:MINGLE_ID = 'it''s'\n" in copy.output("env", "--id", "it's", "--nodes", "1", "--shell", "pwsh")
    assert "pwsh" in copy.output("env", "--help", "--all")
    assert "pwsh" in copy.output(_MINGLE_COMPLETE="bash_complete", COMP_WORDS="mingle env --shell p", COMP_CWORD="3")
    failed = copy.start("env", "--id", "a", "--nodes", "0", "--shell", "pwsh")
    assert failed.communicate(timeout=120)[0].endswith("\nexit 64\n")


def test_a_new_framework_gets_its_variables(copy: Copy) -> None:
    """What an earlier mingle exported for the framework is replaced."""
    world = json.loads(copy.output("env", "--id", "a", "--nodes", "1", "--shell", "json", "--for", "paddle"))
    assert (world["PADDLE_NNODES"], world["PADDLE_RANK"]) == ("1", "0")
    assert world["PADDLE_MASTER"] == f"{world['MASTER_ADDR']}:{world['MASTER_PORT']}"


def test_a_new_launcher_is_completed(copy: Copy) -> None:
    """Mingle's options come before the user's own words."""
    line = copy.output("exec", "--id", "a", "--nodes", "1", "fleetrun", "train.py", "--lr", "1")
    assert re.fullmatch(r"\S+/fleetrun --master 127\.0\.0\.1:\d+ --nnodes 1 --rank 0 train\.py --lr 1\n", line)


def test_a_new_hook_target_has_all_commands(copy: Copy) -> None:
    """Rendered, planned as its own, installed, verified, tried out, looked at and removed."""
    root = copy.place / "root"
    (root / "opt/moab/etc").mkdir(parents=True)
    below = ("--root", str(root))
    output = copy.output("hooks", "render", "moab", "prologue")
    assert "Made by: mingle hooks render moab prologue" in output
    assert "\n# Moab prologue: runs as root" in output
    assert "/opt/moab/etc/prologue" in copy.output("hooks", "install", "moab", "--yes", *below)
    (root / "etc/mingle/key").write_text("ab" * 32)
    (root / "etc/mingle/key").chmod(0o400)
    assert copy.output("hooks", "verify", "moab", *below) == "ok\n"
    assert "none failed" in copy.output("hooks", "simulate", "moab")
    assert re.search(r"^note moab: +is not on this host$", copy.output("hooks", "doctor", *below), re.MULTILINE)
    assert "/opt/moab/etc/prologue" in copy.output("hooks", "uninstall", "moab", "--yes", *below)
    assert not (root / "opt/moab/etc/prologue").exists()


def test_members_meet_by_a_new_way(copy: Copy) -> None:
    """No other way is used."""
    words = ("env", "--id", "localhost", "--nodes", "2", "--via", "alias", "--shell", "json", "--timeout", "60")
    key = {"MINGLE_KEY": "0123456789abcdef" * 4}
    members = [copy.start(*words, "--iface", "lo", "--rank", str(rank), **key) for rank in range(2)]
    first, second = met(members)
    assert first["MINGLE_WORLD"] == second["MINGLE_WORLD"]


def test_a_plugins_rows_are_used_where_none_of_ours_fits(copy: Copy) -> None:
    """Scheduler, framework and launcher of another package."""
    job = {"ACME_JOB": "j7", "ACME_NODES": "1", "ACME_NODE": "0"}
    world = json.loads(copy.output("env", "--shell", "json", "--for", "acme", **job))
    assert world["MINGLE_ID"] == "j7"
    assert world["ACME_ENDPOINT"] == f"{world['MASTER_ADDR']}:{world['MASTER_PORT']}"
    assert re.search(r"acmerun --endpoint 127\.0\.0\.1:\d+ x\.py\n$", copy.output("exec", "acmerun", "x.py", **job))
    again = json.loads(copy.output("env", "--shell", "json", "--for", "acme", "--id", "b", "--nodes", "1", **world))
    assert again["ACME_ENDPOINT"] == f"{again['MASTER_ADDR']}:{again['MASTER_PORT']}"


def test_a_plugins_job_of_several_nodes_is_not_taken_for_this_node_alone(copy: Copy) -> None:
    """Nothing here can start programs on its other nodes; one node's job needs none of that."""
    job = {"ACME_JOB": "j7", "ACME_NODE": "0"}
    for command in (("run", "true"), ("check",)):
        status, error = copy.refused(*command, **job, ACME_NODES="2")
        assert (status, "a process that acme started" in error, "mingle exec" in error) == (65, True, True)
        copy.output(*command, **job, ACME_NODES="1")


COMPLETED = {"env --for ac": "", "exec --for jax,ac": "jax,", "template slurm --for ac": ""}


def test_a_plugins_framework_is_offered_by_completion(copy: Copy) -> None:
    """It stands beside our own, which help alone names; what cannot be read of other packages is left out."""

    def offered(typed: str) -> str:
        asked = {"COMP_WORDS": f"mingle {typed}", "COMP_CWORD": str(len(typed.split()))}
        return copy.output(_MINGLE_COMPLETE="bash_complete", **asked)

    for typed, before in COMPLETED.items():
        assert f"plain,{before}acme\n" in offered(typed)
    assert "acme" not in copy.output("env", "--help")
    copy.write("mingle_acme-1.0.dist-info/entry_points.txt", "[mingle.frameworks]\nacme")
    assert "plain,accelerate\n" in offered("env --for acc")
    copy.installed()


ALONE = ("--id", "a", "--nodes", "1")
BROKEN = [
    ("scheduler", "import no_such_module\n", ("env",), 65),
    ("framework", "raise KeyError('x')\n", ("env", *ALONE, "--for", "acme"), 64),
    ("launcher", "LAUNCHER = None\n", ("exec", *ALONE, "acmerun"), 64),
]


def test_a_broken_plugin_is_told_in_one_line(copy: Copy) -> None:
    """The line has the package's name, and there is no traceback."""
    for file, text, words, code in BROKEN:
        whole = (copy.place / f"mingle_acme/{file}.py").read_text()
        copy.write(f"mingle_acme/{file}.py", text)
        status, error = copy.refused(*words)
        copy.write(f"mingle_acme/{file}.py", whole)
        assert (status, "mingle-acme" in error, "Traceback" in error) == (code, True, False), error
