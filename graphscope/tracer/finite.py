"""Watch for gradients that are not finite, or zero everywhere: at each step, and where the former were made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._plain import dataclass
from ..events import NonFinite
from ..location import Location
from . import _torch
from .recording import Recording
from .results import is_result, result, saved_by, source_of

_MOST_LOOKS = 3  # at forwards that gave NaN, for where that began


@dataclass(frozen=True, slots=True)
class _Origin:
    """The node at which a forward ceased to be finite: it was given such data, or gives such a result."""

    node: int
    is_given: bool
    is_hidden: bool  # from the loss


class FiniteWatch:
    """Tells which operation first made a gradient that is not finite, when an optimizer steps on one.

    The sums of what went into and came out of the backward of some operations are looked at: those whose derivative is
    infinite somewhere. Where a loss is not finite itself, what its nodes saved tells where that began.
    """

    def __init__(self, recording: Recording) -> None:
        self._seen = recording
        self._sums: list[tuple[int, list[Tensor], list[Tensor]]] = []  # by node: of what came in, of what came out
        self._handles: list[Any] = []
        self._forward: _Origin | None = None
        self._hidden: _Origin | None = None  # where a forward became NaN that the loss does not show
        self._nan: set[int] = set()  # the operations whose forward kept NaN then
        self._looks = _MOST_LOOKS
        self._maker: int | None = None
        self._told = False  # what comes after the first such step is a consequence of it

    def before_walk(self) -> None:
        """The graph is about to be walked."""
        self._seen.walk.risky, self._seen.walk.narrow = [], []

    def before_backward(self, roots: Any, *, create_graph: bool) -> None:
        """It has been walked, and is about to be visited."""
        walk = self._seen.walk
        risky, walk.risky = walk.risky or [], None
        narrow, walk.narrow = walk.narrow, []
        if create_graph or self._told or _torch.is_profiling():
            return
        if self._forward is None and any(_is_bad_number(root) for root in roots):
            self._forward = self._origin(roots, _is_bad)
        elif self._looks:
            self._look_at_forward(roots, risky)
        if not self._seen.scales:  # a scaler looks for what overflows, and leaves such steps out
            risky += [(id, node) for id, node in narrow if self._gives_half(id)]
        self._handles = [node.register_hook(self._hook(id)) for id, node in risky]

    def after_backward(self) -> None:
        """It was visited."""
        self._seen.walk.risky = None
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        sums, self._sums = self._sums, []
        if sums and self._maker is None:  # numbers are kept until the step, no tensors: the program could count those
            self._maker = next((id for id, came, gave in sums if _bad(gave) and not _bad(came)), None)
            if self._maker in self._nan:
                self._forward = self._hidden

    def _look_at_forward(self, roots: Any, risky: list[tuple[int, Any]]) -> None:
        """The loss is finite; where that hides a NaN of the forward, it is looked for before buffers are freed."""
        self._nan = {id for id, node in risky if _kept_nan(node)}
        if self._nan:
            self._looks -= 1
            self._hidden = self._origin(roots, _is_nan)

    def _gives_half(self, id: int) -> bool:
        """Whether the backward of a node gives float16 numbers to one behind it."""
        outputs = self._seen.walk.outputs
        behind = (target for target, _ in self._seen.walk.targets[id] if target >= 0)
        return any(meta.dtype == "float16" for target in behind for meta in outputs[target])

    def _hook(self, id: int) -> Any:
        def hook(outgoing: Any, incoming: Any) -> None:
            with self._seen.guard():  # no graph is made here: gradients are off, or nothing is looked at
                self._sums.append((id, _sums(incoming), _sums(outgoing)))

        return hook

    def before_step(self, optimizer: Any, number: int, held: list[Tensor], location: Location | None) -> bool:
        """An optimizer is about to step: whether all its gradients are zero everywhere."""
        forward, maker, self._forward, self._maker = self._forward, self._maker, None, None
        if getattr(optimizer, "found_inf", None) is not None or _torch.is_profiling():
            return False  # a scaler has told it to leave out what is not finite
        graded = [(each, each.grad) for each in held if each.grad is not None]
        grads = [(each, grad) for each, grad in graded if _is_plain(grad)]
        if not grads or location is None:
            return False
        norms = _norms([grad for _, grad in grads])
        if not any(norms):  # one of tiny numbers is zero too
            return len(grads) == len(graded) and not any(bool(grad.any()) for _, grad in grads)
        if all(map(math.isfinite, norms)):
            return False
        bad = [(each, grad) for each, grad in grads if _is_bad(grad)]
        if not bad:
            return False
        node, given = (maker, False) if forward is None else (forward.node, forward.is_given)
        numbers = tuple(self._seen.tensors.number(each) for each, _ in bad)
        has_nan = any(bool(grad.isnan().any()) for _, grad in bad)
        time, step = self._seen.tick(), self._seen.step
        self._told = node is not None
        self._seen.events.append(
            NonFinite(
                *(time, step, location, number, numbers, node, forward is not None, has_nan),
                given=given,
                hidden=forward is not None and forward.is_hidden,
            )
        )
        return False

    def _origin(self, roots: Any, is_bad: Callable[[Tensor], bool]) -> _Origin | None:
        """The parameter that is not finite, or the operation whose result is the first that is not, as far as known."""
        hidden = is_bad is _is_nan
        nodes = {}
        waiting = [root.grad_fn for root in roots if isinstance(root, Tensor) and root.grad_fn is not None]
        ends = {node: tensor for node, tensor in zip(waiting, roots, strict=False) if _is_bad_number(tensor)}
        while waiting:
            node = waiting.pop()
            if node not in nodes and hasattr(node, "_sequence_nr"):
                nodes[node] = node._sequence_nr()
                waiting += [target for target, _ in node.next_functions if target is not None]
        for node in nodes:
            if hasattr(node, "variable") and is_bad(node.variable):
                return _Origin(self._seen.walk.walk(node), False, hidden)
        for node in sorted(nodes, key=lambda each: nodes[each]):
            value = result(node)
            for name, tensor in saved_by(node):
                if not is_result(name) and is_bad(tensor):
                    source = source_of(node, name, tuple(tensor.shape))
                    return _Origin(self._seen.walk.walk(source or node), source is None, hidden)
            if node in ends or (value is not None and is_bad(value)):
                return _Origin(self._seen.walk.walk(node), False, hidden)
        return None


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.is_floating_point() and not _torch.is_dispatched_in_python(tensor)


def _is_bad(tensor: Tensor) -> bool:
    return _is_plain(tensor) and not bool(torch.isfinite(tensor).all())


def _is_nan(tensor: Tensor) -> bool:
    return _is_plain(tensor) and bool(tensor.isnan().any())


def _kept_nan(node: Any) -> bool:
    """Whether the result that an operation kept has a NaN, else the first tensor that it was given and kept."""
    saved = [(name, tensor) for name, tensor in saved_by(node) if _is_plain(tensor)]
    kept = next((tensor for name, tensor in saved if is_result(name)), saved[0][1] if saved else None)
    return kept is not None and math.isnan(kept.detach().sum(dtype=torch.float32).item())


def _is_bad_number(tensor: Any) -> bool:
    """Whether it is a loss, one number, and that is not finite."""
    return isinstance(tensor, Tensor) and tensor.numel() == 1 and _is_plain(tensor) and not math.isfinite(tensor.item())


def _sums(tensors: Any) -> list[Tensor]:
    return [each.sum(dtype=torch.float32) for each in tensors if isinstance(each, Tensor) and _is_plain(each)]


def _bad(sums: list[Tensor]) -> bool:
    return any(not math.isfinite(each.item()) for each in sums)


def _norms(grads: list[Tensor]) -> list[float]:
    """One look at all of them: their norms, finite if they are, unless they are huge; summed up where not on a CPU."""
    found: list[float] = []
    elsewhere: dict[torch.device, list[Tensor]] = {}
    for each in torch._foreach_norm(grads):
        if each.device.type != "cpu":  # to read a number there is to wait for it
            elsewhere.setdefault(each.device, []).append(each.float())
        else:
            found.append(each.item())
    return found + [torch.stack(each).sum().item() for each in elsewhere.values()]
