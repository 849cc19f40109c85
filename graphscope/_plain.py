"""Dataclasses that are quick to define and to make.

``dataclasses.dataclass(frozen=True, slots=True)`` writes and compiles seven methods for each class, in about 1 ms; one
that only assigns takes 0.2 ms, and its ``__init__`` is quicker, too. With a hundred classes that is a tenth of the time
of a short command (measured on Python 3.11).
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a type checker takes it for the original, and refuses to assign to what is frozen
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        *, frozen: bool = False, slots: bool = False, eq: bool = True, order: bool = False
    ) -> Callable[[type], type]:
        """Like ``dataclasses.dataclass``, with only ``__init__`` compiled; only type checkers hold it to ``frozen``."""

        def decorate(cls: type) -> type:
            made = dataclasses.dataclass(eq=False, repr=False, slots=slots)(cls)
            made.__repr__ = _repr
            compared = [each.name for each in dataclasses.fields(made) if each.compare]
            if eq and "__eq__" not in vars(cls):
                values = operator.attrgetter(*compared) if compared else lambda _: ()
                made.__eq__ = _comparison(operator.eq, values)
                made.__hash__ = (lambda self: hash(values(self))) if frozen else None
            if order:
                made.__lt__ = _comparison(operator.lt, values)
                made.__le__ = _comparison(operator.le, values)
                made.__gt__ = _comparison(operator.gt, values)
                made.__ge__ = _comparison(operator.ge, values)
            return made

        return decorate


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _comparison(operation: Callable[[Any, Any], bool], values: Callable[[Any], Any]) -> Callable[[Any, Any], bool]:
    def compare(self: Any, other: Any) -> bool:
        return operation(values(self), values(other)) if type(self) is type(other) else NotImplemented

    return compare
