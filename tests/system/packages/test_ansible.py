"""The role for Ansible: its commands exist as it calls them, it hides the key, and it leaves slurm.conf alone."""

import re
from pathlib import Path
from typing import Any

import jinja2.nativetypes
import pytest
from click import Command, Context, Group
from needs import need

from mingle_hooks import settings
from mingle_hooks.cli.hooks import hooks

ROLE = Path(__file__).parents[3] / "packaging/ansible"
KEY = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def tasks() -> list[dict[str, Any]]:
    """Return the tasks in order, those of blocks too."""
    found: list[dict[str, Any]] = []
    for task in loaded("tasks"):
        found += task.get("block", [task])
    return found


def loaded(part: str) -> Any:
    need("yaml")
    import yaml

    return yaml.safe_load((ROLE / part / "main.yml").read_text())


def commands(tasks: list[dict[str, Any]], **given: object) -> dict[str, list[str]]:
    """Return what each task runs, by its name."""
    environment = jinja2.nativetypes.NativeEnvironment()
    argvs = {
        task["name"]: task["ansible.builtin.command"]["argv"] for task in tasks if "ansible.builtin.command" in task
    }
    return {
        name: argv if isinstance(argv, list) else environment.from_string(argv).render({**loaded("defaults"), **given})
        for name, argv in argvs.items()
    }


@pytest.mark.parametrize("nodes", ["", "node[1-4]"])
def test_every_command_exists_with_these_options(tasks: list[dict[str, Any]], nodes: str) -> None:
    """Click takes each apart; none is called by a shell."""
    every = commands(tasks, mingle_nodes=nodes)
    assert len(every) == 5
    for argv in every.values():
        assert argv[:2] == ["mingle", "hooks"]
        command: Command | None = hooks
        assert isinstance(command, Group)
        command = command.get_command(Context(command), argv[2])
        assert command, argv
        command.make_context(argv[2], [*argv[3:]])
    assert ("--nodes" in every["The same on all nodes"]) is bool(nodes)
    assert "shell" not in " ".join(key for task in tasks for key in task)


def test_what_changes_is_what_json_says(tasks: list[dict[str, Any]]) -> None:
    """Each command that installs or would is asked; all others change nothing."""
    for task in tasks:
        if argv := task.get("ansible.builtin.command", {}).get("argv"):
            installs = "install" in argv
            assert task["changed_when"] == (
                f"({task.get('register')}.stdout | from_json).changed" if installs else False
            )
            assert not installs or ("--yes" in argv) is not ("--dry-run" in argv)


def test_the_key_is_shown_nowhere_and_fit(tasks: list[dict[str, Any]]) -> None:
    """Each task that has it says no_log; it is root's alone."""
    holding = [task for task in tasks if "mingle_site_key" in str(task)]
    assert [task["name"] for task in holding] == ["A key fit for the hooks", "Key"]
    assert all(task["no_log"] is True for task in holding)
    assert holding[1]["ansible.builtin.copy"]["mode"] == "0400"
    assert holding[1]["diff"] is False
    pattern = re.findall(r'match\("(.*)"\)', holding[0]["ansible.builtin.assert"]["that"])[0]
    assert re.match(pattern, KEY)
    assert not re.match(pattern, KEY[:-1])
    assert not re.match(pattern, KEY.upper())


def test_the_order_is_that_of_a_rollout(tasks: list[dict[str, Any]]) -> None:
    """Settings and key first, the comparison of all nodes then the lines for slurm.conf, which no task writes."""
    names = [task["name"] for task in tasks]
    order = ["Settings", "Key", "Install", "Verify", "Report", "The same on all nodes"]
    assert [name for name in names if name in order] == order
    assert "slurm.conf" in names[-1]
    written = {task[module].get("dest") for task in tasks for module in task if module == "ansible.builtin.copy"}
    assert written == {settings.SYSTEM_FILE, "/etc/mingle/key"}


def test_the_reports_are_lines_that_rollout_reads(tasks: list[dict[str, Any]]) -> None:
    """Each report stands on a line of its own, as clush prints them."""
    (text,) = [task["ansible.builtin.command"]["stdin"] for task in tasks if task["name"] == "The same on all nodes"]
    hostvars = {"node1": {"mingle_report": {"stdout": '{"hooks": {}}'}}, "node2": {}, "node3": {"mingle_report": {}}}
    template = jinja2.Environment(trim_blocks=True, autoescape=False).from_string(text)  # noqa: S701 - as Ansible does
    output = template.render(ansible_play_hosts_all=[*hostvars], hostvars=hostvars)
    assert output.splitlines() == ['node1: {"hooks": {}}', "node3: "]
