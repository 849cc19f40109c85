"""Run a program with some of its files edited, and note the gradients of its first steps."""

from __future__ import annotations

import contextlib
import linecache
import os
import random
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as optim

from ..trace import Trace
from . import _torch, script

Digest = list[tuple[float, ...]]
"""Of each parameter of an optimizer: the norm of its gradient, two projections of it, and the precision of its type."""

_AT_ONCE = 1 << 20  # elements


def run(target: str, args: list[str], *, module: bool, files: Mapping[str, bytes]) -> tuple[Trace, list[Digest]]:
    """The trace of a run with other contents for the files at these absolute paths, and a digest for each optimizer.

    Random numbers start from a fixed seed, so that runs of a program which sets none can be compared.
    """
    random.seed(0)
    torch.manual_seed(0)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(0)
    with _instead(files), _first_steps() as digests:
        trace = script.run(target, args, module=module)
    return trace, list(digests.values())


@contextlib.contextmanager
def _instead(files: Mapping[str, bytes]) -> Iterator[None]:
    """Let Python load, and tracebacks show, these contents for the files at these paths."""
    get_data, path_stats = SourceFileLoader.get_data, SourceFileLoader.path_stats

    def edited_data(self: SourceFileLoader, path: str) -> bytes:
        data = files.get(os.path.abspath(path))
        return get_data(self, path) if data is None else data

    def no_stats(self: SourceFileLoader, path: str) -> Any:
        if os.path.abspath(path) in files:
            raise OSError("no compiled file belongs to this")
        return path_stats(self, path)

    for path, data in files.items():
        text = data.decode(errors="replace").splitlines(keepends=True)
        linecache.cache[path] = (len(data), None, text, path)
    SourceFileLoader.get_data, SourceFileLoader.path_stats = edited_data, no_stats  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        SourceFileLoader.get_data, SourceFileLoader.path_stats = get_data, path_stats  # type: ignore[method-assign]
        for path in files:
            linecache.cache.pop(path, None)


@contextlib.contextmanager
def _first_steps() -> Iterator[dict[int, Digest]]:
    """By optimizer, in the order of their first steps: the gradients that it then had."""
    digests: dict[int, Digest] = {}
    kept = []

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if id(optimizer) not in digests:
            kept.append(optimizer)  # so that no other gets its id
            with _torch.without_modes(), torch.no_grad():
                digests[id(optimizer)] = [_digest(each) for group in optimizer.param_groups for each in group["params"]]

    handle = optim.register_optimizer_step_pre_hook(before_step)
    try:
        yield digests
    finally:
        handle.remove()


def _digest(parameter: Tensor) -> tuple[float, ...]:
    gradient = parameter.grad
    if gradient is None:
        return (0.0, 0.0, 0.0, 0.0)
    values = (gradient.to_dense() if gradient.layout is not torch.strided else gradient).detach()
    values = (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)
    squares, one, other = 0.0, 0.0, 0.0
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE].cpu().double()
        place = torch.arange(start, start + len(part), dtype=torch.float64)
        squares += float(part.dot(part))
        one += float(part.dot(torch.cos(place * 1.7)))
        other += float(part.dot(torch.sin(place * 2.9)))
    return (squares**0.5, one, other, torch.finfo(values.dtype).eps)
