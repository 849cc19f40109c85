"""Which tensors are a parameter under another name, on the same memory: ``p.data``, ``p.detach()``."""

from __future__ import annotations

from ..events import Call
from ..trace import Trace

_ALIASING = frozenset({"detach", "data"})


class Aliases:
    """Follows the calls, and tells of a tensor which one it is an alias of, and since when."""

    def __init__(self, trace: Trace) -> None:
        self._made: dict[int, Call] = {}
        for call in trace.calls:
            if call.op in _ALIASING and len(call.inputs) == len(call.outputs) == 1 and call.inputs != call.outputs:
                self._made.setdefault(call.outputs[0], call)

    def root(self, tensor: int) -> int:
        """The tensor itself, or the one that it is an alias of."""
        while tensor in self._made:
            tensor = self._made[tensor].inputs[0]
        return tensor

    def made(self, tensor: int) -> Call | None:
        """The call that gave the alias, None for what is none."""
        return self._made.get(tensor)
