"""Search the program's variables for what holds tensors with a history."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch import Tensor, nn

from .._plain import dataclass
from .frames import Frames, is_users_file
from .names import is_users_object, namespaces

_MOST_OBJECTS = 50_000  # that are looked at
_DEEPEST = 6  # attributes and elements from a variable
_CONTAINERS = (list, tuple, set, frozenset, deque, dict)


@dataclass(frozen=True, slots=True)
class Held:
    """Where tensors are held: a variable, attribute or container, how many it has, and the last of them."""

    path: str
    kind: str
    count: int
    limit: int | None
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class _Place:
    """A value on the way to a tensor; ``parent`` is what holds it."""

    path: str
    value: Any
    depth: int
    parent: _Place | None


def search(
    frames: list[FrameType],
    history: Callable[[Tensor], Any],
    steps: Callable[[Tensor], frozenset[int]],
    user: Frames,
) -> Held | None:
    """The narrowest place that leads to graphs of the most steps; None where none leads to any."""
    behind: dict[str, set[int]] = defaultdict(set)
    tensors: dict[str, list[Tensor]] = defaultdict(list)
    places: dict[str, _Place] = {}
    for place in _tensors(frames, user):
        if history(place.value) is not None and (found := steps(place.value)):
            holder: _Place | None = place
            while holder is not None:
                behind[holder.path] |= found
                tensors[holder.path].append(place.value)
                places[holder.path] = holder
                holder = holder.parent
    if not behind:
        return None
    path = max(behind, key=lambda path: (len(behind[path]), places[path].depth))
    value = places[path].value
    limit = value.maxlen if isinstance(value, deque) else None
    return Held(path, type(value).__name__, len(tensors[path]), limit, tensors[path][-1])


def _tensors(frames: list[FrameType], user: Frames) -> Iterator[_Place]:
    """The tensors that the variables of some frames (innermost first) lead to, the nearest first."""
    seen: set[int] = set()
    waiting: deque[_Place] = deque()
    for frame in frames:
        for variables in namespaces(frame):
            waiting += [
                _Place(name, value, 0, None) for name, value in list(variables.items()) if not name.startswith("__")
            ]
    while waiting and len(seen) < _MOST_OBJECTS:
        place = waiting.popleft()
        if id(place.value) in seen:
            continue
        seen.add(id(place.value))
        if issubclass(type(place.value), Tensor):
            yield place
        elif place.depth < _DEEPEST:
            waiting += [_Place(path, value, place.depth + 1, place) for path, value in _parts(place, user)]


def _parts(place: _Place, user: Frames) -> Iterator[tuple[str, Any]]:
    """What a value holds, each with the way to it; nothing of the program's is called."""
    value, path, kind = place.value, place.path, type(place.value)
    if issubclass(kind, dict):
        for key, each in list(dict.items(value)):
            plain = isinstance(key, str | int)  # others would be written by a __repr__ of the program's
            yield f"{path}[{key!r}]" if plain else f"{path}[...]", each
    elif issubclass(kind, _CONTAINERS):
        base = next(each for each in _CONTAINERS if issubclass(kind, each))
        for position, each in enumerate(list(base.__iter__(value))):
            yield f"{path}[{position}]", each
    if kind is types.FunctionType:
        if user.is_user(value.__code__):
            yield from _of_function(path, value)
    elif kind is types.MethodType:
        yield path, value.__self__
    elif kind is functools.partial:
        yield from ((f"{path}.args[{position}]", each) for position, each in enumerate(value.args))
    elif kind is types.ModuleType or issubclass(kind, type):
        if _is_users(value, user):
            yield from ((f"{path}.{name}", each) for name, each in list(vars(value).items()) if name[:2] != "__")
    elif issubclass(kind, nn.Module):
        for name, each in list(vars(value).items()):
            if name in ("_modules", "_buffers"):
                yield from ((f"{path}.{key}", part) for key, part in list(each.items()))
            elif name != "_parameters":
                yield f"{path}.{name}", each
        yield f"{path}.__class__", kind
    elif not issubclass(kind, _CONTAINERS) and is_users_object(value):
        yield from ((f"{path}.{name}", each) for name, each in list(vars(value).items()))
        yield f"{path}.__class__", kind
    for name in _slots(kind):  # type: ignore[arg-type]
        if isinstance(member := inspect.getattr_static(kind, name, None), types.MemberDescriptorType):
            with_value = _slot(member, value, kind)
            if with_value is not None:
                yield f"{path}.{name}", with_value


def _of_function(path: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The values that a function closes over, and its default arguments."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{path}.{name}", cell.cell_contents
        except ValueError:  # an empty cell
            continue
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from (
        (f"{path}.{name}", each) for name, each in zip(names[len(names) - len(defaults) :], defaults, strict=True)
    )
    yield from ((f"{path}.{name}", each) for name, each in (function.__kwdefaults__ or {}).items())
    yield from ((f"{path}.{name}", each) for name, each in list(vars(function).items()))


@functools.lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[str, ...]:
    """The slots of a class of the program's."""
    found = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ()) if base.__module__ not in ("builtins", "collections") else ()
        found += [slots] if isinstance(slots, str) else [each for each in slots if isinstance(each, str)]
    return tuple(each for each in found if not each.startswith("__"))


def _slot(member: Any, value: Any, kind: type) -> Any:
    try:
        return member.__get__(value, kind)
    except AttributeError:
        return None


def _is_users(value: Any, user: Frames) -> bool:
    """Whether a module or a class was written by the user."""
    module = value if inspect.ismodule(value) else _module_of(value)
    file = vars(module).get("__file__") if module is not None else None
    return isinstance(file, str) and is_users_file(file)


def _module_of(kind: type) -> Any:
    return sys.modules.get(kind.__module__) if isinstance(kind.__module__, str) else None
