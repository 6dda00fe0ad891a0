"""Fixtures that every test may ask for: hosts, a real Slurm, and a guard that nothing is left behind."""

import fcntl
import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from cluster import hosts as cluster_hosts, real_pbs as cluster_pbs, slurm as cluster_slurm
from cluster.hosts import Hosts
from cluster.pbs import PbsStandIn
from cluster.real_pbs import RealPbs
from cluster.slurm import SlurmCluster
from forked import Forked
from needs import FOR_WANT_OF, need, skip_for_want_of
from places import Places
from processes import is_long, is_slow, process_of
from running import children

# A machine that is busy for a moment is no defect.
hypothesis.settings.register_profile("mingle", deadline=None)
hypothesis.settings.load_profile("mingle")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have programs that tests start hear what ends them, and no test wait for what counts runs."""
    os.environ.pop("PYTHONUNBUFFERED", None)  # few users have it, and it hides output that stays in a buffer
    _hear_what_ends()
    _count_here(config)


def _hear_what_ends() -> None:
    """Undo what makes this process deaf, as `nohup make test &` does: a handler, unlike SIG_IGN, is not handed on."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


def _count_here(config: pytest.Config) -> None:
    """Have pytest-rerunfailures count no crashes: for each test it asks its server three times, which takes 2 ms.

    A test that fails runs again all the same; one whose process crashes does not.
    """
    database = getattr(config, "failures_db", None)
    if hasattr(config, "workerinput") and hasattr(database, "sock"):
        from pytest_rerunfailures import StatusDB

        config.failures_db = StatusDB()  # type: ignore[attr-defined]
        config.failures_db.sock = database.sock  # stays open for as long as before


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run the tests that would meet each other in one process, and every other test in any."""
    from xdist.scheduler import LoadScopeScheduling  # pytest also runs without it

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return process_of(nodeid)

        def mark_test_complete(self, node: object, item_index: int, duration: float = 0) -> None:
            """Forget what is done, as all that a process was ever given is counted after each of its tests."""
            super().mark_test_complete(node, item_index, duration)
            units, name = self.assigned_work[node], process_of(self.registered_collections[node][item_index])
            if all(units[name].values()):
                del units[name]

    return Scheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer --quick, as `make quick` uses it."""
    parser.addoption("--quick", action="store_true", help="only tests without test hosts and schedulers")


def _fixtures(item: pytest.Item) -> set[str]:
    """Return the names of a test's fixtures; a parameter may be called as one is."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return {*getattr(item, "fixturenames", ())}.difference(parameters)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest; all else stays in its order, which is a random one."""
    if config.getoption("--quick"):
        slow = [item for item in items if is_slow(item.nodeid, _fixtures(item))]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    items.sort(key=lambda item: not is_long(item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let one process import the tests first: it writes what pytest makes of their code, and the others read that.

    What is collected stays to the end: the garbage collector is not to look through it again and again.
    """
    gc.disable()
    with Path(__file__).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[..., Hosts]]:
    """Make sets of hosts, as `Hosts` does: `hosts(4)`, `hosts(16)`, `hosts(4, ipv4=False)`.

    The test's tmp_path is on all of them, for every user to write. The hosts end with the test, and a test
    that leaves a process running on one fails.
    """
    skip_for_want_of(cluster_hosts.missing())
    tmp_path.chmod(0o1777)
    made: list[Hosts] = []
    with ExitStack() as stack:

        def make(count: int = 4, **options: Any) -> Hosts:
            if not options.get("ipv4", True):
                need("IPv6")
            options["share"] = [tmp_path, *options.get("share", ())]
            made.append(stack.enter_context(Hosts(count, **options)))
            return made[-1]

        yield make
        left = [line for its in made for line in its.processes().values()]
    assert not left, f"the test left these running on its hosts: {left}"


def open_base(factory: pytest.TempPathFactory) -> Path:
    """Let every user reach the tests' own directories; return the one that they are in."""
    factory.getbasetemp().chmod(0o755)
    return factory.getbasetemp()


@pytest.fixture(scope="session")
def slurm_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Start one Slurm of four hosts for all tests that ask for `slurm`."""
    skip_for_want_of(cluster_hosts.missing() + cluster_slurm.missing())
    with Hosts(4, share=[open_base(tmp_path_factory)]) as made, SlurmCluster(made) as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_session: SlurmCluster, tmp_path: Path) -> Iterator[SlurmCluster]:
    """Give a Slurm of four idle hosts with four CPUs each, shared by all tests, one after the other.

    After the test its jobs are cancelled, the firewall is open and slurm.conf is the first one again. A test
    that leaves a node drained or down, or a process running, fails. `slurm.hosts` are the hosts.
    """
    tmp_path.chmod(0o1777)
    yield slurm_session
    slurm_session.settle()
    if slurm_session.conf_lines:
        slurm_session.reconfigure()


@pytest.fixture
def fresh_slurm(hosts: Callable[..., Hosts]) -> Iterator[Callable[..., SlurmCluster]]:
    """Start a Slurm of the test's own: `fresh_slurm(count=4, cpus=4, conf_lines=["PrologFlags=Alloc"])`."""
    skip_for_want_of(cluster_slurm.missing())
    made: list[SlurmCluster] = []
    with ExitStack() as stack:

        def make(count: int = 4, **options: Any) -> SlurmCluster:
            made.append(stack.enter_context(SlurmCluster(hosts(count), **options)))
            return made[-1]

        yield make
        for cluster in made:
            cluster.settle()


@pytest.fixture(scope="session")
def real_pbs_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPbs]:
    """Start one OpenPBS of four hosts for all tests that ask for `real_pbs`."""
    skip_for_want_of(cluster_pbs.missing() + cluster_hosts.missing())
    place = open_base(tmp_path_factory)
    with Hosts(4, share=[place]) as made, RealPbs(made, place) as cluster:
        yield cluster


@pytest.fixture
def real_pbs(real_pbs_session: RealPbs, tmp_path: Path) -> Iterator[RealPbs]:
    """Give an OpenPBS of four free hosts with four CPUs each, shared by all tests, one after the other.

    After the test its jobs are deleted. A test that leaves a host other than free, or a process running, fails.
    """
    tmp_path.chmod(0o1777)
    real_pbs_session.place = tmp_path
    yield real_pbs_session
    unwell = real_pbs_session.unwell()
    real_pbs_session.settle()
    assert not unwell, f"the test left these nodes unwell: {unwell}\n{real_pbs_session.logs()}"
    left = real_pbs_session.strays()
    assert not left, f"the test left these running on its hosts: {left}"


@pytest.fixture(scope="session", params=["stand-in", "real"])
def real_or_none(request: pytest.FixtureRequest) -> RealPbs | None:
    """Start the real PBS before the guard looks at what each test leaves behind."""
    found: RealPbs | None = request.getfixturevalue("real_pbs_session") if request.param == "real" else None
    return found


@pytest.fixture
def any_pbs(
    request: pytest.FixtureRequest, real_or_none: RealPbs | None, tmp_path: Path
) -> Iterator[Callable[..., PbsStandIn | RealPbs]]:
    """Start a PBS of so many hosts: `any_pbs(3, slots=2)`, the stand-in and then the real one."""
    with ExitStack() as stack:

        def start(nodes: int, **options: Any) -> PbsStandIn | RealPbs:
            if real_or_none is None:
                made = request.getfixturevalue("hosts")(nodes)
                return stack.enter_context(PbsStandIn(made, tmp_path, nodes, **options))
            cluster: RealPbs = request.getfixturevalue("real_pbs")
            return cluster

        yield start


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """Start the process whose forks run `mingle`: `forked.run("env", "--nodes", "2", env={…})`.

    For many command lines, of which each test asks one; what a start of its own does is tested with processes.
    """
    with Forked(Path(sys.executable)) as started:
        yield started


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """Give hosts on this machine; nothing of theirs may be left."""
    made = Places(tmp_path)
    try:
        yield made
    finally:
        made.close()


def open_sockets() -> dict[str, str]:
    """Return descriptor -> socket of this process."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue  # It was the listing's own descriptor.
        if target.startswith("socket:"):
            found[descriptor] = target
    return found


# A look-up of a host cannot be stopped: its daemon thread is left to end by itself, and closes its socket then. Another
# thread that has no more to do may wait for a processor.
LOOK_UP_S, END_S = 5.0, 1.0


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, a child process or an open socket behind in the test process."""
    if not Path("/proc/self/fd").is_dir():
        yield
        return
    before = set(threading.enumerate()), set(children()), open_sockets().items()
    yield
    processes = {p: n for p, n in children().items() if p not in before[1]}
    ended = time.monotonic()
    while threads := set(threading.enumerate()) - before[0]:
        if time.monotonic() > ended + (LOOK_UP_S if all(thread.daemon for thread in threads) else END_S):
            break
        time.sleep(0.01)
    sockets = dict(open_sockets().items() - before[2])
    assert not threads, f"the test left threads behind: {threads}"
    assert not processes, f"the test left child processes behind: {processes}"
    assert not sockets, f"the test left sockets open: {sockets}"


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the outermost: its block comes last
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Say loudly at the end what was run again, and why, and what could not be tested on this machine."""
    yield
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"RUN AGAIN: {report.nodeid}", sep="!", yellow=True, bold=True)
        terminalreporter.write_line(report.longreprtext)
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _, found, wants = reason.partition(FOR_WANT_OF)
        if found:
            counts[wants] += 1
    if counts:
        terminalreporter.section("NOT EVERYTHING WAS TESTED", sep="!", red=True, bold=True)
        for wants, count in counts.most_common():
            tests = "1 test" if count == 1 else f"{count} tests"
            terminalreporter.write_line(f"SKIPPED FOR WANT OF: {wants} ({tests})", red=True)
