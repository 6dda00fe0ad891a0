"""The schedulers' rows: commands and places."""

from pathlib import Path

import pytest

from mingle_hooks.errors import UsageError
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.plan import Where
from mingle_hooks.hooks.targets import TARGETS, hook

PBS = "/etc/mingle/hooks/pbs"


def test_pbs_is_told_of_the_hook_in_an_order_in_which_no_task_loses(tmp_path: Path) -> None:
    """The backup comes first and the hook is enabled last; without pbs_mom's directory there are no classic scripts."""
    plan = TARGETS["pbs"].plan(Site(), Where(str(tmp_path)))
    *first, create, off, begin, end, alarm, order, text, on = (line.text for line in plan.lines)
    assert (len(first), "print hook" in first[0]) == (1, True)
    assert create.endswith('|| qmgr -c "create hook mingle"')
    assert [line.partition("hook mingle ")[2] for line in (off, begin, end, alarm, order, text, on)] == [
        'enabled=false"', 'event=execjob_launch"', 'event+=execjob_end"', 'alarm=10"', 'order=900"',
        f'application/x-python default {PBS}/mingle.py"', 'enabled=true"',
    ]  # fmt: skip
    assert [(file.entry.path, file.entry.mode) for file in plan.files] == [(f"{PBS}/mingle.py", 0o644)]
    assert not any(line.is_there for line in plan.lines)


def test_a_hook_is_found_by_its_name() -> None:
    assert hook("slurm", "epilog").after == "prolog"
    with pytest.raises(UsageError, match=r"one of launch, prologue, epilogue; saw 'epilog'; try .*render pbs epilogue"):
        hook("pbs", "epilog")
