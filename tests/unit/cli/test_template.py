"""The JSON schemas: what is right passes, what people mistype is refused by the schema and by the reader alike."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from mingle_hooks import files
from mingle_hooks.cli.main import run
from mingle_hooks.cli.template import SCHEMAS, job_schema, settings_schema
from mingle_hooks.errors import MingleError
from mingle_hooks.scripts.job import FIELDS
from mingle_hooks.scripts.script import describe
from mingle_hooks.settings import TABLE as SETTINGS, load
from unit.scripts.test_script import OPTIONS as GOLDEN_JOB

ROOT = Path(__file__).parents[3]
JOB, MINGLE = fastjsonschema.compile(job_schema()), fastjsonschema.compile(settings_schema())
COMMAND = {"command": ["train.py"]}
SITE = (ROOT / "tests/data/site.toml").read_text()
REFUSED = files.toml((ROOT / "tests/data/refused.toml").read_bytes())
WRONG = [(kind, {name: value}) for kind, table in REFUSED.items() for name, values in table.items() for value in values]
WRONG += [("job", {"command": ["train.py", ""], "directive": {}}), ("job", {"job-name": "x" * 4097})]


def toml(tree: Mapping[str, Any]) -> str:
    """Write a tree as TOML, whose values are JSON's but for tables."""
    flat = [f"{key} = {json.dumps(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    tables = [f"[{key}]\n{toml(value)}" for key, value in tree.items() if isinstance(value, dict)]
    return "\n".join([*flat, *tables])


@pytest.mark.parametrize(("kind", "wrong"), WRONG, ids=str)
def test_what_is_refused_is_refused_by_both(tmp_path: Path, kind: str, wrong: dict[str, Any]) -> None:
    """A job and a site's file: the schema is no looser than people's mistakes."""
    is_job, job, file = kind == "job", {**COMMAND, **wrong}, tmp_path / "mingle.toml"
    file.write_text("" if is_job else toml(wrong))
    with pytest.raises(MingleError):
        describe({}, spec=job) if is_job else load({}, {}, system_file=str(file))
    with pytest.raises(fastjsonschema.JsonSchemaException):
        JOB(job) if is_job else MINGLE(wrong)


@pytest.mark.parametrize(
    "right",
    [
        {"nodes": "2", "gpus_per_node": "a100:4", "ntasks_per_node": "4"},
        {"nodes": "1+2", "gpus-per-node": [8, 4], "cpus-per-task": 2},
        {"gres": "gpu:a100:2", "mem": "64 GiB", "time": "1-12"},
        {"mem": 0, "exclusive": True},
        {"mem": 4096, "time": 90, "signal": "B:usr1@60", "mail-type": "end, FAIL", "mail-user": "a@b,c@d"},
        {"env": {"A": "1", "B": 2}, "module": "cuda", "setup": [". venv/bin/activate", "ulimit -l unlimited"]},
        {"env": ["A=1"], "array": "0-9:2,11%4", "for": ["jax,ucx", "nccl"], "exclusive": False},
        {"command": "train.py"},
        {**GOLDEN_JOB, "launcher": "ray"},
    ],
    ids=str,
)
def test_a_job_that_is_taken_passes(right: dict[str, Any]) -> None:
    """The schema is no stricter than the reader, however it is spelt."""
    describe({}, spec={**COMMAND, **right})
    JOB({**COMMAND, **right})


def test_settings_that_are_taken_pass(tmp_path: Path) -> None:
    """The README's, the admin's guide's, and a file with every kind of value."""
    (readme,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for text in (SITE, readme):
        (tmp_path / "mingle.toml").write_text(text)
        load({}, {}, system_file=str(tmp_path / "mingle.toml"))
        MINGLE(files.toml(text.encode()))


def test_every_field_and_setting_is_described() -> None:
    """The description is the help of the command line."""
    assert {name for name, one in job_schema()["properties"].items() if one["description"]} == {*FIELDS, "command"}
    known = settings_schema()["properties"]
    for setting in SETTINGS:
        if setting.key:
            table, _, key = setting.key.rpartition(".")
            assert (known[table]["properties"] if table else known)[key]["description"] == setting.help


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_prints_it(capfd: pytest.CaptureFixture[str], name: str) -> None:
    assert run(["schema", name]) == 0
    assert json.loads(capfd.readouterr().out) == json.loads(json.dumps(SCHEMAS[name]()))
