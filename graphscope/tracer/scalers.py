"""Watch GradScalers: what they scale, unscale, step and update."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from torch import Tensor

from ..events import ScalerCall
from .gradients import GradientWatch
from .optimizers import OptimizerWatch
from .recording import Recording, flatten


class ScalerWatch:
    """Turns the calls of enabled GradScalers into events."""

    def __init__(self, recording: Recording, optimizers: OptimizerWatch, gradients: GradientWatch) -> None:
        self._seen = recording
        self._optimizers = optimizers
        self._gradients = gradients
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def scale(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """``scaler.scale(loss)``."""
        return self._call("scale", original, args, kwargs)

    def unscale(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """``scaler.unscale_(optimizer)``."""
        return self._call("unscale_", original, args, kwargs)

    def step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """``scaler.step(optimizer)``, which unscales what is not unscaled yet."""
        return self._call("step", original, args, kwargs)

    def update(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """``scaler.update()``."""
        return self._call("update", original, args, kwargs)

    def _call(self, op: str, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._seen.off or self._seen.busy or self._gradients.quiet or not args or not args[0].is_enabled():
            return original(*args, **kwargs)
        began, steps = self._seen.now, self._seen.step
        if op == "scale":
            self._seen.scales = True
        else:
            self._gradients.quiet += 1
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            with self._seen.guard():
                self._seen.refused(op, (), error, sys._getframe(1))
            raise
        finally:
            if op != "scale":
                self._gradients.quiet -= 1
        with self._seen.guard():
            location = self._seen.frames.here(sys._getframe(1))
            if location is not None:
                scaled: list[Tensor] = []
                flatten((result,) if op == "scale" else (), scaled)
                optimizer = args[1] if len(args) > 1 else kwargs.get("optimizer")
                self._seen.events.append(
                    ScalerCall(
                        self._seen.tick(),
                        self._seen.step,
                        location,
                        op,
                        self._numbers.setdefault(args[0], len(self._numbers)),
                        tuple([self._seen.tensors.number(each) for each in scaled]),
                        self._optimizers.known(optimizer).id if op in ("unscale_", "step") else None,
                        skipped=op == "step" and self._seen.step == steps,
                        began=began,
                    )
                )
        return result
