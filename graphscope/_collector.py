"""Python's garbage collector, kept from passing over what is no garbage: a full pass over torch takes some 0.1 s."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Keep the collector from scanning what is being built again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def settle_gc() -> None:
    """Make what lives now old, as a full collection would, without one: young objects are scanned soon and often."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
