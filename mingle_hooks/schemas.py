"""JSON schemas of job files and mingle.toml, built from the tables that read them, of events.jsonl and of checks.

A schema accepts everything that the tables accept. The tables refuse more: fields that contradict each other, and
numbers as text that are out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from mingle_hooks import values
from mingle_hooks.scripts import job as fields
from mingle_hooks.settings import TABLE, backends
from mingle_hooks.values import LONGEST_ID, MOST_NODES

if TYPE_CHECKING:
    import re


Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"  # all validators and editors support it
_TEXT: Schema = {"type": "string", "minLength": 1}
_FLAG: Schema = {"type": "boolean"}
_NAMES_PATTERN = r"^\s*[A-Za-z0-9_.,\s-]*$"


def job() -> Schema:
    """Return the schema of a job file: of `mingle template --spec`, and of `mingle_hooks.render`."""
    # Only the first word of a command cannot be empty.
    words: Schema = {"type": "array", "items": [_TEXT], "additionalItems": {"type": "string"}, "minItems": 1}
    text_or_list = {"anyOf": [_TEXT, words]}
    found: Schema = {"command": {**text_or_list, "description": "the training command: its words, as a list"}}
    found |= {field.name: _field(field) for field in fields.FIELDS.values()}
    # Underscores are accepted instead of hyphens.
    also = {f"^{name.replace('-', '[-_]')}$": schema for name, schema in found.items() if "-" in name}
    return _object("A job of mingle-hooks", found) | {"patternProperties": also}


def settings() -> Schema:
    """Return the schema of mingle.toml: of the site's, as a user's has no [hooks]."""
    found: Schema = {}
    for setting in TABLE:
        schema = {**_reader(setting.read), "description": setting.help}
        table, _, key = setting.key.rpartition(".")
        if table:
            found.setdefault(table, _object(f"[{table}]", {}))["properties"][key] = schema
        elif key:
            found[key] = schema
    return _object("Settings of mingle-hooks", found)


def events() -> Schema:
    """Return the schema of a line of events.jsonl, which --on-event gets too."""
    from mingle_hooks.run.attempt import EVENT_SCHEMA, EVENTS

    kinds = [{"const": name, "description": kind.help} for name, kind in EVENTS.items()]
    always = {"schema": {"const": EVENT_SCHEMA}, "event": {"oneOf": kinds}, **_EVENT_FIELDS}
    found = _object("An event of mingle run", {**always, **_SOME_EVENTS_FIELDS})
    return {**found, "required": [*always], "additionalProperties": True}  # later versions add fields


def check() -> Schema:
    """Return the schema of what `mingle check --json` prints."""
    from mingle_hooks.check.report import Report

    found = _record(Report)
    texts = {"type": "array", "items": {"type": "string"}}
    found["properties"] |= {"exclude": texts, "status": {"type": "integer"}}
    found["properties"]["findings"]["items"]["properties"]["who"] = texts
    return {"$schema": DRAFT, "title": "A report of mingle check", **found, "required": [*found["properties"]]}


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _record(hint: Any) -> Schema:
    """Return the schema of a record, with which later versions may have more fields, or of a field's type."""
    parts = [_record(part) for part in get_args(hint) if not isinstance(part, str) and part is not ...]
    if hasattr(hint, "_fields"):
        properties = {name: _record(of) for name, of in get_type_hints(hint).items()}
        return {"type": "object", "properties": properties, "required": [*properties]}
    if get_origin(hint) is Literal:
        return {"enum": [*get_args(hint)]}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": parts[0] if ... in get_args(hint) else parts}
    return {"anyOf": parts} if parts else {"type": _PLAIN[hint]}


def _object(title: str, properties: Schema) -> Schema:
    head = {} if title.startswith("[") else {"$schema": DRAFT, "title": title}
    return {**head, "type": "object", "properties": properties, "additionalProperties": False}


def _described(kind: str | list[str], what: str, **more: Any) -> Schema:
    return {"type": kind, "description": what, **more}


_SECONDS = {"type": ["number", "null"], "minimum": 0}
_EVENT_FIELDS = {
    "time": _described("number", "Seconds since 1970, by the runner's clock."),
    "monotonic": _described("number", "Seconds of the runner's CLOCK_MONOTONIC."),
    "job": _described(["string", "null"], "The job's id, or the one that --id gave."),
    "run": _described("string", "The run's own id."),
    "runner": _described("string", "The host of mingle run."),
}
_SOME_EVENTS_FIELDS = {
    "attempt": _described("integer", "From 0."),
    "host": _described(["string", "null"], "The host that the event is about."),
    "local": _described("integer", "The member's number on its host, from 0."),
    "rank": _described(["integer", "null"], "The member's rank; null before it has one."),
    "hosts": _described("array", "Hosts in rank order.", items={"type": "string"}),
    "nodes": _described("integer", "The number of members."),
    "addr": _described("string", "MASTER_ADDR."),
    "port": _described("integer", "MASTER_PORT."),
    "last": _described("object", "The member that the others waited for, and why."),
    "spent_ms": _described("array", "Durations of a member's start.", items={"type": "integer"}),
    "status": _described("integer", "An exit status, as a shell has it."),
    "signal": _described(["integer", "null"], "The signal that ended COMMAND."),
    "number": _described("integer", "The signal that the run got or sent."),
    "why": _described("string", "Why the run ends; empty for a signal."),
    "grace_s": {**_SECONDS, "description": "The grace period of COMMAND."},
    "within_s": {**_SECONDS, "description": "How long missing hosts are called."},
    "silent_s": {**_SECONDS, "description": "How long nothing was heard."},
    "after_s": {**_SECONDS, "description": "How long the attempt ran."},
    "kind": _described("string", "The kind of a failure."),
    "is_oom": _described("boolean", "Whether the kernel's OOM killer ended COMMAND."),
    "tail": _described("string", "The last lines of COMMAND."),
    "exception": _described("string", "The line of the exception that ended COMMAND."),
}


def _field(field: fields.Field) -> Schema:
    one = _reader(field.read)
    several = {"type": "array", "items": one, "minItems": 1}
    kinds = [one]
    if field.kind == "each":  # one value for each group of nodes
        groups = {"type": "string", "pattern": r"^[^+]+(\+[^+]+)+$"}
        kinds += [groups, {**several, "maxItems": fields.MOST_GROUPS}]
    elif field.kind == "many":
        kinds.append({**several, "maxItems": fields.MOST_ENTRIES})
    if field.name == "env":
        kinds.append({"type": "object", "minProperties": 1, "additionalProperties": {"type": ["string", "integer"]}})
    return {**(one if len(kinds) == 1 else {"anyOf": kinds}), "description": field.help}


def _reader(read: Callable[..., object]) -> Schema:
    """Return the schema of the values that a reader accepts. Raises KeyError for an unknown reader."""
    bounds = read.keywords if isinstance(read, partial) else {}
    read = read.func if isinstance(read, partial) else read
    if choices := getattr(read, "choices", ()):
        return {"enum": [*choices]}
    schema = _READERS[read]
    return schema(**bounds) if callable(schema) else dict(schema)


def _count(least: int = 1, most: int = fields.MOST_PER_NODE) -> Schema:
    return _whole(least, most)


def _whole(least: int, most: int) -> Schema:
    number = {"type": "integer", "minimum": least, "maximum": most}
    return {"anyOf": [number, {"type": "string", "pattern": r"^\s*[0-9]{1,10}\s*$"}]}


def _gpus(most: int = fields.MOST_PER_NODE) -> Schema:
    typed = {"type": "string", "pattern": "^(([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?:)?[0-9]{1,9}$"}
    return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": most}, typed]}


def _matching(pattern: re.Pattern[str], like: str) -> Schema:
    return {"type": "string", "pattern": f"^({pattern.pattern})$", "examples": [like]}


def _texts(most: int, pattern: str = "") -> Schema:
    text = {**_TEXT, "maxLength": most}
    return {**text, "pattern": pattern} if pattern else text


def _listed(one: Schema) -> Schema:
    return {"anyOf": [one, {"type": "array", "items": one, "maxItems": values.MOST_ENTRIES}]}


def _any_case(*words: str) -> str:
    """Return a pattern for one of these words, in upper or lower case."""
    return f"({'|'.join(''.join(f'[{c.upper()}{c.lower()}]' if c.isalpha() else c for c in word) for word in words)})"


_NUMBER_OR_TEXT: Schema = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "[0-9]"}]}
_NAMES = _listed({"type": "string", "pattern": _NAMES_PATTERN})
_PATH: Schema = {"type": "string", "pattern": "^[/~]"}
_MAIL, _SIGNAL = _any_case(*fields.MAIL), _any_case(*fields.SIGNALS)
_AMOUNT = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_UNITS = "".join(rf"({_AMOUNT}\s*[{unit}{unit.upper()}]\s*)?" for unit in values.UNITS_S)
_DURATION = rf"^\s*({_AMOUNT}|(?=.*[0-9]){_UNITS})\s*$"
_YES_OR_NO: Schema = {"anyOf": [_FLAG, {"type": "string", "pattern": rf"^\s*{_any_case(*values.YES, *values.NO)}\s*$"}]}
# Reader -> the schema of its values, or a function of its bounds: job fields, then settings.
_READERS: dict[Callable[..., object], Schema | Callable[..., Schema]] = {
    fields.text_field: _texts(fields.LONGEST_TEXT),
    fields.line_field: _texts(fields.LONGEST_TEXT, r"^\s*[^#\s]"),
    fields.directory_field: _texts(fields.LONGEST_TEXT),
    fields.count_field: _count,
    fields.gpus_field: _gpus,
    fields.gres_field: {"type": "string", "pattern": r"^(gres[/:])?(gres[/:])?gpu(:[^,:]+){0,2}$"},
    fields.flag_field: _FLAG,
    fields.matching_field: _matching,
    fields.array_field: _matching(fields.ARRAY, "0-9%2"),
    fields.mail_field: {"type": "string", "pattern": rf"^\s*{_MAIL}\s*(,\s*{_MAIL}\s*)*$"},
    fields.signal_field: {"type": "string", "pattern": f"^([RBrb]{{1,2}}:)?([Ss][Ii][Gg])?{_SIGNAL}(@[0-9]{{1,5}})?$"},
    fields.variable_field: {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,254}="},
    fields.mebibytes_of: _NUMBER_OR_TEXT,
    fields.seconds_of: _NUMBER_OR_TEXT,
    values.identifier: _texts(LONGEST_ID),
    values.whole: _whole,
    values.endpoint: _TEXT,
    backends: _NAMES,
    values.word: {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", "maxLength": 64},
    values.listed: lambda read: _NAMES if read is values.word else _listed({"type": "string"}),
    values.ports: {"type": "string", "pattern": r"^\s*[0-9]+-[0-9]+\s*$"},
    values.yes_or_no: lambda **_words: _YES_OR_NO,
    values.differences: {"anyOf": [*_YES_OR_NO["anyOf"], _NAMES]},
    values.seconds: {
        "anyOf": [
            {"type": "number", "minimum": values.SHORTEST_WAIT_S, "maximum": values.LONGEST_WAIT_S},
            {"type": "string", "pattern": _DURATION},
        ]
    },
    values.slots: {"anyOf": [*_whole(1, MOST_NODES)["anyOf"], {"enum": [*values.COUNTED]}]},
    values.path: {**_PATH, "maxLength": 4096},
    values.program: {"anyOf": [{**_PATH, "maxLength": 4096}, {"enum": [values.NONE]}]},
    values.paths: {"anyOf": [_PATH, {"type": "array", "items": _PATH, "maxItems": values.MOST_ENTRIES}]},
    values.suffix: _texts(253, "^[A-Za-z0-9.-]+$"),
}
