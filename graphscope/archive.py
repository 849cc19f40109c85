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
    known = [thing for thing in found if _is_record(thing) or issubclass(thing, Enum)]
    return {thing.__name__: thing for thing in [*known, Report] if thing.__module__.startswith("graphscope.")}


def _is_record(thing: Any) -> bool:
    """Whether it is a dataclass or a named tuple, or one of those."""
    return dataclasses.is_dataclass(thing) or _is_named_tuple(thing)


def _is_named_tuple(thing: Any) -> bool:
    kind = thing if isinstance(thing, type) else type(thing)
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _names(kind: Any) -> Sequence[str]:
    """The fields that a record is made of."""
    if _is_named_tuple(kind):
        return tuple(kind._fields)
    return [each.name for each in dataclasses.fields(kind) if each.init]


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
    if _is_record(value):
        name = type(value).__name__
        names = used.setdefault(name, list(_names(type(value))))
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
        top = json.loads(text, parse_int=_whole)
        _check_head(top)
        report = _decoded(top["report"], top["fields"])
        if not isinstance(report, Report):
            raise GraphscopeError("it holds no report")
        checker = _Checker()
        checker.check(report, Report, "report")
    except json.JSONDecodeError as error:
        raise GraphscopeError(f"no JSON, {error.msg} in line {error.lineno}") from None
    except RecursionError:
        raise GraphscopeError("it is nested too deeply") from None
    graph = report.trace.graph
    checker.check_references(
        {"node": len(graph.ops), "tensor": len(graph.tensors), "optimizer": len(report.trace.optimizers)}
    )
    _check_columns(report.trace)
    return report


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise GraphscopeError(f"a number of {len(digits)} digits")
    return int(digits)


def _check_head(top: Any) -> None:
    if isinstance(top, dict) and "schema_version" in top:
        raise GraphscopeError("a JSON report has no graph in it; `graphscope inspect -o run.trace` saves one that has")
    if not isinstance(top, dict) or top.get("graphscope") != "trace":
        raise GraphscopeError("`graphscope inspect -o run.trace SCRIPT` writes one")
    if top.get("version") != VERSION:
        raise GraphscopeError(f"its version is {top.get('version')!r:.40}, and this graphscope reads version {VERSION}")
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
        raise GraphscopeError(f"a {name!r:.40}, which is nothing that a trace is made of")
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
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in _names(kind)}


class _Checker:
    """Raises where a value is not of the type that its field declares, or refers to what is not there."""

    def __init__(self) -> None:
        self._largest: dict[str, tuple[int, str]] = {}

    def check(self, value: Any, hint: Any, where: str) -> None:
        """Look at a value and all that is in it."""
        hint = next((each for each in _alternatives(hint) if _fits(value, each)), None)
        if hint is None:
            raise GraphscopeError(f"{where} is {_kind(value)}")
        if typing.get_origin(hint) is typing.Annotated:
            self._refer(value, *hint.__metadata__, where=where)
        elif _is_record(value):
            for name, inner in _hints(value.__class__).items():
                self.check(getattr(value, name), inner, f"{where}.{name}")
        elif isinstance(value, Collection) and not isinstance(value, str):
            self._check_items(value, hint, where)

    def _check_items(self, value: Collection[Any], hint: Any, where: str) -> None:
        hints = typing.get_args(hint)
        if isinstance(value, Mapping):
            key_hint, item_hint = hints or (object, object)
            for key, each in value.items():
                self.check(key, key_hint, f"a key of {where}")
                self.check(each, item_hint, f"{where}[{key!r:.40}]")
            return
        if typing.get_origin(hint) is not tuple or Ellipsis in hints:
            hints = (hints or (object,))[:1] * len(value)
        if len(value) != len(hints):
            raise GraphscopeError(f"{where} has {len(value)} parts, not {len(hints)}")
        for position, (each, hint) in enumerate(zip(value, hints, strict=True)):
            self.check(each, hint, f"{where}[{position}]")

    def _refer(self, id: int, kind: str, none: int = 0, *, where: str) -> None:
        if id < none:
            raise GraphscopeError(f"{where} refers to {kind} {id}")
        if id > self._largest.get(kind, (-1, ""))[0]:
            self._largest[kind] = id, where

    def check_references(self, limits: Mapping[str, int]) -> None:
        """Raise where something that was looked at refers to what lies beyond the limits."""
        for kind, (id, where) in self._largest.items():
            if id >= limits[kind]:
                raise GraphscopeError(f"{where} refers to {kind} {id}, and there are {limits[kind]}")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    kind = typing.get_origin(hint) or hint
    if kind in (object, Any):
        return True
    if _is_named_tuple(value):
        return type(value) is kind
    if kind is None:
        return value is None
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(kind, type) and isinstance(value, kind)


def _kind(value: Any) -> str:
    return "null" if value is None else f"of kind {type(value).__name__}"


def _check_columns(trace: Trace) -> None:
    graph = trace.graph
    if not len(graph.sequences) == len(graph.outputs) == len(graph.targets) == len(graph.ops):
        raise GraphscopeError("the columns of its graph differ in length")
    if any(ref.id != position for position, ref in enumerate(graph.tensors)):
        raise GraphscopeError("its tensors are not in order")
    if any(ref.id != position for position, ref in enumerate(trace.optimizers)):
        raise GraphscopeError("its optimizers are not in order")
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
