"""Hosts that the tests of a process share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import hosts as cluster_hosts
from cluster.hosts import Hosts
from needs import skip_for_want_of


@pytest.fixture(scope="session")
def hosts_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Start the hosts of `four`."""
    skip_for_want_of(cluster_hosts.missing())
    place = tmp_path_factory.getbasetemp()
    place.chmod(0o755)  # so that every user reaches the tests' own directories in it
    with Hosts(4, share=[place]) as made:
        yield made


@pytest.fixture
def four(hosts_session: Hosts, tmp_path: Path) -> Iterator[Hosts]:
    """Give four hosts that all tests share, one after the other, with the test's tmp_path on all of them.

    After the test the firewall is open. A test that leaves a process or a file on a host fails, but for the files of
    a world, which stay for its command.
    """
    tmp_path.chmod(0o1777)
    yield hosts_session
    hosts_session.clear_firewall()
    left = [*hosts_session.processes().values()]
    for host in hosts_session:
        files = host.files() - {"/run/mount"}
        if files:
            host.run(["rm", "-rf", *files], check=True)
        left += [path for path in files if "-world-" not in path]
    assert left == [], "the test left these on its hosts"
