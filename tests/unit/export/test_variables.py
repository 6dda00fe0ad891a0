"""What is exported, whose value it is, and what an earlier mingle left behind."""

import pytest

from mingle_hooks.errors import UsageError
from mingle_hooks.export.frameworks import FRAMEWORKS, Framework
from mingle_hooks.export.variables import KNOWN, Variable, earlier, explain, files, leftovers, own, stale, variables
from mingle_hooks.view import Assignment, Member, View, World

WORLD = World("job7", 2, 6, "10.0.0.1", 29_500, "0123456789abcdef")
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


def named(found: tuple[Variable, ...], name: str) -> Variable:
    """Return the one of this name."""
    return next(variable for variable in found if variable.name == name)


def test_the_contract_is_exported_in_order() -> None:
    """Node scope has nothing of the task; in task scope RANK, LOCAL_RANK and GROUP_RANK come on top."""
    found = values(variables(view(), []))
    assert list(found) == [*NODE_NAMES, *MINGLE_NAMES]
    assert [found[name] for name in NODE_NAMES] == ["10.0.0.1", "29500", "1", "2", "4", "6"]
    assert [found[name] for name in MINGLE_NAMES[:3]] == ["job7", "0123456789abcdef", "2"]
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


def test_the_user_s_value_of_a_framework_wins_and_its_set_is_completed() -> None:
    """A partial set of PET_* would hang, so the rest is there; an empty value counts as none."""
    found = variables(view(environ={"PET_NPROC_PER_NODE": "8", "PET_NNODES": "", "MASTER_PORT": ""}), ["torchrun"])
    assert named(found, "PET_NPROC_PER_NODE")[1:3] == ("8", "the environment")
    assert named(found, "PET_NPROC_PER_NODE").lost.startswith("4 for torchrun")
    assert sum(variable.name.startswith("PET_") for variable in found) == 7
    assert (named(found, "PET_NNODES").value, named(found, "MASTER_PORT").value) == ("2", "29500")


def test_the_world_s_value_is_distinguished_from_the_user_s() -> None:
    """Explain says whose each is, and what lost."""
    found = variables(view(environ={"MASTER_PORT": "29500", "WORLD_SIZE": "1\n2"}), [])
    assert named(found, "MASTER_PORT") == Variable("MASTER_PORT", "29500", "the environment")
    assert named(found, "NODE_RANK") == Variable("NODE_RANK", "1", "the world")
    assert named(found, "WORLD_SIZE").lost == "1\\n2 in the environment: all members share one world"


USERS = {"PATH": "/bin", "MASTER_ADDR": "10.0.0.1", "PET_NPROC_PER_NODE": "8"}


@pytest.mark.parametrize("user", [USERS, {"MINGLE_ID": "job7"}, {"MINGLE_ID": "job7", "MASTER_ADDR": "10.0.0.1"}])
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


@pytest.mark.parametrize("listed", ["PATH LD_PRELOAD HOME", "PATH;touch", "$(touch ran)", "x " * 500_000, "\n\t"])
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


def test_files_are_written_once_and_their_paths_exported() -> None:
    """DeepSpeed and mpi share one hostfile."""
    seats = (Member(0, "n1", "10.0.0.1", 2), Member(1, "n2", "10.0.0.2", 4))
    seen = View(WORLD._replace(roster=seats), PLACE, "node", {"HYDRA_HOST_FILE": "/my/hosts"})
    wanted = files(seen, ["deepspeed", "mpi"])
    assert [file.name for file in wanted] == ["hostfile", "machinefile"]
    paths = {file.name: f"/run/{file.name}" for file in wanted}
    found = values(variables(seen, ["deepspeed", "mpi"], paths))
    assert found["MINGLE_HOSTFILE"] == "/run/hostfile"
    assert found["MINGLE_MACHINEFILE"] == found["I_MPI_HYDRA_HOST_FILE"] == "/run/machinefile"
    assert found["HYDRA_HOST_FILE"] == "/my/hosts"


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
