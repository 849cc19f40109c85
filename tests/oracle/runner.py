"""Runs a program in torch, statement by statement, and finds the culprits of a failure by running variants of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphscope.tracer.recorder import Recorder

from . import world
from .programs import Statement

LIBRARY = str(Path(__file__).parent)
"""What the programs call: no code of theirs, so that the recorder is told to look past it."""
FILE = str(Path(__file__).parent.parent / "program.py")
"""Where the programs pretend to be written: statement ``i`` on line ``i + 1``."""

MESSAGES = {
    "Trying to backward through the graph a second time": "freed",
    "has been modified by an inplace operation": "stale",
    "its base or another view of its base has been modified inplace": "stale",
    "does not require grad and does not have a grad_fn": "no graph",
    "When use_reentrant=True": "checkpoint",
}


@dataclass
class Run:
    """What happened: how each backward ended (None: well), by statement; which statements wrote; what was refused."""

    outcomes: dict[int, str | None] = field(default_factory=dict)
    messages: dict[int, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    wrote: set[int] = field(default_factory=set)


def run(
    program: list[Statement],
    recorder: Recorder | None = None,
    *,
    retained: frozenset[int] = frozenset(),
    unseen: frozenset[int] = frozenset(),
    left_out: frozenset[int] = frozenset(),
) -> Run:
    """Execute a program; graphs survive the ``retained`` calls, and no version counter notices ``unseen`` writes."""
    names = world.namespace()
    result = Run()
    with recorder or nullcontext():
        for position, statement in enumerate(program):
            if position in left_out:
                continue
            call = statement.call
            if call is not None and position in retained:
                statement = call.retained()
            versions = {id(tensor): (tensor, tensor._version) for tensor in tensors(names)}
            error = execute(statement.source, names, position)
            if call is not None and (error is None or kind_of(error) is not None):
                result.outcomes[position] = error and kind_of(error)
                result.messages[position] = error or ""
            elif error is not None:
                result.refused.add(position)
            moved = [(tensor, before) for tensor, before in versions.values() if tensor._version != before]
            if moved:
                result.wrote.add(position)
                if position in unseen:
                    forget(names, moved)
    return result


def execute(source: str, names: dict[str, Any], position: int = 0) -> str | None:
    """Run one statement; the message of the exception it raised, if any."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile("\n" * position + source, FILE, "exec"), names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def kind_of(message: str) -> str | None:
    """Which of the kinds that the engine checks a message belongs to."""
    return next((kind for words, kind in MESSAGES.items() if words in message), None)


def tensors(names: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors of a program: its variables, parameters and buffers."""
    for value in names.values():
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, torch.nn.Module):
            yield from value.parameters()
            yield from value.buffers()


def forget(names: dict[str, Any], moved: list[tuple[Tensor, int]]) -> None:
    """Turn version counters back. Views learn of the write first: they find out by comparing versions.

    An in-place operator that saves its own result (``relu_``) would be stale itself then: programs have
    these on fresh tensors only.
    """
    for value in names.values():
        if isinstance(value, Tensor):
            execute("value.grad_fn", {"value": value})
    torch._C._autograd._unsafe_set_version_counter(
        tuple(tensor for tensor, _ in moved), tuple(before for _, before in moved)
    )


def culprits(program: list[Statement], outcome: Run, failing: int) -> frozenset[int] | None:
    """The statements that alone make this one fail.

    None if it fails anyway, whatever came before, or if a variant went elsewhere: what was computed again by a
    checkpoint need not have the shape it had.
    """
    calls = frozenset(position for position in outcome.outcomes if position < failing and not keeps(program[position]))
    writes = frozenset(position for position in outcome.wrote if position < failing)
    start, refused = program[: failing + 1], frozenset(outcome.refused)
    found = set()
    for cause in [None, *sorted(calls | writes)]:
        variant = run(start, retained=calls - {cause}, unseen=writes - {cause}, left_out=refused)
        if variant.refused:
            return None
        if variant.outcomes[failing] is not None:
            if cause is None:
                return None
            found.add(cause)
    return frozenset(found)


def keeps(statement: Statement) -> bool:
    return statement.call is not None and statement.call.keeps
