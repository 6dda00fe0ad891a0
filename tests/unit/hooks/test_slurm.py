"""slurm.conf, the programs of the site that hooks call, and sites with containers."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.hooks import written
from support.hooks_image import LINES, NO_CHAIN, OURS, aged, at, call, conf, install, program, tree
from support.needs import only_with
from support.recorded import STEP

from mingle_hooks.errors import FactsError
from mingle_hooks.hooks import files, slurm, verify
from mingle_hooks.hooks.files import Site, render_hook as render
from mingle_hooks.hooks.plan import Plan, Where
from mingle_hooks.hooks.slurm import SlurmConf, find_slurm_conf, parse_config
from mingle_hooks.hooks.targets import hook

SITES = '[hooks]\nprolog = "/opt/prolog"\nepilog = "none"\ntaskprolog = "/opt/task"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a new node's image, with a slurm.conf that names ours already and programs of the site's own."""
    for path in ("/opt/prolog", "/opt/task"):
        program(tmp_path, path, f"#!/bin/sh\necho {path}\n")
    program(tmp_path, "/etc/mingle/key", "ab" * 32).chmod(0o400)
    (tmp_path / "etc/slurm").mkdir(parents=True)
    conf(tmp_path, *LINES)
    return tmp_path


# What slurm.conf names, None without one, what the settings say, and what is then expected.
REFUSED = {
    "nothing tells": (LINES, "", r'prolog = "/the/path", or prolog = "none", in \[hooks\] of /etc/mingle'),
    "no slurm.conf": (None, "", r"neither slurm\.conf nor"),
    "another program than here": (["Prolog=/opt/other"], SITES, r'prolog = "/opt/other" in \[hooks\]'),
    "a program, and here none": (["Prolog=/opt/other"], NO_CHAIN, r'prolog = "/opt/other" in \[hooks\]'),
    "ours as the site's own": (LINES, SITES.replace("/opt/prolog", f"{OURS}/prolog"), "site's own"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_new_node_is_not_installed_by_guess(root: Path, how: str) -> None:
    """Where settings, slurm.conf and manifest do not tell what the site has of its own, or contradict each other."""
    lines, settings, what = REFUSED[how]
    program(root, "/etc/mingle/mingle.toml", settings)
    (root / "etc/slurm/slurm.conf").unlink() if lines is None else conf(root, *lines)
    with pytest.raises(FactsError, match=what):
        install(root)
    assert not (root / OURS.lstrip("/")).exists()
    if not settings:
        assert "==> /etc/mingle/hooks/slurm/prolog <==" in call(root, "render", "slurm").stdout
        program(root, "/etc/mingle/mingle.toml", SITES)
        assert install(root).exit_code == 0


@pytest.mark.parametrize("there", [True, False])
def test_a_node_without_the_interfaces_of_the_settings_says_so(monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    """Its tasks lack variables that the other nodes' have; an image is for other hosts, and says nothing."""
    monkeypatch.setattr(slurm, "running_config", lambda _where: SlurmConf(""))
    site = Site(interfaces=("none0", "lo" if there else "none1"))
    notes = "\n".join(slurm.plan_slurm(site, Where(is_preview=True)).notes)
    assert ("This node has no none0 or none1 (iface)" in notes) != there


def test_the_settings_name_the_chain_on_every_node(root: Path) -> None:
    """A new node gets the same hooks as the first, which had slurm.conf to go by; none is none."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    assert install(root).exit_code == 0
    texts = {name: at(root, f"{OURS}/{name}").read_text() for name in ("prolog", "epilog", "taskprolog-all")}
    assert call(root, "verify", "slurm").stdout.splitlines()[-1] == "ok"
    first = root / "first"
    (first / "etc/slurm").mkdir(parents=True)
    conf(first, "Prolog=/opt/prolog", "TaskProlog=/opt/task")
    done = install(first)
    assert {name: at(first, f"{OURS}/{name}").read_text() for name in texts} == texts
    output = [line.partition("on every node: ")[2] for line in done.stderr.splitlines() if "on every node" in line]
    assert "\n".join(["[hooks]", *output, ""]) == SITES


@pytest.mark.parametrize("path", ["opt/prolog", "opt/task", "etc/mingle/epilog.d/50-site"])
def test_verify_finds_a_chain_that_cannot_be_run(root: Path, path: str) -> None:
    """It also finds a program that others can change, and a task's that users cannot run, as does install."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    program(root, "/etc/mingle/epilog.d/50-site")
    install(root)
    for mode, is_bad in ((0o755, False), (0o644, True), (0o777, True), (0o744, path == "opt/task")):
        (root / path).chmod(mode)
        for done in (call(root, "verify", "slurm"), install(root)):
            assert (done.exit_code, done.output.count(f"BAD  /{path}:")) == (is_bad, is_bad), oct(mode)
    (root / path).unlink()
    (root / path).symlink_to("nothing")
    done = call(root, "verify", "slurm")
    assert (done.exit_code, done.stdout.count(f"BAD  /{path}:")) == (1, 1)
    assert "No such file or directory; fix: putting it there, or " in done.stdout


# A directory of the site's programs, its mode and owner, and what is wrong with it.
DIRECTORIES = [
    ("/etc/mingle/epilog.d", 0o700, 0, ""), ("/etc/mingle/epilog.d", 0o775, 0, "others than root"),
    ("/etc/mingle/epilog.d", 0o755, 61001, "others than root"), ("/etc/mingle/taskprolog.d", 0o755, 0, ""),
    ("/etc/mingle/taskprolog.d", 0o711, 0, "is skipped"), ("/etc/slurm/task_prolog.d", 0o750, 0, "is skipped"),
    ("/etc/slurm/task_prolog.d", 0o757, 0, "others than root"),
]  # fmt: skip


@only_with("root")
@pytest.mark.parametrize(("place", "mode", "owner", "what"), DIRECTORIES)
def test_a_directory_that_a_task_cannot_list_or_others_can_change_is_found(
    root: Path, place: str, mode: int, owner: int, what: str
) -> None:
    """A shell's glob skips what it cannot list, without a word."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    program(root, f"{place}/10-site")
    install(root)
    at(root, place).chmod(mode)
    os.chown(at(root, place), owner, -1)
    bad = [line for line in call(root, "verify", "slurm").stdout.splitlines() if line.startswith("BAD")]
    assert [(line.startswith(f"BAD  {place}: "), what in line) for line in bad] == [(True, True)] * bool(what)


def test_taskprolog_d_is_reason_enough_for_the_wrapper(root: Path) -> None:
    """Slurm knows one TaskProlog; the wrapper's file is there on every node, whatever its slurm.conf names."""
    conf(root, "ClusterName=x")
    program(root, "/etc/mingle/mingle.toml", NO_CHAIN)
    assert f"\nTaskProlog={OURS}/taskprolog\n" in install(root).stdout
    assert (root / OURS.lstrip("/") / "taskprolog-all").exists()
    program(root, "/etc/mingle/taskprolog.d/10-site")
    assert f"\nTaskProlog={OURS}/taskprolog-all\n" in install(root).stdout


def test_without_a_known_configuration_nothing_is_removed(root: Path) -> None:
    """A node whose slurm.conf is the controller's affair: what Slurm runs cannot be seen from here."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    install(root)
    (root / "etc/slurm/slurm.conf").unlink()
    with pytest.raises(FactsError, match="--slurm-conf with a copy"):
        call(root, "uninstall", "slurm", "--yes")
    assert (root / OURS.lstrip("/") / "prolog").exists()


def taken_out(root: Path, monkeypatch: pytest.MonkeyPatch, *running: str) -> None:
    """Take ours out of slurm.conf, while Slurm still runs with these lines."""
    install(root)
    conf(root, "ClusterName=x")
    monkeypatch.setattr(slurm, "running_config", lambda _where: parse_config("\n".join(running)))


def fates(root: Path) -> list[str]:
    """Uninstall; return what becomes of each hook that Slurm runs itself."""
    done = call(root, "uninstall", "slurm", "--yes")
    assert done.exit_code == 0
    return [line.split()[0] for line in done.stdout.splitlines() if "/" in line and not line.endswith("/job")]


def test_stubs_run_the_sites_own_until_slurm_runs_none_of_them(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stays while slurmctld names it, and from then on until a slurmd that lags has read slurm.conf too."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    program(root, "/etc/slurm/task_prolog.d/10-site", "#!/bin/sh\necho of a task\n")
    taken_out(root, monkeypatch, f"Prolog = {OURS}/prolog", "Epilog = (null)")
    ours = at(root, f"{OURS}/prolog").read_bytes()
    assert fates(root) == ["stub"] * 4
    assert at(root, f"{OURS}/prolog").read_bytes() != ours
    outputs = {"prolog": b"/opt/prolog\n", "epilog": b"", "taskprolog-all": b"of a task\n/opt/task\n"}
    for name, output in outputs.items():
        text = re.sub("/(opt|etc/slurm)/", rf"{root}/\1/", at(root, f"{OURS}/{name}").read_text())
        assert subprocess.run(["/bin/sh", "-c", text], capture_output=True, check=True).stdout == output
    aged(root)
    assert fates(root) == ["remove", "stub", "remove", "remove"]
    monkeypatch.setattr(slurm, "running_config", lambda _where: SlurmConf(""))
    assert fates(root) == ["wait"]
    aged(root)
    assert fates(root) == ["remove"]
    assert not at(root, "/etc/mingle/hooks").exists()


@pytest.mark.parametrize(
    ("seconds", "boot", "fate"),
    [(50, "", "wait"), (61, "", "remove"), (-(10**6), "another", "remove"), (61, "another", "remove")],
)
def test_stubs_wait_for_a_minute_of_this_boot(
    root: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, boot: str, fate: str
) -> None:
    """The wall clock does not count; another boot ends the wait, as a slurmd that starts reads slurm.conf."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    monkeypatch.setattr(files, "boot_clock", lambda: "boot 10000")  # this machine may have booted a moment ago
    taken_out(root, monkeypatch)
    assert fates(root) == ["stub"] * 4
    before = tree(root)
    assert fates(root) == ["wait"] * 4
    assert tree(root) == before
    aged(root, seconds, boot)
    assert fates(root) == [fate] * 4


def test_a_stub_that_another_node_wrote_waits_too_and_is_not_written_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory that nodes share: there its file's time counts, and what another node has removed is done."""
    program(root, "/etc/mingle/mingle.toml", NO_CHAIN)
    program(root, "/etc/slurm/prolog.d/50-site")
    conf(root, "Prolog=/etc/slurm/prolog.d/*")
    taken_out(root, monkeypatch, "Prolog = /etc/slurm/prolog.d/*")
    assert fates(root) == ["stub"] * 4
    aged(root, boot="another")
    assert sorted(fates(root)) == ["remove"] * 3 + ["wait"]
    stub = at(root, "/etc/slurm/prolog.d/10-mingle")
    os.utime(stub, (0, 0))
    assert [line.split()[0] for line in call(root, "uninstall", "slurm", "--dry-run").stdout.splitlines()] == ["remove"]
    stub.unlink()
    assert fates(root) == ["gone"]
    assert sorted(path.name for path in stub.parent.iterdir()) == ["50-site"]


@pytest.mark.parametrize("others", [True, False])
def test_a_stub_keeps_a_glob_from_matching_nothing(root: Path, monkeypatch: pytest.MonkeyPatch, others: bool) -> None:  # noqa: FBT001
    """An empty glob drains every node; where the site has programs of its own there, the stub goes like all others."""
    program(root, "/etc/mingle/mingle.toml", NO_CHAIN)
    conf(root, "Prolog=/etc/slurm/prolog.d/*")
    taken_out(root, monkeypatch, "Prolog = /etc/slurm/prolog.d/*")
    if others:
        program(root, "/etc/slurm/prolog.d/50-site")
    assert fates(root) == ["stub"] * 4
    aged(root)
    fates(root)
    assert at(root, "/etc/slurm/prolog.d/10-mingle").exists() != others


def test_without_an_answer_of_the_controller_stubs_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Slurm runs is not known then; a power cut between the stubs and the manifest lets them wait anew."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    install(root)
    conf(root, "ClusterName=x")
    before = at(root, "/etc/mingle/hooks/manifest.json").read_text()
    monkeypatch.setattr(slurm, "_has_controller", lambda _where: True)
    assert fates(root) == ["stub"] * 4
    aged(root)
    assert fates(root) == ["stub"] * 4
    at(root, "/etc/mingle/hooks/manifest.json").write_text(before)
    assert fates(root) == ["stub"] * 4
    monkeypatch.setattr(slurm, "running_config", lambda _where: SlurmConf(""))
    assert fates(root) == ["wait"] * 4
    install(root)
    assert fates(root) == ["stub"] * 4


def test_verify_compares_the_file_with_what_slurm_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slurm.conf that Slurm has not read yet, and no slurm.conf at all, where the controller's answer counts."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    install(root)
    older = parse_config(f"Epilog = {OURS}/epilog\nProlog = /opt/old\n")
    monkeypatch.setattr(slurm, "running_config", lambda _where: older)
    bad = [line for line in call(root, "verify", "slurm").stdout.splitlines() if line.startswith("BAD")]
    assert [line.split(":")[1].split()[1] for line in bad] == [f"Prolog={OURS}/prolog,", f"TaskProlog={LINES[2][11:]},"]
    assert all(line.endswith("; fix: scontrol reconfigure") for line in bad)
    (root / "etc/slurm/slurm.conf").unlink()
    text = "\n".join(line.replace("=", "  = ") for line in LINES)
    monkeypatch.setattr(slurm, "running_config", lambda _where: parse_config(text))
    assert call(root, "verify", "slurm").stdout.splitlines()[-1] == "ok"


def test_a_controller_that_hangs_or_fails_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known then. What was typed as --slurm-conf is whose controller is asked, and a version needs none."""
    texts = {
        "scontrol": 'echo "Prolog = $SLURM_CONF"',
        "slurmd": "echo slurm-wlm 22.05.8",
        "sinfo": "echo n2; echo n1; echo n2; exit 1",
    }
    for name, text in texts.items():
        program(tmp_path, name, f"#!/bin/sh\n{text}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    where = Where(slurm_conf="/srv/slurm.conf")
    found = slurm.running_config(where)
    assert (found and found.one("Prolog"), slurm.slurm_version(where), slurm.slurm_nodes(where)) == (
        "/srv/slurm.conf", (22, 5), (),
    )  # fmt: skip
    assert (slurm.running_config(Where("/image")), slurm.slurm_version(Where("/image"))) == (None, None)  # of others
    program(tmp_path, "scontrol", f"#!{sys.executable}\nimport time\ntime.sleep(3)\nprint('Prolog = /late')\n")
    monkeypatch.setattr(slurm, "_COMMAND_S", 0.05)
    assert slurm.running_config(Where(slurm_conf="/srv/another.conf")) is None


@pytest.mark.parametrize(("version", "count"), [((26, 5), 1), ((22, 5), 0), (None, 0)])
def test_a_line_of_ours_that_a_later_slurm_has_not_read_is_found(
    root: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int] | None, count: int
) -> None:
    """It runs the programs of all Prolog lines, and an older Slurm that of the last."""
    (root / "etc/slurm/slurm.conf").write_text(f"Prolog={OURS}/prolog\nProlog=/opt/a\n")
    monkeypatch.setattr(slurm, "running_config", lambda _where: parse_config("Prolog = /opt/a\n"))
    monkeypatch.setattr(slurm, "slurm_version", lambda _where: version)
    none = files.Manifest()
    plan = Plan("slurm", str(root), (), none, none, "/etc/slurm/slurm.conf", ())
    found = [its.what for its in slurm.slurm_findings(plan, Where(str(root)))]
    assert sum("slurmctld runs" in what for what in found) == count


def test_the_controllers_answer_is_parsed() -> None:
    """The answer may have null values, numbered values of one key, and blanks in a value."""
    text = "Configuration data as of x\nEpilog = (null)\nProlog[0] = /a\nProlog[1] = /b\nTaskProlog   = /c d\n"
    found = parse_config(text)
    assert (found.all("Prolog"), found.one("Epilog"), found.one("taskprolog")) == (("/a", "/b"), "", "/c d")


def read_conf(root: Path, text: str, name: str = "slurm.conf") -> SlurmConf:
    """Write slurm.conf, or a file beside it, below root, and return what is read of slurm.conf."""
    (root / "etc/slurm").mkdir(parents=True, exist_ok=True)
    (root / "etc/slurm" / name).write_text(text)
    found = find_slurm_conf(str(root), "/etc/slurm/slurm.conf")
    assert found is not None
    return found


# A text of slurm.conf, a key, and its values: the last one counts. more.conf has another TaskProlog.
CONFS = [
    *((f"Prolog={value}\n", "Prolog", ("/opt/a",)) for value in ("/opt/a", '"/opt/a"', "'/opt/a'", '"/opt/a" # ours')),
    ("TaskProlog=/a\nInclude more.conf\ntaskprolog = /c\n", "TaskProlog", ("/a", "/b", "/c")),
    ("TaskProlog=/c\nInclude more.conf\n", "taskprolog", ("/c", "/b")),
    ("PrologFlags=Alloc,\\\nX11\n", "PrologFlags", ("Alloc,X11",)),
    ("Prolog=/opt/\\ \r\na # c\\\n", "Prolog", ("/opt/a",)),
    ("# Prolog=/opt/a\\\nProlog+=/opt/b\n", "Prolog", ("/opt/b",)),
    ("Prolog=/opt/a\\#b # c\n#Prolog=/opt/c\n", "Prolog", ("/opt/a\\#b",)),
    ("Prolog=/a\nInclude slurm.conf\n", "Prolog", ("/a",) * 9),  # nobody waits for an admin's mistake
]


@pytest.mark.parametrize(("text", "key", "values"), CONFS)
def test_slurm_conf_is_read_as_slurm_reads_it(tmp_path: Path, text: str, key: str, values: tuple[str, ...]) -> None:
    """Quotes are taken off, a backslash joins lines or keeps a # from beginning a comment, and files are included."""
    read_conf(tmp_path, "x=1\n")
    (tmp_path / "etc/slurm/more.conf").write_text("TaskProlog=/b\n")
    found = read_conf(tmp_path, text)
    assert (found.all(key), found.one(key)) == (values, values[-1])


def test_flags_that_imply_alloc_suffice(tmp_path: Path) -> None:
    """Slurm itself then runs the Prolog on all nodes before the first step (slurm.conf(5))."""
    for flags in ("Alloc", "alloc,Serial", "Contain", "X11", "Serial"):
        read_conf(tmp_path, f"PrologFlags={flags}\n")
        line = slurm.plan_slurm(Site(), Where(str(tmp_path))).lines[-1]
        wanted = ("PrologFlags=Serial,Alloc", False) if flags == "Serial" else (f"PrologFlags={flags}", True)
        assert (line.text, line.is_there) == wanted


def test_a_cluster_s_own_file_is_included(tmp_path: Path) -> None:
    """%c is the cluster's name, as far as it has been said; no other % means anything."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/one.conf").write_text("Prolog=/opt/a\n")
    assert read_conf(tmp_path, "ClusterName=one\ninclude %c.conf\n").one("Prolog") == "/opt/a"
    for text in ("include %c.conf\nClusterName=one\n", "ClusterName=one\ninclude %h.conf\n"):
        with pytest.raises(FactsError, match="ClusterName="):
            read_conf(tmp_path, text)


@pytest.mark.parametrize("by", ["environment", "slurmd"])
def test_this_hosts_slurm_conf_counts_here_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """It is named by the environment or by the slurmd that runs; an image is another's. What was typed is first."""
    (tmp_path / "own.conf").write_text("Prolog=/opt/own\n")
    if by == "environment":
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "own.conf"))
    else:
        (tmp_path / "comm").write_text("slurmd\n")
        (tmp_path / "cmdline").write_text(f"/usr/sbin/slurmd\0-D\0-f\0{tmp_path}/own.conf\0")
        (tmp_path / "exe").symlink_to("/usr/sbin/slurmd-wlm")
        monkeypatch.setattr(slurm.glob, "glob", lambda _: [f"{tmp_path}/comm"])
    found = find_slurm_conf("")
    assert (found and found.one("Prolog")) == "/opt/own"
    assert find_slurm_conf(str(tmp_path)) is None
    assert read_conf(tmp_path, "Prolog=/opt/image\n").one("Prolog") == "/opt/image"
    typed = find_slurm_conf("", str(tmp_path / "etc/slurm/slurm.conf"))
    assert (typed and typed.one("Prolog")) == "/opt/image"


@only_with("root")
@pytest.mark.parametrize(("program", "uid"), [("/home/alice/slurmd", 61001), ("/usr/bin/sudo", 0)])
def test_no_user_s_slurmd_tells_what_root_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, uid: int
) -> None:
    """Anybody can start a program of that name with these options, and root's sudo by a link of that name."""
    for process, owner, leads in (("1", uid, program), ("2", 0, "/usr/sbin/slurmd (deleted)")):
        (tmp_path / process).mkdir()
        os.chown(tmp_path / process, owner, -1)
        (tmp_path / process / "comm").write_text("slurmd\n")
        (tmp_path / process / "cmdline").write_text(f"slurmd\0-f\0/opt/{process}.conf\0")
        (tmp_path / process / "exe").symlink_to(leads)
    monkeypatch.setattr(slurm.glob, "glob", lambda _: [f"{tmp_path}/{process}/comm" for process in "21"])
    assert slurm.slurmd_option("", "-f") == "/opt/2.conf"


@pytest.mark.parametrize(
    "spoil", [lambda path: path.chmod(0o646), lambda path: (path.unlink(), os.mkfifo(path))], ids=["open", "a FIFO"]
)
def test_a_slurm_conf_that_anybody_may_write_or_that_would_be_waited_for_is_refused(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    read_conf(tmp_path, "Prolog=/opt/a\n")
    spoil(tmp_path / "etc/slurm/slurm.conf")
    with pytest.raises(FactsError, match=r"expected a regular file that .* saw \S+/slurm.conf"):
        find_slurm_conf(str(tmp_path), "/etc/slurm/slurm.conf")


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ("", "etc/slurm"),
        *((f"--conf-server{server}", "run/slurm/conf") for server in (" ctl:6817", "=ctl", "  ctl")),
        *((f"-D -f{path}", "srv") for path in (" /srv/slurm.conf", "  /srv/slurm.conf", "=/srv/slurm.conf")),
        ("-f /etc/slurm/slurm.conf -D -f/srv/slurm.conf", "srv"),
    ],
)
def test_the_file_is_the_one_that_slurmd_reads(tmp_path: Path, options: str, place: str) -> None:
    """A configless slurmd reads no file of the node's own, though one may lie there still."""
    for directory in ("etc/slurm", "run/slurm/conf", "srv"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "slurm.conf").write_text(f"Prolog=/opt/{directory}\n")
    (tmp_path / "etc/default").mkdir()
    (tmp_path / "etc/default/slurmd").write_text(f'# options\nSLURMD_OPTIONS="{options}"\n')
    found = find_slurm_conf(str(tmp_path))
    assert (found and found.one("Prolog")) == f"/opt/{place}"
    (tmp_path / "run/slurm/conf/slurm.conf").unlink()
    if "conf-server" in options:
        assert find_slurm_conf(str(tmp_path)) is None


MOUNTS, HOOK = "etc/enroot/mounts.d/50-mingle.fstab", "etc/enroot/hooks.d/50-mingle.sh"


@pytest.fixture
def pyxis(tmp_path: Path) -> Path:
    """Give a node image with enroot, and pyxis in a file that plugstack.conf includes."""
    (tmp_path / "etc/slurm/plugstack.conf.d").mkdir(parents=True)
    (tmp_path / "etc/enroot").mkdir()
    program(tmp_path, "/etc/mingle/key", "ab" * 32).chmod(0o400)
    conf(tmp_path, "ClusterName=x")
    (tmp_path / "etc/slurm/plugstack.conf").write_text("include /etc/slurm/plugstack.conf.d/*.conf x # all\n")
    (tmp_path / "etc/slurm/plugstack.conf.d/pyxis.conf").write_text("required /usr/lib/slurm/spank_pyxis.so\n")
    return tmp_path


def settings_of(pyxis: Path, way: str) -> None:
    """Say in the site's settings what is done for containers."""
    program(pyxis, "/etc/mingle/mingle.toml", f'{NO_CHAIN}containers = "{way}"\n')


def test_the_hooks_are_mounted_into_every_container(pyxis: Path) -> None:
    """The mount is read-only, and no container fails for want of the files; uninstalling removes it."""
    assert f"TaskProlog={OURS}/taskprolog" in install(pyxis, "--slurm-version", "23.11").stdout
    text = (pyxis / MOUNTS).read_text()
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [(line[0], line[1], "nofail" in line[3], "bind,ro" in line[3]) for line in lines] == [
        (place, place, True, place == "/etc/mingle") for place in ("/etc/mingle", "/run/mingle")
    ]
    assert not {"$", "`"} & {*text}  # enroot fills in variables
    assert call(pyxis, "uninstall", "slurm", "--yes").exit_code == 0
    assert not (pyxis / MOUNTS).exists()


@pytest.mark.parametrize("version", ["24.11", "26.05.3", None])
def test_a_task_prolog_that_containers_cannot_run_is_refused(pyxis: Path, version: str | None) -> None:
    """From 24.11 on slurmstepd needs its own libraries there; an unknown version is refused too."""
    more = ("--slurm-version", version) if version else ()
    with pytest.raises(FactsError, match=r'containers = "hook" in \[hooks\]'):
        install(pyxis, *more)
    assert not (pyxis / OURS.lstrip("/")).exists()
    assert "==> " in call(pyxis, "render", "slurm", *more).stdout


def test_doctor_warns_that_install_would_refuse(pyxis: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doctor names the choices in a note, as nothing is wrong while nothing is installed."""
    monkeypatch.setattr(verify, "_daemon_version", lambda row: "slurm 26.05" if row.program == "slurmd" else "")
    done = call(pyxis, "doctor", "--slurm-version", "26.05")
    note = "note slurm:        has no hooks installed"
    refuse = "install would refuse: expected a TaskProlog that runs in pyxis' containers, saw Slurm 26.05"
    assert (done.exit_code, f"{note}, and {refuse}" in done.stdout) == (0, True)
    assert '; fix: containers = "hook" in [hooks]' in done.stdout
    settings_of(pyxis, "hook")
    assert f"{note}; fix: mingle hooks install slurm\n" in call(pyxis, "doctor", "--slurm-version", "26.05").stdout


def test_without_enroot_s_configuration_there_is_no_mount(pyxis: Path) -> None:
    """Install refuses both ways that need enroot; without pyxis it needs none."""
    (pyxis / "etc/enroot").rmdir()
    with pytest.raises(FactsError, match="no /etc/enroot"):
        install(pyxis, "--slurm-version", "23.11")
    settings_of(pyxis, "hook")
    with pytest.raises(FactsError, match="enroot's"):
        install(pyxis)
    assert f"==> /{HOOK} <==" in call(pyxis, "render", "slurm").stdout
    settings_of(pyxis, "auto")
    (pyxis / "etc/slurm/plugstack.conf.d/pyxis.conf").write_text("# required spank_pyxis.so\n")
    assert install(pyxis).exit_code == 0


@pytest.mark.parametrize("way", ["hook", "none"])
def test_sites_may_do_without_a_task_prolog(pyxis: Path, way: str) -> None:
    """No line asks for it, verify finds one that is there, and doctor says so before anybody installs."""
    (pyxis / "etc/slurm/slurm.conf").write_text(f"TaskProlog={OURS}/taskprolog\n")
    settings_of(pyxis, way)
    lines = install(pyxis).stdout.splitlines()[-3:]
    assert [line.partition("=")[0] for line in lines] == ["Prolog", "Epilog", "PrologFlags"]
    assert ((pyxis / HOOK).exists(), (pyxis / MOUNTS).exists()) == (way == "hook", False)
    conf(pyxis, *lines)
    assert call(pyxis, "verify", "slurm").exit_code == 0
    conf(pyxis, *lines, f"TaskProlog={OURS}/taskprolog")
    assert "fails every task in a container; fix: no TaskProlog line" in call(pyxis, "verify", "slurm").stdout
    settings_of(pyxis, "auto")
    assert "cannot be checked: saw an unknown version of Slurm" in call(pyxis, "doctor").stdout


@pytest.mark.parametrize(("tasks", "count"), [("1(x2)", "2"), ("2(x2)", "4"), ("2,1", "3")])
def test_enroot_s_hook_hands_on_what_all_tasks_of_a_container_share(tmp_path: Path, tasks: str, count: str) -> None:
    """On a node there is one container for all tasks under pyxis; the image's own variables stay."""
    single, environ_file = written(tmp_path, "slurm", "taskprolog"), tmp_path / "environ"
    text = render(hook("slurm", "enroot-hook"), Site(), place=str(tmp_path))
    counts = {"SLURM_STEP_NUM_TASKS": count, "SLURM_NTASKS": count, "SLURM_STEP_TASKS_PER_NODE": tasks}
    own = {"SLURM_PROCID": "2" if tasks[0] == "2" else "1", "SLURM_NODEID": "1", "ENROOT_ENVIRON": str(environ_file)}
    environ = {**STEP, "SLURM_NNODES": "2", **counts, **own}
    output = subprocess.run([single], env=environ, capture_output=True, text=True, check=True).stdout
    wanted = {line.removeprefix("export ") for line in output.splitlines() if line.startswith("export ")}
    ranks = {line for line in wanted if line.startswith(("RANK=", "WORLD_SIZE=", "LOCAL_", "GROUP_RANK="))}
    assert {"MASTER_ADDR=node1", "NODE_RANK=1", "NNODES=2"} < wanted
    assert ranks or tasks == "1(x2)"
    environ_file.write_text("PATH=/image\n")
    subprocess.run(["/bin/sh", "-c", text], env=environ, check=True)
    shared = wanted - ranks if tasks == "2(x2)" else wanted
    assert {*environ_file.read_text().splitlines()} == {"PATH=/image"} | shared
    for broken in ({}, {**environ, "ENROOT_ENVIRON": f"{tmp_path}/none/x"}, {**environ, "SLURM_JOB_ID": "x y"}):
        subprocess.run(["/bin/sh", "-c", text], env=broken, check=True)
