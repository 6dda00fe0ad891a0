"""What is said of a whole job (--ntasks, --gpus) or in Slurm's words (--gres), as values for each node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mingle_hooks.errors import UsageError
from mingle_hooks.render.fields import Gpus, count
from mingle_hooks.schedulers.facts import MOST_NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

Each = dict[str, tuple[Any, ...]]
# The whole's field -> the field that says the same of one node.
_EACH = {"ntasks": "ntasks-per-node", "gpus": "gpus-per-node"}
SAME = {**_EACH, "gres": "gpus-per-node"}


def by_node(each: Mapping[str, tuple[Any, ...]], totals: Mapping[str, Any]) -> Each:
    """Return the values for each group of nodes, with what the totals say of them.

    A total is shared evenly by all nodes, or with a number for each node tells how many nodes there are. Raises
    UsageError that names the total where it does not come out even.
    """
    found = dict(each)
    if "gres" in totals and found.setdefault("gpus-per-node", totals["gres"]) != totals["gres"]:
        seen = f"{_text(totals['gres'])} and --gpus-per-node {_text(found['gpus-per-node'])}"
        raise UsageError("--gres that says what --gpus-per-node says", seen, "leaving one of them out")
    for total, name in _EACH.items():
        if total in totals:
            found |= _shared(found, total, totals[total], name)
    return found


def _shared(found: Each, total: str, value: Gpus | int, name: str) -> Each:
    number = _number(value)
    here = found.get(name)
    if here and len(here) == 1 and "nodes" not in found:
        nodes = number // _number(here[0])
        if nodes * _number(here[0]) != number:
            raise _uneven(total, number, _number(here[0]), f"{here[0]} on each node")
        return {"nodes": (_bounded(nodes, total, MOST_NODES),)}
    length = max((len(values) for values in found.values()), default=1)
    counts = _long(found.get("nodes", (1,)), length)
    nodes = sum(counts)
    if here:
        said = sum(many * _number(its) for many, its in zip(counts, _long(here, length), strict=False))
        if said != number:
            remedy = f"leaving --{total} out"
            raise UsageError(f"--{total} {said}, as --{name} says", f"--{total} {number}", remedy)
        return {}
    if number % nodes:
        raise _uneven(total, number, nodes, f"{nodes} nodes")
    share = _bounded(number // nodes, total)
    return {name: (Gpus(share, value.type) if isinstance(value, Gpus) else share,)}


def _number(value: Gpus | int) -> int:
    return value.number if isinstance(value, Gpus) else value


def _long(values: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    return values * length if len(values) == 1 else values


def _bounded(number: int, total: str, most: int | None = None) -> int:
    try:
        return count(number) if most is None else count(number, most=most)
    except UsageError as wrong:
        raise UsageError(f"--{total} that is, for each node, {wrong.expected}", wrong.seen, "more --nodes") from None


def _uneven(total: str, number: int, parts: int, by: str) -> UsageError:
    lower = number // parts * parts
    works = f"--{total} {lower} or {lower + parts}" if lower else f"--{total} {parts}"
    return UsageError(f"--{total} that comes out even with {by}", f"--{total} {number}", works)


def _text(values: tuple[Any, ...]) -> str:
    return "+".join(str(value) for value in values)


def sources(given: Mapping[str, str]) -> dict[str, str]:
    """Return where each field comes from, with those that were made of others."""
    return {each: given[total] for total, each in SAME.items() if total in given} | dict(given)
