"""What is exported, whose value it is, and what every shell makes of it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.nasty import NASTY
from support.needs import need

from mingle_hooks.errors import UsageError
from mingle_hooks.export import variables as shells
from mingle_hooks.export.frameworks import FRAMEWORKS, Framework
from mingle_hooks.export.variables import KNOWN, Variable, earlier, explain, leftovers, own, stale, variables
from mingle_hooks.rendezvous.messages import Assignment, View, World

WORLD = World("job 7", 2, 6, "10.0.0.1", 29_500, "0123456789abcdef")
PLACE = Assignment(1, 4, 2, "10.0.0.2", "ib0")
TASK = PLACE._replace(local_rank=3, rank=5)
BATCH = Assignment(None, 4, None, local_rank=0)
NODE_NAMES = ["MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "LOCAL_WORLD_SIZE", "WORLD_SIZE"]
MINGLE_NAMES = ["MINGLE_ID", "MINGLE_WORLD", "MINGLE_RANK_OFFSET", "MINGLE_EXPORTS"]
SHARED = {"MASTER_ADDR", "MASTER_PORT", "NNODES", "LOCAL_WORLD_SIZE", "WORLD_SIZE"}


def view(place: Assignment = PLACE, scope: str = "node", environ: dict[str, str] | None = None) -> View:
    """Return a member's view, with the user's part of an environment."""
    return View(WORLD, place, scope, own(environ or {}))


def values(found: tuple[Variable, ...]) -> dict[str, str]:
    """Return name -> value."""
    return {variable.name: variable.value for variable in found}


def test_the_contract_is_exported_in_order() -> None:
    """Node scope has nothing of the task; in task scope RANK, LOCAL_RANK and GROUP_RANK come on top."""
    found = values(variables(view(), []))
    assert list(found) == [*NODE_NAMES, *MINGLE_NAMES]
    assert [found[name] for name in NODE_NAMES] == ["10.0.0.1", "29500", "1", "2", "4", "6"]
    assert [found[name] for name in MINGLE_NAMES[:3]] == ["job 7", "0123456789abcdef", "2"]
    found = values(variables(view(TASK, "task"), []))
    assert list(found) == [*NODE_NAMES, "RANK", "LOCAL_RANK", "GROUP_RANK", *MINGLE_NAMES]
    assert (found["RANK"], found["LOCAL_RANK"], found["GROUP_RANK"]) == ("5", "3", "1")


def test_what_is_not_known_is_not_exported() -> None:
    """The batch script of a job with several nodes gets no NODE_RANK and no half of a framework.

    torchrun and accelerate would train alone there, so they get ranks that they refuse, and print. Nor is an interface
    named: srun would hand this node's name for it to all. LOCAL_RANK is the same in all tasks where a node has one.
    """
    frameworks = ["torchrun", "torchrun-elastic", "jax", "xgboost", "nccl", "gloo", "accelerate"]
    found = values(variables(view(BATCH), frameworks))
    known = {*SHARED, *MINGLE_NAMES, "LOCAL_RANK"} - {"MINGLE_RANK_OFFSET"}
    assert set(found) == {*known, "PET_NODE_RANK", "MV2_COMM_WORLD_RANK"}
    assert "mingle run torchrun" in found["PET_NODE_RANK"]
    assert "mingle run accelerate" in found["MV2_COMM_WORLD_RANK"]


def test_mingle_exports_lists_all_that_was_not_the_user_s() -> None:
    """A value of the user's is not listed, even when it is the world's too."""
    environ = {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "99", "PET_NPROC_PER_NODE": "2"}
    found = values(variables(view(environ=environ), ["torchrun"]))
    listed = found["MINGLE_EXPORTS"].split()
    assert set(listed) == found.keys() - {"MASTER_ADDR", "PET_NPROC_PER_NODE"}


def test_whose_each_value_is_is_known_and_a_partial_set_is_completed() -> None:
    """A partial set of PET_* would hang, so the rest is there; an empty value counts as none."""
    user = {"PET_NPROC_PER_NODE": "8", "PET_NNODES": "", "MASTER_PORT": "", "NNODES": "2", "WORLD_SIZE": "1\n2"}
    found = {variable.name: variable for variable in variables(view(environ=user), ["torchrun"])}
    assert found["PET_NPROC_PER_NODE"][1:3] == ("8", "the environment")
    assert found["PET_NPROC_PER_NODE"].lost.startswith("4 for torchrun")
    assert sum(name.startswith("PET_") for name in found) == 7
    assert (found["PET_NNODES"].value, found["MASTER_PORT"].value) == ("2", "29500")
    assert found["NNODES"] == Variable("NNODES", "2", "the environment")
    assert found["NODE_RANK"] == Variable("NODE_RANK", "1", "the world")
    assert found["WORLD_SIZE"].lost == "1\\n2 in the environment: all members share one world"


USERS = {"PATH": "/bin", "MASTER_ADDR": "10.0.0.1", "PET_NPROC_PER_NODE": "8"}


@pytest.mark.parametrize("user", [USERS, {"MINGLE_ID": "job 7"}, {"MINGLE_ID": "job 7", "MASTER_ADDR": "10.0.0.1"}])
def test_a_later_mingle_sees_the_user_s_environment_again(user: dict[str, str]) -> None:
    """What one mingle exports, the next takes out, and nothing else; MINGLE_ID alone is a setting and no mark."""
    after = user | values(variables(view(TASK, "task", user), ["torchrun", "nccl", "gloo"]))
    assert own(after) == own(user) == user


MARKED = {"MINGLE_ID": "a", "MINGLE_EXPORTS": "MINGLE_ID MASTER_ADDR MASTER_ADDR=node1"}
ALL = {name: "x" for name in KNOWN if name != "MINGLE_EXPORTS"}


@pytest.mark.parametrize(
    ("environ", "user"),
    [
        ({**MARKED, "MASTER_ADDR": "mine"}, {"MASTER_ADDR": "mine"}),
        ({**MARKED, "MASTER_ADDR": "node1"}, {}),
        ({"MINGLE_ID": "a", "MINGLE_WORLD": "0", "MINGLE_RANK_OFFSET": "0", "MINGLE_EXPORTS": "MINGLE_ID"}, {}),
        ({**ALL, "PATH": "/bin"}, {"PATH": "/bin"}),
    ],
    ids=["changed", "unchanged", "marks", "no list"],
)
def test_what_is_the_user_s_follows_from_mingle_exports(environ: dict[str, str], user: dict[str, str]) -> None:
    """A hook lists each name with its value too; marks are never the user's; without a list all names are mingle's."""
    assert own(environ) == user
    assert earlier({"MINGLE_ID": "a", "MINGLE_EXPORTS": "MINGLE_ID MASTER_ADDR"}) == ("MINGLE_ID", "MINGLE_EXPORTS")


@pytest.mark.parametrize("listed", ["PATH LD_PRELOAD HOME", "PATH;touch", "$(touch ran)", "x " * 60_000, "\n\t"])
def test_a_hostile_mingle_exports_cannot_name_what_mingle_does_not_know(listed: str) -> None:
    """PATH stays whatever stands in MINGLE_EXPORTS."""
    environ = {"MINGLE_ID": "a", "MINGLE_EXPORTS": listed, "PATH": "/bin", "LD_PRELOAD": "x", "HOME": "/"}
    assert earlier(environ) == stale(environ, []) == ("MINGLE_EXPORTS",)
    assert not {"PATH", "LD_PRELOAD", "HOME"} & set(leftovers(environ))


def test_stale_is_what_this_mingle_does_not_export_any_more() -> None:
    """A task's ranks go when node scope follows, and the old framework's variables too; the user's RANK stays."""
    before = values(variables(view(TASK, "task"), ["torchrun"]))
    now = values(variables(view(BATCH._replace(local_rank=None), environ=before), []))
    gone = set(stale(before, now))
    assert {"NODE_RANK", "RANK", "LOCAL_RANK", "GROUP_RANK", "PET_NNODES", "MINGLE_RANK_OFFSET"} <= gone
    assert not gone & now.keys()
    assert stale({"RANK": "3"}, ["MASTER_ADDR"]) == ()


def test_a_failure_unsets_the_world_and_an_earlier_one_but_nothing_of_the_user_s() -> None:
    """Both what this mingle would have set and what the last one did; `export RANK=` is nobody's rank."""
    left = {"MINGLE_ID": "a", "MINGLE_EXPORTS": "PET_NNODES RANK MINGLE_ID", "PET_NNODES": "2", "MASTER_ADDR": "mine"}
    gone = {"PET_NNODES", "MASTER_PORT", "NODE_RANK", "RANK", "MINGLE_ID", "MINGLE_EXPORTS"}
    assert gone <= set(leftovers(left)) <= set(KNOWN) - {"MASTER_ADDR"}
    gone = {"MASTER_ADDR", "RANK"}
    assert gone <= set(leftovers({"MASTER_ADDR": "", "RANK": "", "NODE_RANK": "1"})) <= set(KNOWN) - {"NODE_RANK"}


def test_frameworks_that_contradict_each_other_are_refused_and_repeated_ones_exported_once() -> None:
    """Static and elastic cannot both be meant."""
    assert variables(view(), ["nccl", "nccl"]) == variables(view(), ["nccl"])
    with pytest.raises(UsageError, match="PET_RDZV_BACKEND"):
        variables(view(), ["torchrun", "torchrun-elastic"])


def test_explain_aligns_and_escapes_and_names_the_host_in_each_line() -> None:
    """One line for each variable, with nothing that a terminal would act on, and the story below."""
    found = (
        Variable("A", "1", "the world", "2 of the environment"),
        Variable("LONG_NAME", "\x1b[31m\n" + "x" * 100, "the environment"),
    )
    text = explain("n1", found, {"A": "SLURM_NODEID"}, {}, ["address \x07: taken"])
    assert text.splitlines() == [
        "n1: NAME       VALUE" + " " * 57 + "SOURCE           IGNORED",
        "n1: A          1" + " " * 61 + "SLURM_NODEID     2 of the environment",
        "n1: LONG_NAME  \\x1b[31m\\n" + "x" * 49 + "…  the environment",
        "n1: address \\x07: taken",
    ]


OF_SLURM = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "node[3-4]"}
OF_ENROOT = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node3", "MASTER_PORT": "61000"}


def test_enroots_variables_are_its_own_and_explained() -> None:
    """Port and address only as its hook computes them: from the step's first host and the job's number."""
    user = {**OF_SLURM, "SLURM_JOB_ID": str(3 * 4536)}
    environ = {**user, **OF_ENROOT}
    assert own(environ) == user
    for name, value in (("MASTER_ADDR", "node4"), ("MASTER_PORT", "61001")):
        assert own({**environ, name: value})[name] == value
    lines = {line.split()[1]: line for line in explain("n1", variables(view(), []), {}, environ, []).splitlines()}
    for name in ("MASTER_PORT", "WORLD_SIZE"):
        assert lines[name].endswith(f"{environ[name]} from enroot's PyTorch hook: replaced")
    assert lines["RANK"].split()[2:] == ["unset", "1", "from", "enroot's", "PyTorch", "hook:", "replaced"]


def test_a_framework_sets_only_the_variables_that_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier mingle is recognised by them."""
    monkeypatch.setitem(FRAMEWORKS, "acme", Framework(lambda _view: {"ACME": "1", "OTHER": "2"}, ("ACME",)))
    with pytest.raises(UsageError, match="acme to set only the variables that it declares; saw OTHER"):
        variables(view(), ["acme"])


# Every shell: what a value may be, what the text looks like, and what a real shell makes of it.

GOLDEN = Path(__file__).parent / "golden"
POSIX = (["dash"], ["bash"], ["busybox", "sh"], ["mksh"], ["ksh93"], ["zsh", "-f"])
CSH = (["tcsh", "-f"], ["bsd-csh", "-f"])
FISH = ["fish", "-N"]
OF_SHELLS = ("  a  b ", "!! !a !$ a!", "a\ntouch pwned\n", "* ? [a-z] {a,b} ~ ~root", "^a^b^ %1 @", "", "x" * 3900)
# One shell for each language.
LANGUAGES = [*{row.success: name for name, row in reversed(shells.SHELLS.items())}.values()]
EVERY = {f"MINGLE_{i}": value for i, value in enumerate((*NASTY, *OF_SHELLS))}
# Language, shell, locale, and the script that evaluates the file `text`.
CARRIERS = [
    *(
        ("sh", command, "C.UTF-8", f'{options} v=$(cat text) || exit; eval "$v"; env -0 >seen')
        for command in POSIX
        for options in ("", "set -eu;")
    ),
    *(
        ("csh", command, locale, f"{way}; env -0 > seen; exit $status")
        for command in CSH
        for way in ('eval "`cat text`"', "source text")
        for locale in ("C", "C.UTF-8")
    ),
    *(
        ("fish", FISH, "C.UTF-8", f"{way}; or exit 9; env -0 > seen")
        for way in ("cat text | source", "eval (cat text | string collect)")
    ),
]


@pytest.mark.parametrize(("shell", "command", "locale", "script"), CARRIERS)
def test_every_value_arrives_intact_and_nothing_runs_or_is_printed(
    shell: str, command: list[str], locale: str, script: str, tmp_path: Path
) -> None:
    """In every shell, under every option, though a name to unset was not set; csh has no newlines in values."""
    expected = {name: value for name, value in EVERY.items() if shell != "csh" or "\n" not in value}
    done = run(command, script, shells.success(shell, expected, ["NOT_SET"]), tmp_path, LANG=locale)
    assert_arrived(done, tmp_path, expected)


def real(command: list[str]) -> list[str]:
    """Return the command, or skip loudly where its shell is not installed."""
    need(command[0])
    return command


def run(command: list[str], script: str, text: str, place: Path, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script in a real shell, in a directory where the file `text` holds the text."""
    (place / "text").write_bytes(os.fsencode(text))
    clean = {"PATH": os.environ["PATH"], "HOME": str(place), "XDG_CONFIG_HOME": str(place), **environ}
    argv = [*real(command), "-c", script]
    return subprocess.run(argv, cwd=place, env=clean, capture_output=True, check=False, timeout=60)


def environment(directory: Path) -> dict[str, str]:
    """Return what the shell's child was given."""
    pairs = (directory / "seen").read_bytes().split(b"\0")
    return dict(os.fsdecode(pair).split("=", 1) for pair in pairs if pair)


def assert_arrived(done: subprocess.CompletedProcess[bytes], directory: Path, expected: dict[str, str]) -> None:
    """Check that the values are there, that nothing ran and that nothing was printed."""
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    seen = environment(directory)
    assert {name: seen.get(name) for name in expected} == expected
    assert not (directory / "pwned").exists()


def test_json_carries_every_value_as_ascii_and_null_unsets() -> None:
    """A program that reads the JSON gets every value back."""
    text = shells.success("json", EVERY, ["OLD"])
    assert text.isascii()
    assert text.count("\n") == 1
    assert json.loads(text) == {"OLD": None, **EVERY}


def test_lines_that_programs_read_are_raw() -> None:
    """Slurm takes all after the = up to the newline; all readers of dotenv files agree on bare values."""
    values = {"A": " a 'b' $(c) ", "B": ""}
    assert shells.success("taskprolog", values, ["C"]) == "unset C\nexport A= a 'b' $(c) \nexport B=\n"
    for value in ("10.0.0.1", "", "a b", '{"cluster":{"worker":["a:1"]}}', "is_host=1", "=ib0", "é"):
        assert shells.success("dotenv", {"A": value}) == f"A={value}\n"


DISPUTED = (" a", "a ", "'a", '"a', "`a", "a#b", "$a", "a\\b", "a\nb", "a\tb", "\x1b")


@pytest.mark.parametrize(
    ("shell", "value"),
    [*((shell, "a\nb") for shell in ("csh", "tcsh", "taskprolog")), *(("dotenv", value) for value in DISPUTED)],
)
def test_a_value_that_a_language_cannot_represent_is_refused_by_name(shell: str, value: str) -> None:
    """A newline, or what docker and python-dotenv read differently."""
    with pytest.raises(UsageError, match="MASTER with" + ("" if shell == "dotenv" else "out a newline")):
        shells.success(shell, {"FIRST": "1", "MASTER": value})


@pytest.mark.parametrize("shell", list(shells.SHELLS))
def test_no_shell_prints_a_name_that_is_not_one_or_a_value_that_the_kernel_would_refuse(shell: str) -> None:
    """A name is refused whether it is to be set or unset; a NUL and more than 128 KiB are refused."""
    for name in ("", "1A", "A B", "A=B", "A;touch pwned", "A\n", "Ä", "$(touch pwned)", "-n", "A*"):
        for values, unset in (({name: "1"}, []), ({"A": "1"}, [name])):
            with pytest.raises(UsageError):
                shells.success(shell, values, unset)
        with pytest.raises(UsageError):
            shells.failure(shell, 69, [name])
    with pytest.raises(UsageError, match=r"dash.*powershell"):
        shells.success("powershell", {})
    for value, what in (("a\0b", "NUL"), ("x" * (shells.LONGEST_STRING_BYTES - 2), "bytes")):
        with pytest.raises(UsageError, match=what):
            shells.success(shell, {"A": value})


def test_the_longest_value_that_is_printed_is_the_longest_that_a_program_can_be_given(tmp_path: Path) -> None:
    """The kernel takes one byte less than it refuses."""
    value = "x" * (shells.LONGEST_STRING_BYTES - len("A=") - 1)
    done = run(["bash"], 'eval "$(cat text)"; env -0 >seen', shells.success("sh", {"A": value}), tmp_path)
    assert_arrived(done, tmp_path, {"A": value})
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["true"], env={"A": value + "x"}, check=True)


def test_csh_refuses_a_line_longer_than_its_longest_word(tmp_path: Path) -> None:
    """Many values at the limit arrive; one byte more is refused."""
    value = "é" * ((4000 - len("setenv A_0 '';")) // 2)
    expected = {f"A_{i}": value for i in range(10)}
    with pytest.raises(UsageError, match="4000 bytes"):
        shells.success("csh", {"A_0": value + "x"})
    text = shells.success("csh", expected)
    done = run(["bsd-csh", "-f"], 'eval "`cat text`"; env -0 > seen', text, tmp_path)
    assert_arrived(done, tmp_path, expected)


def language_of(command: list[str]) -> tuple[str, str, str]:
    """Return the language of a real shell, how it evaluates the file `text`, and its last status."""
    shell = {"tcsh": "csh", "bsd-csh": "csh", "fish": "fish"}.get(command[0], "sh")
    way = {"csh": 'eval "`cat text`"', "fish": "cat text | source"}.get(shell, 'eval "$(cat text)"')
    return shell, way, "$?" if shell == "sh" else "$status"


@pytest.mark.parametrize("command", [*POSIX, *CSH, FISH], ids=lambda c: c[0])
@pytest.mark.parametrize("unset", [[], ["MASTER_ADDR", "NOT_SET"]], ids=["nothing to unset", "two to unset"])
def test_a_failure_ends_a_script_or_only_sets_the_status(command: list[str], unset: list[str], tmp_path: Path) -> None:
    """What follows would train alone; what was left is gone. A person's session stays open, with the status."""
    shell, way, status = language_of(command)
    (tmp_path / "setup").write_text(f"{way}\n")
    for line in (way, f"{'.' if shell == 'sh' else 'source'} ./setup"):
        done = run(command, f"{line}; echo went on", shells.failure(shell, 76, unset), tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (76, b"", b""), line
    text = shells.failure(shell, 69, unset, ends=False)
    done = run(command, f"{way}; echo {status}; env", text, tmp_path, MASTER_ADDR="old")
    assert done.stdout.startswith(b"69\n")
    assert (b"\nMASTER_ADDR=old\n" in done.stdout) is not bool(unset)
    assert done.stderr == b""
    is_csh = shell == "csh"  # which is interactive to its scripts where it has a prompt
    script = f"{'set prompt=x; ' if is_csh else ''}{way}; echo {status}"
    done = run(command if is_csh else [*command, "-i"], script, shells.failure(shell, 76, unset), tmp_path)
    assert done.stdout.split(b"\n")[-2:] == [b"76", b""]  # busybox greets before


@pytest.mark.parametrize("command", POSIX, ids=lambda c: c[0])
@pytest.mark.parametrize("errexit", ["", "set -e;"])
def test_a_readonly_variable_fails_loudly_with_no_half_world(command: list[str], errexit: str, tmp_path: Path) -> None:
    """It ends a script, which would train alone; else eval fails or the shell ends. Nothing at all is exported."""
    world, left = {"A": "1", "B": "2", "C": "3"}, ["OLD"]
    for text in (shells.success("sh", world, left), shells.failure("sh", 76, ["B"])):
        done = run(command, f'{errexit} readonly B=mine; eval "$(cat text)"; echo trained alone', text, tmp_path)
        assert (done.returncode != 0, done.stdout, done.stderr != b"") == (True, b"", True)
    text = shells.success("sh", world, left, ends=False)
    done = run(command, f'{errexit} readonly B=mine; eval "$(cat text)" || exit 5; echo on', text, tmp_path)
    assert (done.returncode != 0, done.stdout, done.stderr != b"") == (True, b"", True)
    script = 'readonly B=mine; eval "$(cat text)"; echo "$? ${A-gone} $B ${C-gone}"'
    assert run(command, script, text, tmp_path).stdout in (b"", b"1 gone mine gone\n")


@pytest.mark.parametrize("command", [["bash"], ["ksh93"], ["zsh", "-f"], ["mksh"]], ids=lambda c: c[0])
def test_a_variable_with_an_integer_attribute_is_not_computed(command: list[str], tmp_path: Path) -> None:
    """`typeset -i` would evaluate the value, and so run what stands in it."""
    value = "a[$(touch pwned)0]"
    script = 'typeset -i A=1; eval "$(cat text)"; env -0 >seen'
    assert_arrived(run(command, script, shells.success("sh", {"A": value}), tmp_path), tmp_path, {"A": value})


def test_a_variable_of_a_fish_function_hides_no_world(tmp_path: Path) -> None:
    """In a function, plain `set -x` makes one of its own; the commands there got that, and the world's others."""
    text = shells.success("fish", {"A": "1", "B": "2", "C": "3"})
    done = run(FISH, "function train; set -x B own; cat text | source; env -0 >seen; end; train", text, tmp_path)
    assert_arrived(done, tmp_path, {"A": "1", "B": "2", "C": "3"})


def test_nothing_to_export_prints_nothing() -> None:
    """A bare `export` would list the environment."""
    assert (shells.success("sh", {}), shells.success("sh", {}, ["OLD"])) == (":;\n", "unset OLD;\n")


@pytest.mark.parametrize("command", [["dash"], CSH[0], FISH], ids=lambda c: c[0])
def test_stale_names_are_unset_and_names_that_are_set_again_are_not(command: list[str], tmp_path: Path) -> None:
    """What an earlier mingle exported and this one does not is gone, in every shell."""
    shell, way, _ = language_of(command)
    text = shells.success(shell, {"A": "new"}, ["OLD", "A"])
    assert_arrived(run(command, f"{way}; env -0 > seen", text, tmp_path, OLD="old", A="old"), tmp_path, {"A": "new"})
    assert "OLD" not in environment(tmp_path)
    assert text == shells.success(shell, {"A": "new"}, ["OLD"])  # a reader may keep the first value of a name


def golden(shell: str, what: str) -> str:
    """Return the text that the golden file holds."""
    if what == "failure":
        return shells.failure(shell, 69, ["MASTER_ADDR", "MASTER_PORT"])
    place = TASK if what == "task" else PLACE
    return shells.success(shell, values(variables(view(place, what), ["torchrun", "nccl"])), ["OLD"])


@pytest.mark.parametrize("shell", LANGUAGES)
@pytest.mark.parametrize("what", ["node", "task", "failure"])
def test_the_whole_text_is_as_reviewed(shell: str, what: str) -> None:
    """To the byte; csh joins the lines that it evaluates, so statements end with a semicolon, without comments."""
    assert golden(shell, what) == (GOLDEN / f"{shell}.{what}.txt").read_text()
