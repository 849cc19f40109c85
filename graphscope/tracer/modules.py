"""What the user's modules hold, as often as it is looked at: a module may be gone, or changed, when recording ends."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from ..trace import Flag, ModuleRef
from . import _torch
from .names import Names
from .tensors import Tensors

_LONGEST = 64  # elements of a list or dict that are looked at
_FARTHEST = 3  # operations between a parameter and what a module keeps of it
_OF_TORCH = frozenset(vars(nn.Module()))  # attributes that every module has: they hold nothing aside


class Modules:
    """The top-level modules that were met, each as it was when it was last seen."""

    def __init__(self, names: Names, tensors: Tensors) -> None:
        self._names = names
        self._tensors = tensors
        self._refs: dict[int, ModuleRef] = {}

    def look(self) -> None:
        """Look at the modules that are there; those that have died since the last look are gone."""
        for position, (module, name) in enumerate(self._names.tops()):
            if module is not None:
                self._refs[position] = self._ref(module, name)
            elif position in self._refs:
                self._refs[position] = replace(self._refs[position], gone=True)

    def refs(self) -> tuple[ModuleRef, ...]:
        """The modules as they were last seen, and those that nobody looked at yet as they are."""
        for position, (module, name) in enumerate(self._names.tops()):
            if module is not None and position not in self._refs:
                self._refs[position] = self._ref(module, name)
        return tuple(self._refs[position] for position in sorted(self._refs))

    def _ref(self, module: nn.Module, name: str) -> ModuleRef:
        number = self._tensors.number
        parameters = list(module.named_parameters())
        registered = {id(parameter) for _, parameter in parameters}
        hidden, derived = [], []
        for path, tensor, kept in _kept_aside(module):
            if id(tensor) not in registered:
                hidden.append((path, number(tensor)))
                if kept is not tensor:
                    derived.append((number(tensor), number(kept)))
                self._names.name_tensor(f"{name}.{path}", tensor)
        return ModuleRef(
            name,
            type(module).__name__,
            tuple((path, number(parameter)) for path, parameter in parameters),
            frozenset(self._tensors.place(each)[0] for each in (*(p for _, p in parameters), *module.buffers())),
            tuple(hidden),
            tuple(
                number(p)
                for each in module.modules()
                if not each.training
                for p in each._parameters.values()
                if p is not None
            ),
            tuple(_flags(module)),
            derived=tuple(derived),
        )


def _kept_aside(module: nn.Module) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The trainable leaves in plain attributes, lists and dicts of a module, which ``parameters()`` may not see.

    Each comes with what is kept of it: itself, or what a cast or a view made of it, ``nn.Parameter(...).double()``.
    """
    for path, each in module.named_modules():
        prefix = f"{path}." if path else ""
        for key, value in list(vars(each).items()):
            if key in _OF_TORCH:
                continue
            if isinstance(value, Tensor):
                yield from _leaves(prefix + key, value)
            elif type(value) in (list, tuple, dict) and len(value) <= _LONGEST:
                items = value.items() if type(value) is dict else enumerate(value)
                for position, element in list(items):
                    if isinstance(position, str | int):
                        yield from _leaves(f"{prefix}{key}[{position!r}]", element)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    if isinstance(value, nn.Module):
        trained = ((name, p) for name, p in value.named_parameters() if p.requires_grad and value.training)
        yield from ((f"{path}.{name}", p, p) for name, p in trained)
    elif isinstance(value, Tensor) and value.requires_grad:
        source = value if _torch.is_leaf(value) else _source(value)
        if source is not None:
            yield path, source, value


def _source(value: Tensor) -> Tensor | None:
    """The parameter that a tensor was computed from, by a cast or a view of it alone."""
    if value._is_view():  # whose history is made anew when it is read after a write
        return value._base if isinstance(value._base, nn.Parameter) else None
    node = value.grad_fn
    for _ in range(_FARTHEST):
        if node is None or len(node.next_functions) != 1:
            return None
        node = node.next_functions[0][0]
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            return leaf if isinstance(leaf, nn.Parameter) else None
    return None


def _flags(module: nn.Module) -> Iterator[Flag]:
    """Attributes that somebody may have taken for the switch of ``requires_grad``, and that switch nothing."""
    for path, each in module.named_modules():
        for key, value in vars(each).items():
            if type(value) is bool and (key == "requires_grad" or _is_nearly(key)):
                yield Flag(path, key, value)
        for name, parameter in each._parameters.items():
            for key, value in vars(parameter).items() if parameter is not None else ():
                if type(value) is bool and _is_nearly(key):
                    yield Flag(f"{path}.{name}" if path else name, key, value)


@lru_cache(maxsize=1024)
def _is_nearly(key: str) -> bool:
    return key == "trainable" or (
        key != "requires_grad" and bool(difflib.get_close_matches(key, ("requires_grad",), cutoff=0.85))
    )
