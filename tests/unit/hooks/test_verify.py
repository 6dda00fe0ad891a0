"""verify, doctor, simulate, report and rollout."""

import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.hooks_image import MOM, NO_CHAIN, OURS, at, call, conf, image, install, key, program
from support.needs import need, only_with

import mingle_hooks
from mingle_hooks.cli import main
from mingle_hooks.cli.hooks import hooks
from mingle_hooks.errors import PlaceError, UsageError
from mingle_hooks.hooks import files, plan, slurm, verify
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.plan import Finding, Where, hung_finding
from mingle_hooks.hooks.verify import preview_job, why_nothing


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node with all that is wanted: Slurm's hooks and their lines, Torque's, and the key."""
    image(tmp_path)
    conf(tmp_path, *call(tmp_path, "install", "slurm", "--yes").stdout.splitlines()[-4:])
    call(tmp_path, "install", "torque", "--yes")
    key(tmp_path)
    return tmp_path


def quiet(root: Path, scheduler: str = "slurm") -> int:
    """Return the status of the health check."""
    return main.run(["hooks", "verify", scheduler, "--quiet", "--root", str(root)])


def spoil(root: Path, how: str) -> None:
    """Run shell below a root."""
    need(*(["root"] if "chown" in how else []))
    subprocess.run(["sh", "-ec", how], cwd=root, check=True)


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the next version, whose hooks are others."""
    for module in (files, verify, mingle_hooks):
        monkeypatch.setattr(module, "__version__", "9.1")


def test_an_upgrade_is_no_deviation(root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """What the older version installed is as it was: a note, and no node is taken out of service for it."""
    later(monkeypatch)
    done = call(root, "verify", "slurm")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "ok")
    reported = [line for line in done.stdout.splitlines() if "9.1 gives another" in line]
    assert len(reported) == 5
    assert all(line.startswith("note ") and "mingle hooks install slurm" in line for line in reported)
    assert (quiet(root), capfd.readouterr().out) == (0, "")
    monkeypatch.undo()
    at(root, "/etc/mingle/mingle.toml").write_text('host_suffix = "-ib"\n')  # these act when they are installed
    done = call(root, "verify", "slurm")
    assert (done.exit_code, "these settings give another" in done.stdout) == (0, True)


def test_the_kill_switch_is_a_note(root: Path) -> None:
    """The hooks are as they were installed, so the node is healthy, but they do nothing."""
    at(root, "/etc/mingle/disabled").touch()
    done = call(root, "verify", "slurm")
    assert (done.exit_code, done.stdout.count("note /etc/mingle/disabled: is there, so the hooks do nothing")) == (0, 1)


def test_no_node_is_blamed_while_an_installation_is_at_work(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The health check looks again before it says BAD: meanwhile the manifest, or the other hooks, get their names."""
    at(root, f"{OURS}/epilog").unlink()
    monkeypatch.setattr(plan, "AGAIN_S", 1)
    monkeypatch.setattr(time, "sleep", lambda seconds: seconds and install(root))
    assert quiet(root) == 0


def test_a_hook_that_only_the_later_version_has_is_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays a note until the later version is installed; in the installed version its absence is a deviation."""
    tree = json.loads(at(root, "/etc/mingle/hooks/manifest.json").read_text())
    tree["files"] = [row for row in tree["files"] if row["name"] != "epilogue"]
    at(root, "/etc/mingle/hooks/manifest.json").write_text(json.dumps(tree))
    at(root, f"{MOM}/epilogue").unlink()
    assert call(root, "verify", "torque").exit_code == 1
    later(monkeypatch)
    done = call(root, "verify", "torque")
    assert (done.exit_code, f"{MOM}/epilogue:" in done.stdout) == (0, True)


PROLOG, OWN = f"{OURS[1:]}/prolog", f"{MOM[1:]}/prologue.before-mingle"
# What is wrong with a scheduler's hooks, as shell, and what is said of it.
WRONG = [
    ("slurm", f"echo >{PROLOG}", "was edited by hand; fix: mingle hooks install slurm, which keeps"),
    ("slurm", f"chmod 775 {PROLOG}", "has mode 0775"),
    ("slurm", f"chmod 644 {PROLOG}", "has mode 0644"),
    ("slurm", f"rm {PROLOG}", "prolog: is missing"),
    ("slurm", f"chown 1 {PROLOG}", "belongs to uid 1"),
    ("slurm", "chmod 777 etc/mingle/hooks", "/etc/mingle/hooks: can be written by others (mode 0777)"),
    ("slurm", "chown 61001 etc/mingle/hooks", "/etc/mingle/hooks: belongs to uid 61001"),
    ("slurm", "chmod 700 etc/mingle/hooks", "is closed to users (mode 0700), so every task fails"),
    ("slurm", f"ln -sf job {PROLOG}", "is a link"),
    ("slurm", "rm etc/mingle/key", "is missing, so jobs get no key"),
    ("slurm", "cd etc/mingle; mkdir prolog.d; touch $(printf prolog.d/\\351)", "cannot be run, which drains the node"),
    ("slurm", "echo '{' >etc/mingle/hooks/manifest.json", "is missing, or not what mingle hooks wrote"),
    ("slurm", "mkdir -pm 700 run/mingle", "is not a directory of root's with mode 0755"),
    ("torque", f"echo exit 1 >{OWN}", "is not the copy of the site's own"),
    ("torque", f"rm {OWN}", "is missing: the site's own"),
    ("torque", f"chmod 644 {OWN}", "cannot be run, and"),
    ("torque", f"echo exit 1 >{MOM[1:]}/prologue", "is a foreign file"),
]


@pytest.mark.parametrize(("scheduler", "how", "what"), WRONG)
def test_the_health_check_finds_what_verify_finds(
    root: Path, capfd: pytest.CaptureFixture, scheduler: str, how: str, what: str
) -> None:
    """`--quiet` prints nothing on a sound node, and the same findings otherwise."""
    assert (call(root, "verify", scheduler).exit_code, quiet(root, scheduler), capfd.readouterr().out) == (0, 0, "")
    spoil(root, how)
    status, output = quiet(root, scheduler), capfd.readouterr().out
    reported = [" ".join(line.split()) for line in output.splitlines()]
    assert (status, what in " ".join(reported), all("; fix: " in line for line in reported)) == (1, True, True)
    if what == "is a link":  # other commands refuse to go on
        return
    done = call(root, "verify", scheduler)
    bad = {" ".join(line.split()) for line in done.stdout.splitlines() if line.startswith("BAD")}
    assert (done.exit_code, set(reported) - bad) == (1, set())
    if how.endswith(PROLOG):
        assert call(root, "install", scheduler, "--yes").exit_code == quiet(root, scheduler) == 0


def test_a_site_s_own_that_was_changed_on_purpose_is_taken_as_it_is(root: Path) -> None:
    """Installing again takes it, and uninstalling puts it back."""
    path = at(root, f"{MOM}/prologue.before-mingle")
    path.write_text("#!/bin/sh\nexit 1\n")
    assert call(root, "verify", "torque").exit_code == 1
    call(root, "install", "torque", "--yes")
    assert call(root, "verify", "torque").exit_code == 0
    call(root, "uninstall", "torque", "--yes")
    assert at(root, f"{MOM}/prologue").read_text() == "#!/bin/sh\nexit 1\n"


def test_a_health_check_where_nothing_is_installed_fails(root: Path, capfd: pytest.CaptureFixture) -> None:
    """A mistyped health check fails too."""
    assert quiet(root, "pbs") == 1
    assert capfd.readouterr().out.startswith("BAD  pbs: has no hooks installed; fix: mingle hooks install pbs")
    for words in (["verify", "slrum", "--quiet"], ["verify", "--quiet"], ["verify", "slurm", "--quiet", "--rot", "/"]):
        assert main.run(["hooks", *words]) == 64


def test_a_path_that_hangs_is_named(root: Path) -> None:
    """What a process of its own touches and never comes back from; one that is missing, or a FIFO, does not hang."""

    def hangs() -> Iterator[str]:
        yield "/srv/gone"
        time.sleep(600)

    os.mkfifo(at(root, "/etc/mingle/hooks/fifo"))
    program(root, "/etc/mingle/epilog.d/\udce9")
    for seconds in (60, math.inf, math.nan):
        assert hung_finding(str(root), "slurm", seconds, ["/none", "/etc/mingle/hooks/fifo"]) is None
    found = hung_finding(str(root), "slurm", 0.5, hangs())
    assert (found and found.where) == "/srv/gone"


def test_a_slurm_conf_that_was_named_is_looked_at_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lie on a file system that hangs, as the usual ones may."""
    asked = []
    monkeypatch.setattr(plan, "hung_finding", lambda *its: asked.append(its[3][0]))
    program(root, "/srv/slurm.conf", at(root, "/etc/slurm/slurm.conf").read_text())
    for command in ("install slurm --yes", "verify slurm", "doctor", "render slurm", "report slurm"):
        call(root, *command.split(), "--slurm-conf", "/srv/slurm.conf")
    assert asked == ["/srv/slurm.conf"] * 5


def test_a_check_that_hangs_in_the_kernel_holds_no_stream_of_its_caller(root: Path) -> None:
    """Whoever reads what it prints to the end, as ssh and clush do, would wait for the file system."""
    program = (
        "import os, sys, time; from mingle_hooks.hooks import files, plan; "
        "files.look_at = lambda *_: time.sleep(600); os.kill = lambda *_: None; "
        "print(plan.hung_finding(sys.argv[1], 'slurm', 0.2).where)"
    )
    argv = [sys.executable, "-c", program, str(root)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.communicate(timeout=20)[0] == "/etc/mingle/mingle.toml\n"
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_verify_prints_json(root: Path) -> None:
    """What is BAD and what is a note, each with its place and its remedy."""
    assert json.loads(call(root, "verify", "slurm", "--json").stdout)["ok"]
    at(root, "/etc/mingle/key").unlink()
    reported = json.loads(call(root, "verify", "slurm", "--json").stdout)
    assert (reported["ok"], [row["where"] for row in reported["bad"]]) == (False, ["/etc/mingle/key"])
    assert reported["notes"][0].keys() == {"where", "what", "remedy"}


KEY = "ab" * 32


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Give one node with the hooks, its key and settings, and a slurm.conf that does not name them yet."""
    conf(tmp_path, "ClusterName=x")
    program(tmp_path, "/etc/mingle/mingle.toml", NO_CHAIN)
    key(tmp_path, f"{KEY}\n")
    program(tmp_path, "/etc/mingle/taskprolog.d/10-task")
    install(tmp_path)
    return tmp_path


def test_doctor_shows_what_is_wrong_and_how_to_mend_it(node: Path) -> None:
    """Every finding that is no note has its remedy, in one column; after all remedies it is content."""
    done = call(node, "doctor")
    bad = [line for line in done.stdout.splitlines() if line.startswith("BAD")]
    assert (done.exit_code, len(bad)) == (1, 4)
    assert f"does not say Prolog={OURS}/prolog; fix: this line there: Prolog={OURS}/prolog" in bad[0]
    assert all("; fix: " in line for line in bad)
    assert len({line.index("does not say") for line in bad}) == 1
    conf(node, *(line.partition("this line there: ")[2] for line in bad))
    done = call(node, "doctor")
    assert (done.exit_code, "BAD" in done.stdout) == (0, False)


def test_doctor_shows_what_a_job_here_would_get(node: Path) -> None:
    """The hook itself works it out with this site's settings; where it is nothing, the reason is told."""
    settings = node / "etc/mingle/mingle.toml"
    settings.write_text('port_range = "21000-21999"\nhost_suffix = "-ib"\n')
    shown = call(node, "doctor").stdout
    assert {"  export RANK=1", "  export MASTER_PORT=21620"} < {*shown.splitlines()}
    assert "-ib\n" in shown
    assert "  export MINGLE_EXPORTS=MINGLE_ID " in shown
    assert max(map(len, shown.partition("would get:\n")[2].splitlines())) == 80
    for setting, reason in (
        ("observe = true", "hooks.observe"), ('hosts = ["elsewhere"]', "elsewhere"), ('opt_in = "please"', "please"),
        ("", f"{node}/etc/mingle/disabled is there"),
    ):  # fmt: skip
        settings.write_text(f"[hooks]\n{setting}\n")
        if not setting:
            (node / "etc/mingle/disabled").touch()
        lines = call(node, "doctor").stdout.partition("would get:\n")[2].splitlines()
        assert (lines[0], len(lines), reason in lines[1]) == ("  nothing", 2, True)
    for host, suffix in (("-odd", ""), ("", "x"), ("naïve", ""), ("n" * 252, "-ib")):
        site = Site(host_suffix=suffix)
        assert preview_job(site, host) == ()
        assert [reason for reason in why_nothing(site, host) if "not a host name that the hook accepts" in reason]


def report(root: Path) -> str:
    """Return what the node says of itself."""
    done = call(root, "report", "slurm")
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    return done.stdout


def check(*lines: str, nodes: str = "n[1-3]") -> Result:
    """Give these lines to the check."""
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    octets = text.encode(errors="surrogateescape")
    return CliRunner().invoke(hooks, ["rollout", "--check", "--nodes", nodes], input=octets, catch_exceptions=False)


def test_a_report_has_all_that_must_be_the_same(node: Path) -> None:
    """The report is one line, with a fingerprint of the key and never the key."""
    conf(node, f"Prolog={OURS}/prolog")
    text = report(node)
    output = json.loads(text)
    names = ("epilog", "job", "prolog", "taskprolog", "taskprolog-all")
    assert [*output["hooks"]] == [f"{OURS}/{name}" for name in names]
    assert output["chain"] == {"prolog": "none", "epilog": "none", "taskprolog": "none"}
    assert (output["slurm.conf"], output["problems"]) == ({"Prolog": [f"{OURS}/prolog"]}, [])
    assert KEY[:16] not in text
    (node / "etc/mingle/key").chmod(0o600)
    (node / "etc/mingle/key").write_text("cd" * 32)
    assert json.loads(report(node))["key"] not in {output["key"], "unfit"}
    (node / "etc/mingle/key").chmod(0o644)
    assert json.loads(report(node))["key"] == "unfit"


def test_nodes_are_ready_if_all_have_reported_the_same(node: Path) -> None:
    """Whatever clush and pdsh say beside the reports, and also by whole names.

    One that says nothing is not ready, nor one that says something else, in UTF-8 or not, nor one of which clush says
    why.
    """
    one = report(node)
    done = check(f"n1: {one}", f"n2.site: {one}", "n2.site: a warning", f"n3: {one}", "")
    agree = "ok: all reports from n[1-3] agree; you can name the hooks in slurm.conf\n"
    assert (done.exit_code, done.stdout) == (0, agree)
    done = check(f"n1: {one}", "n2: sh: mingle: pas trouv\udce9", "clush: n3: exited with exit code 1", nodes="n[1-4]")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [line.split(": ")[:3] for line in lines] == [
        ["BAD  n2", "no report", "sh"],
        ["BAD  n3", "no report", "exited with exit code 1; fix"],
        ["BAD  n4", "no report; fix", "mingle hooks install slurm --yes there"],
    ]


TASK = "etc/mingle/taskprolog.d/10-task"
DIFFERENCES = [
    (f"echo >{OURS[1:]}/epilog", "epilog was edited by hand"),
    ("rm -r etc/mingle/hooks", "no hooks are installed"),
    (f"rm {OURS[1:]}/epilog; mkdir {OURS[1:]}/epilog", "epilog is unfit"),
    ("chmod 600 etc/mingle/key; printf %064d 0 >etc/mingle/key", "key is "),
    ("rm etc/mingle/key", "key is none"),
    ("sed -i /^prolog/d etc/mingle/mingle.toml", "does not name the site's own prolog"),
    ("mkdir etc/mingle/prolog.d; touch etc/mingle/prolog.d/10-x", "which drains the node"),
    ("chmod 777 etc/mingle", "/etc/mingle can be written by others"),
    ("chmod 700 etc/mingle", "/etc/mingle is closed to users"),
    (f"mkdir etc/mingle/epilog.d; cp {TASK} etc/mingle/epilog.d", "drop-ins /etc/mingle/epilog.d/10-task is "),
    (f"echo exit 1 >>{TASK}", f"drop-ins /{TASK} is "),
    (f"rm {TASK}", f"drop-ins /{TASK} is missing, and "),
    ("echo Prolog=/opt/x >etc/slurm/slurm.conf", "slurm.conf Prolog is"),
    ("touch etc/mingle/disabled", "off is true, and false on 2 others"),
]


@pytest.mark.parametrize(("how", "output"), DIFFERENCES)
def test_a_node_that_differs_is_named(node: Path, how: str, output: str) -> None:
    """The check names the node, what is different there, and the remedy."""
    one = report(node)
    spoil(node, how)
    done = check(f"n1: {one}", f"n2: {report(node)}", f"n3: {one}")
    assert done.exit_code == 1
    assert {line.split(":")[0] for line in done.stdout.splitlines()} == {"BAD  n2"}
    assert output in done.stdout
    assert all("; fix: " in line for line in done.stdout.splitlines())


def test_what_is_wrong_on_all_is_no_reason_to_go_on(node: Path) -> None:
    """The settings say nothing of the site's own, so a node that comes later would lose it; a glob needs no setting."""
    (node / "etc/mingle/mingle.toml").unlink()
    for lines, count in ((("ClusterName=x",), 3), (("Prolog=/etc/slurm/prolog.d/*",), 2)):
        conf(node, *lines)
        one = report(node)
        done = check(*(f"n{number}: {one}" for number in (1, 2, 3)))
        assert (done.exit_code, done.stdout.count("BAD  n[1-3]: /etc/mingle/mingle.toml does not name")) == (1, count)


def test_nodes_come_from_sinfo(node: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """Without an answer of the controller, --nodes must name them; no report at all is an error."""
    monkeypatch.setattr(slurm, "slurm_nodes", lambda _where: ("n1", "n2"))
    line = ["rollout", "--check"]
    done = CliRunner().invoke(hooks, line, input=f"n1: {report(node)}", catch_exceptions=False)
    assert (done.exit_code, "BAD  n2: no report" in done.stdout) == (1, True)
    with pytest.raises(UsageError, match="reports of nodes"):
        CliRunner().invoke(hooks, line, input="[1, 2]\nn1: {}\n", catch_exceptions=False)
    monkeypatch.setattr(slurm, "slurm_nodes", lambda _where: ())
    assert main.run(["hooks", "rollout", "--check", "missing.txt"]) == 64
    assert "saw missing.txt: No such file or directory" in capfd.readouterr().err
    with pytest.raises(UsageError, match="--nodes"):
        CliRunner().invoke(hooks, line, input="", catch_exceptions=False)


def test_rollout_prints_the_order() -> None:
    """The check comes before the lines of slurm.conf."""
    output = CliRunner().invoke(hooks, ["rollout"], catch_exceptions=False).stdout
    assert output.index("rollout --check") < output.index("printed to slurm.conf") < output.index("hooks uninstall")


OWNED = Path("/tmp/mingle-simulate-owned")  # noqa: S108 -- what the hostile text would make
TRIAL = re.compile(r"(\S+) +(\S.*?) +status (\d+) +[0-9.]+ ms")


@functools.cache  # each test looks at another part of it
def trials(scheduler: str) -> dict[tuple[str, str], list[str]]:
    """Simulate a scheduler's hooks; return (hook, environment) -> what it exported or left. Each ends with 0."""
    done = CliRunner().invoke(hooks, ["simulate", scheduler], catch_exceptions=False)
    assert done.exit_code == 0
    found: dict[tuple[str, str], list[str]] = {}
    for line in done.stdout.splitlines():
        match = TRIAL.fullmatch(line)
        if match:
            assert match[3] == "0"
            output = found[match[1], match[2]] = []
        elif line.startswith("    "):
            output.append(line.strip())
    assert f"{len(found)} runs, none failed" in done.stdout
    assert not OWNED.exists()
    return found


def test_every_hook_ends_well_in_every_environment() -> None:
    """Recorded and hostile environments end with status 0; the TaskProlog exports nothing where nothing is known."""
    assert all(len(trials(scheduler)) >= 7 for scheduler in ("slurm", "pbs", "torque"))
    found = trials("slurm")
    assert "export RANK=3" in found["taskprolog", "slurm-22.05-step"]
    assert found["taskprolog", "no variables at all"] == []
    assert found["taskprolog", "hostile numbers"] == []


def test_no_program_of_the_site_s_own_runs_in_a_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "/etc/mingle/prolog.d/10-site", f"#!/bin/sh\n: >{tmp_path}/ran\n")
    render = verify.render_hook
    here = f"{tmp_path}/etc/mingle/"
    monkeypatch.setattr(verify, "render_hook", lambda *a, **b: render(*a, **b).replace("/etc/mingle/", here))
    assert next(verify.simulate("slurm", Site())).status == 0
    assert not (tmp_path / "ran").exists()


@only_with("root")
def test_roots_hooks_show_what_they_make_and_remove() -> None:
    """A job's start makes its directory and its end removes that; a hostile id makes and removes nothing."""
    found = trials("slurm")
    made = {environment: found["prolog", environment] for hook, environment in found if hook == "prolog"}
    assert [line for line in made["slurm-26.05-job"] if re.match("/run/mingle/1 uid [1-9][0-9]* mode 0700", line)]
    assert made["a hostile job id"] == []
    left = [found["epilog", name] for name in ("slurm-26.05-job", "a hostile job id")]
    assert [any(line.startswith("/run/mingle/1 ") for line in lines) for lines in left] == [False, True]


def test_a_hook_that_hangs_or_may_not_be_run_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has the status of timeout(1); /tmp may be mounted with noexec, and then no hook can be tried there."""
    monkeypatch.setattr(verify, "render_hook", lambda *_, **__: "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(verify, "TRIAL_S", 0.1)
    assert next(verify.simulate("slurm", Site())).status == 124
    write = files.write_whole
    monkeypatch.setattr(files, "write_whole", lambda path, data, _mode: write(path, data, 0o644))
    with pytest.raises(PlaceError, match=r"mingle-simulate\.\S*: Permission denied; try another TMPDIR"):
        next(verify.simulate("slurm", Site()))


def test_an_admin_s_own_settings_do_not_count(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook is the same whoever installs it; the site's file says what is in it."""
    plain = call(node, "render", "slurm", "taskprolog").stdout
    program(node, "/.config/mingle/mingle.toml", 'host_suffix = "-mine"\n')
    for name, value in {"HOME": str(node), "MINGLE_PORT_RANGE": "30000-30099", "MINGLE_IFACE": "mine0"}.items():
        monkeypatch.setenv(name, value)
    assert call(node, "render", "slurm", "taskprolog").stdout == plain != ""
    (node / "etc/mingle/mingle.toml").write_text('host_suffix = "-site"\n')
    assert "-site" in call(node, "render", "slurm", "taskprolog").stdout


def test_a_host_suffix_that_does_not_resolve_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install, verify and doctor find it before a job gets an unreachable address; a host without jobs needs none."""
    entries, find = files.read_manifest(str(root)).of("slurm"), verify.suffix_findings
    monkeypatch.setattr(verify.os, "uname", lambda: os.uname_result(("Linux", "local.site", "", "", "")))
    for suffix, where, its, is_found in (
        ("-none", "", entries, True), ("host", "", entries, False), ("", "", entries, False),
        ("-none", str(root), entries, False), ("-none", "", [], False),
    ):  # fmt: skip
        found = [each.where for each in find(Site(host_suffix=suffix), Where(where), its)]
        assert found == ["local-none"] * is_found, (suffix, where)
    monkeypatch.setattr(verify, "suffix_findings", lambda *_: [Finding("n-opa", "does not resolve", "")])
    for words in (("install", "slurm", "--yes"), ("verify", "slurm"), ("doctor",)):
        done = call(root, *words)
        bad = [line.split(":")[0] for line in done.output.splitlines() if "does not resolve" in line]
        assert (done.exit_code, {*bad}) == (1, {"BAD  n-opa"})
