"""Reports with their traces in a file, and back: plain JSON in a closed vocabulary; reading one executes nothing.

A dataclass or an enum is ``{"Location": ["train.py", 3, 3, "<module>"]}``, its fields in the order that ``fields`` at
the top names; a tuple is a list, a mapping is ``{"map": [[key, value], ...]}``, a set is ``{"set": [...]}``.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import GraphscopeError
from .report import Report
from .trace import Trace

VERSION = 1
_HOMES = ("events", "findings", "graph", "location", "trace")


@cache
def _vocabulary() -> dict[str, type]:
    """The classes that a file may name."""
    homes = [vars(import_module(f"graphscope.{home}")) for home in _HOMES]
    found = [thing for home in homes for thing in home.values() if isinstance(thing, type)]
    known = [thing for thing in found if dataclasses.is_dataclass(thing) or issubclass(thing, Enum)]
    return {thing.__name__: thing for thing in [*known, Report] if thing.__module__.startswith("graphscope.")}


def dumps(report: Report) -> str:
    """The report, with its trace, as JSON text."""
    used: dict[str, list[str]] = {}
    body = _encoded(report, used)
    top = {"graphscope": "trace", "version": VERSION, "fields": used, "report": body}
    return json.dumps(top, separators=(",", ":")) + "\n"


def _encoded(value: Any, used: dict[str, list[str]]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return {type(value).__name__: value.value}
    if dataclasses.is_dataclass(value):
        name = type(value).__name__
        names = used.setdefault(name, [each.name for each in dataclasses.fields(value) if each.init])
        return {name: [_encoded(getattr(value, each), used) for each in names]}
    if isinstance(value, Mapping):
        return {"map": [[_encoded(key, used), _encoded(each, used)] for key, each in value.items()]}
    if isinstance(value, set | frozenset):
        return {"set": sorted((_encoded(each, used) for each in value), key=json.dumps)}
    if isinstance(value, Sequence):
        return [_encoded(each, used) for each in value]
    return str(value)


def load(path: str | Path) -> Report:
    """The report in a file that ``report.save("run.trace")`` or ``graphscope inspect -o run.trace`` wrote.

    Raises GraphscopeError for a file that is none, or that does not hold together.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphscopeError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    try:
        return loads(text)
    except GraphscopeError as error:
        raise GraphscopeError(f"{path} is not a saved trace: {error}") from None


def loads(text: str) -> Report:
    """The report in a JSON text."""
    try:
        top = json.loads(text)
        _check_head(top)
        report = _decoded(top["report"], top["fields"])
        if not isinstance(report, Report):
            raise GraphscopeError("it holds no report")
        _check(report, Report, "report")
    except json.JSONDecodeError as error:
        raise GraphscopeError(f"no JSON, {error.msg} in line {error.lineno}") from None
    except RecursionError:
        raise GraphscopeError("it is nested too deeply") from None
    _check_references(report.trace)
    return report


def _check_head(top: Any) -> None:
    if isinstance(top, dict) and "schema_version" in top:
        raise GraphscopeError("a JSON report has no graph in it; `graphscope inspect -o run.trace` saves one that has")
    if not isinstance(top, dict) or top.get("graphscope") != "trace":
        raise GraphscopeError("`graphscope inspect -o run.trace SCRIPT` writes one")
    if top.get("version") != VERSION:
        raise GraphscopeError(f"its version is {top.get('version')!r}, and this graphscope reads version {VERSION}")
    fields = top.get("fields")
    if not isinstance(fields, dict) or not all(_are_names(names) for names in fields.values()) or "report" not in top:
        raise GraphscopeError("its `fields` or its `report` is missing")


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _decoded(value: Any, fields: dict[str, list[str]]) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(each, fields) for each in value)
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise GraphscopeError(f"an object with {len(value)} keys where one names its kind")
    ((name, inside),) = value.items()
    if name in ("map", "set"):
        if not isinstance(inside, list):
            raise GraphscopeError(f"a {name} that is no list")
        items = [_decoded(each, fields) for each in inside]
        try:
            return dict(items) if name == "map" else frozenset(items)
        except (TypeError, ValueError):
            raise GraphscopeError(f"a {name} of what cannot be in one") from None
    kind: Any = _vocabulary().get(name)
    if kind is None:
        raise GraphscopeError(f"a {name!r}, which is nothing that a trace is made of")
    try:
        if issubclass(kind, Enum):
            return kind(inside)
        known = _hints(kind).keys()
        values = zip(fields[name], inside, strict=True)
        return kind(**{each: _decoded(held, fields) for each, held in values if each in known})
    except (KeyError, TypeError, ValueError):
        raise GraphscopeError(f"a {name} whose fields do not fit") from None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {each.name: hints[each.name] for each in dataclasses.fields(kind)}


def _check(value: Any, hint: Any, where: str) -> None:
    """Raise where a value is not of the type that its field declares."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        plain = [each for each in args if isinstance(each, type) and type(value) is each]
        fits = plain or [each for each in args if _fits(value, each)]
        if not fits:
            raise GraphscopeError(f"{where} is {_kind(value)}")
        hint = fits[0]
        origin, args = typing.get_origin(hint), typing.get_args(hint)
    if not _fits(value, hint):
        raise GraphscopeError(f"{where} is {_kind(value)}")
    if dataclasses.is_dataclass(value):
        for name, inner in _hints(value.__class__).items():
            _check(getattr(value, name), inner, f"{where}.{name}")
    elif origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        if len(value) != len(args):
            raise GraphscopeError(f"{where} has {len(value)} parts, not {len(args)}")
        for position, (each, inner) in enumerate(zip(value, args, strict=True)):
            _check(each, inner, f"{where}[{position}]")
    elif isinstance(value, Mapping) and args:
        for key, each in value.items():
            _check(key, args[0], f"a key of {where}")
            _check(each, args[1], f"{where}[{key!r}]")
    elif isinstance(value, Collection) and args and not isinstance(value, str):
        for position, each in enumerate(value):
            _check(each, args[0], f"{where}[{position}]")


def _fits(value: Any, hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    if kind in (object, Any):
        return True
    if kind is None:
        return value is None
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(kind, type) and isinstance(value, kind)


def _kind(value: Any) -> str:
    return "null" if value is None else f"of kind {type(value).__name__}"


def _check_references(trace: Trace) -> None:
    """Raise where something refers to a node, a tensor or an optimizer that is not there."""
    graph = trace.graph
    nodes, tensors = len(graph.ops), len(graph.tensors)
    if not len(graph.sequences) == len(graph.outputs) == len(graph.targets) == nodes:
        raise GraphscopeError("the columns of its graph differ in length")
    named: list[tuple[str, Collection[int], int]] = [
        ("a step of the gradient", [to for targets in graph.targets for to, _ in targets if to != -1], nodes),
        ("a leaf", graph.leaf_tensors, nodes),
        ("a saved tensor", graph.saved, nodes),
        ("a root", [root.node for root in graph.roots if root.node is not None], nodes),
        ("a root", [root.tensor for root in graph.roots], tensors),
        ("a leaf", list(graph.leaf_tensors.values()), tensors),
        ("an optimizer", [id for optimizer in trace.optimizers for id in optimizer.parameters], tensors),
        ("a tensor", [ref.node for ref in graph.tensors if ref.node is not None], nodes),
    ]
    for call in trace.backwards:
        named.append(("a vector of a backward", call.vectors, tensors))
        named.append(("a backward", [root.node for root in call.roots if root.node is not None], nodes))
        named.append(("a backward", [root.tensor for root in call.roots], tensors))
    for what, ids, limit in named:
        wrong = next((id for id in ids if not 0 <= id < limit), None)
        if wrong is not None:
            raise GraphscopeError(f"{what} refers to number {wrong}, and there are {limit}")
    if any(ref.id != position for position, ref in enumerate(graph.tensors)):
        raise GraphscopeError("its tensors are not in order")
    for event in trace.events:
        owner = getattr(event, "optimizer", None)
        if owner is not None and not 0 <= owner < len(trace.optimizers):
            raise GraphscopeError(f"an event refers to optimizer {owner}, and there are {len(trace.optimizers)}")
    if _has_cycle(graph.targets):
        raise GraphscopeError("its graph has a cycle")


def _has_cycle(targets: Sequence[Sequence[tuple[int, int]]]) -> bool:
    waiting = [0] * len(targets)
    for after in targets:
        for target, _ in after:
            if target >= 0:
                waiting[target] += 1
    ready = [id for id, number in enumerate(waiting) if not number]
    for id in ready:
        for target, _ in targets[id]:
            if target >= 0:
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
    return len(ready) < len(targets)
