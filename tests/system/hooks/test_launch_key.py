"""What PBS' hook does as root on each host: the job's directory and key, from its first task to its end."""

import fcntl
import os
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.hooks import SITE_KEY, key_of, recorded
from support.needs import only_with
from unit.hooks.test_pbs import LAUNCHES, event_of, python, run

from mingle_hooks.hooks.files import Site

pytestmark = only_with("root", "namespaces")
NOBODY = 65534
ENDS = recorded("openpbs-*/hook.execjob_end.*")


class Place:
    """A /run/mingle and a site's key of this test's own, and one host's hook."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.root, self.state, self.key = root, root / "mingle", root / "key"
        self.key.write_text(SITE_KEY + "\n")
        self.key.chmod(0o400)
        self.site = Site(key_file=str(self.key))

    def run(self, event: dict[str, Any], name: str = "this", at: str = "", **options: Any) -> dict[str, Any]:
        """Run the hook; `at` tells one of several runs at a time from the others."""
        directory = self.root / f"hook{at}"
        directory.mkdir(exist_ok=True)
        options = {"site": self.site, "state": str(self.state), **options}
        return run(directory, event, python=python(name), **options)

    def made(self, path: str) -> tuple[int, int, str]:
        """Return owner, mode and kind of something below the directory."""
        found = (self.state / path).lstat()
        return found.st_uid, stat.S_IMODE(found.st_mode), stat.filemode(found.st_mode)[0]

    def target(self) -> Path:
        """Make a directory with a file that nothing may touch."""
        found = self.root / "target"
        found.mkdir()
        (found / "file").write_text("precious")
        return found

    def bind(self, target: Path) -> None:
        """Mount a directory below the job's."""
        (self.state / "0.ctl" / "bound").mkdir()
        subprocess.run(["mount", "--bind", target, self.state / "0.ctl" / "bound"], check=True)

    def names(self) -> list[str]:
        """Return what is below the directory, but for the lock."""
        return sorted(name for name in os.listdir(self.state) if name != ".lock") if self.state.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Give a host's, and unmount afterwards what is there."""
    yield Place(tmp_path)
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((point for point in points if point.startswith(f"{tmp_path}/")), reverse=True):
        subprocess.run(["umount", "-l", point], check=True)


def launch(number: int = 0, **job: Any) -> dict[str, Any]:
    """Return a recorded task of a job of nobody's, who is a user on this machine."""
    event = event_of([path for path in LAUNCHES if ".0.ctl." in path.name][number])
    event["job"] |= {"euser": "nobody", **job}
    return event


def end(**job: Any) -> dict[str, Any]:
    """Return the recorded end of that job."""
    event = event_of(ENDS[0])
    event["job"] |= {"euser": "nobody", **job}
    return {**event, "type": "execjob_end"}


@pytest.mark.parametrize("name", ["python2.7", "python3.6", "this"])
@pytest.mark.parametrize("path", [LAUNCHES[0], LAUNCHES[5], LAUNCHES[-1]], ids=lambda path: path.name)
def test_every_host_makes_the_same_key_and_hands_it_to_the_jobs_user(place: Place, path: Path, name: str) -> None:
    """The key derives from cluster, job, user and restarts as in other schedulers' hooks, on every host."""
    event = event_of(path)
    event["job"]["euser"] = "nobody"
    job, restarts = event["job"]["id"], event["job"]["run_count"] - 1
    found = place.run(event, name)
    assert (bool(found["added"]), found["log"]) == (True, ["mingle: result=made key=yes bounded=yes"])
    made = [place.made(path) for path in (".", job, f"{job}/key")]
    assert made == [(0, 0o755, "d"), (NOBODY, 0o700, "d"), (NOBODY, 0o400, "-")]
    assert (place.state / job / "key").read_text() == key_of(job, str(NOBODY), str(restarts), cluster="") + "\n"
    assert place.names() == [job, f"{job}.stamp"]


@pytest.mark.parametrize("what", ["the next task", "a rerun", "another job"])
def test_the_next_task_keeps_what_is_there_and_a_rerun_or_another_job_does_not(place: Place, what: str) -> None:
    """This holds where a job's end was lost; a new server may give another job the same id."""
    place.run(launch())
    (place.state / "0.ctl" / "answer").touch()
    event, restarts, is_kept = launch(1), "0", what == "the next task"
    if what == "a rerun":
        event["job"]["run_count"], restarts = 2, "1"
    elif what == "another job":
        event["env"]["PBS_JOBCOOKIE"] = "0" * 32
    found = place.run(event)
    assert (found["log"] == [], bool(found["added"])) == (is_kept, True)
    assert sorted(os.listdir(place.state / "0.ctl")) == [*(["answer"] if is_kept else []), "key"]
    assert (place.state / "0.ctl" / "key").read_text() == key_of("0.ctl", str(NOBODY), restarts, cluster="") + "\n"


def test_the_directory_that_the_prologue_made_gets_a_key(place: Place) -> None:
    """On the first host the prologue makes an empty directory before the job script."""
    (place.state / "0.ctl").mkdir(parents=True, mode=0o700)
    os.chown(place.state / "0.ctl", NOBODY, -1)
    place.run(launch())
    assert place.made("0.ctl/key") == (NOBODY, 0o400, "-")
    assert place.names() == ["0.ctl", "0.ctl.stamp"]


def test_tasks_that_start_at_once_make_one_key(place: Place) -> None:
    """Eight hooks on one host: one makes it, and nothing is left over."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: place.run(launch(number % 4), at=str(number)), range(8)))
    assert sorted(note for each in found for note in each["log"]) == ["mingle: result=made key=yes bounded=yes"]
    assert all(each["added"] for each in found)
    assert place.names() == ["0.ctl", "0.ctl.stamp"]


def test_where_it_shall_not_act_it_makes_nothing(place: Place) -> None:
    """Kill switch and observing; MINGLE_HOOKS=off of a user is for the variables, as all tasks need the same key.

    A site without a key has no line in the log, as for every task that would be too many.
    """
    switch, event = place.root / "disabled", launch()
    switch.touch()
    assert place.run(launch(), switch=str(switch))["added"] == {}
    place.run(launch(), site=Site(key_file=str(place.key), observe=True))
    found = place.run(launch(), site=Site(key_file=f"{place.root}/none"))
    assert (found["log"], bool(found["added"]), place.names()) == ([], True, [])
    event["env"]["MINGLE_HOOKS"] = "off"
    assert place.run(event)["added"] == {}
    assert place.names() == ["0.ctl", "0.ctl.stamp"]


# What is in the place of the site's key, as shell.
SPOILT_KEYS = (
    *("chmod 0644 key", "chown 12345 key", "mv key real; ln -s real key", "rm key; mkfifo -m 0600 key"),
    *(f"printf {text} >key" for text in ("short", "G" * 64, "0" * 65, "'\\000%.0s' $(seq 64)")),
)


@pytest.mark.parametrize("how", SPOILT_KEYS)
def test_a_site_key_that_is_none_costs_the_key_and_nothing_else(place: Place, how: str) -> None:
    """One line in the job's log; the variables are there."""
    subprocess.run(["sh", "-ec", how], cwd=place.root, check=True)
    found = place.run(launch())
    assert (bool(found["added"]), ["no key" in line for line in found["log"]], place.names()) == (True, [True], [])


GARBAGE: tuple[dict[str, Any], ...] = (
    *({"euser": "$(id)"}, {"euser": None}, {"run_count": "x"}),
    *({"id": job} for job in ("1.../x", "1..x", "..", "0.ctl/..", "", None, "*")),
)


@pytest.mark.parametrize("name", ["python2.7", "this"])
def test_a_job_of_garbage_makes_and_removes_nothing(place: Place, name: str) -> None:
    """Nothing outside of the directory either; the kill switch stops what adds, and not the end of a job."""
    place.run(launch())
    before = sorted(path.name for path in place.root.iterdir())
    for job in GARBAGE:
        place.run(launch(**{"id": "1.ctl", **job}), name)
        if "id" in job:
            place.run(end(**job), name)
    assert place.names() == ["0.ctl", "0.ctl.stamp"]
    assert sorted(path.name for path in place.root.iterdir()) == before
    (place.root / "disabled").touch()
    place.run(end(), switch=str(place.root / "disabled"))
    assert place.names() == []


# What is where root writes, as shell.
LINKS = (
    *("ln -s target mingle", "mkdir -m 0777 mingle", "mkdir -m 0755 mingle; ln -s ../target mingle/0.ctl"),
    *(f"mkdir -m 0755 mingle; ln -s ../target/file mingle/{name}" for name in ("0.ctl.stamp", ".lock")),
)


@pytest.mark.parametrize("how", LINKS)
def test_links_lead_nowhere(place: Place, how: str) -> None:
    """Where root writes, a link or a directory of others is refused or replaced, never followed."""
    target = place.target()
    subprocess.run(["sh", "-ec", how], cwd=place.root, check=True)
    assert place.run(launch())["added"]
    assert [(path.name, path.read_text(), path.stat().st_uid) for path in target.iterdir()] == [("file", "precious", 0)]
    if how.endswith("/0.ctl"):
        assert place.made("0.ctl/key") == (NOBODY, 0o400, "-")


def test_a_lock_that_is_held_for_ever_costs_the_key_and_nothing_else(place: Place) -> None:
    """Whatever hangs is in a process that is ended, and the job goes on."""
    place.state.mkdir(mode=0o755)
    with open(place.state / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = place.run(launch())
    said = ["mingle: no key: it took more than 4 s"]
    assert (bool(found["added"]), found["log"], place.names()) == (True, said, [])


@pytest.mark.parametrize("name", ["python2.7", "python3.6", "this"])
def test_the_end_of_the_job_removes_it_all_and_follows_no_link(place: Place, name: str) -> None:
    """It removes what the user and an earlier hook left, twice as once, and leaves other jobs alone."""
    target = place.target()
    place.run(launch())
    place.run(launch(id="1.ctl"))
    assert (place.state / "0.ctl").is_mount()
    (place.state / "0.ctl" / "deep" / "er").mkdir(parents=True)
    (place.state / "0.ctl" / "deep" / "link").symlink_to(target)
    (place.state / "0.ctl" / "hard").symlink_to(target / "file")
    place.bind(target)
    (place.state / ".old.9.ctl.5").mkdir()
    for _ in range(2):
        assert place.run(end(), name)["log"] == []
        assert place.names() == ["1.ctl", "1.ctl.stamp"]
    assert (target / "file").read_text() == "precious"


def test_nothing_is_removed_through_a_mount(place: Place) -> None:
    """Where the directory could have no file system of its own, what is mounted below it keeps all of it."""
    target = place.target()
    place.run(launch())
    subprocess.run(["umount", place.state / "0.ctl"], check=True)
    place.bind(target)
    for job in ("0.ctl", "1.ctl"):
        place.run(end(id=job))
        assert (target / "file").read_text() == "precious"
        assert [name[:11] for name in place.names()] == [".old.0.ctl."]
    subprocess.run(["umount", place.state / place.names()[0] / "bound"], check=True)
    place.run(end())
    assert place.names() == []
