"""Which loss reaches which parameters, for each time round a training loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ._plain import dataclass
from .cycles import loops
from .events import Backward, Event
from .location import Location
from .trace import Trace


@dataclass(frozen=True, slots=True)
class Row:
    """A loss that is backpropagated at a line, and how many parameters of each module it reaches."""

    loss: str
    location: Location
    reached: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Losses by modules, for turns of a loop that are alike: how many of them in a row, and where each step is.

    ``modules`` are names and numbers of parameters. ``unused`` are the trainable parameters, by name, of modules
    that take part, which no backward of a turn reaches: DistributedDataParallel would call them unused.
    """

    turns: int
    modules: tuple[tuple[str, int], ...]
    rows: tuple[Row, ...]
    unused: tuple[str, ...]


def reach(trace: Trace) -> tuple[Table, ...]:
    """One table for each run of turns that are alike, in order; one for all backwards where no optimizer steps."""
    turns = [turn for loop in loops(trace) for turn in loop.turns] if trace.stepped else []
    parts = [trace.events[turn.first : turn.last + 1] for turn in turns]
    found: list[Table] = []
    still = frozen(trace)
    for part in parts or [trace.events]:
        table = _table(trace, part, still)
        if table is None:
            continue
        if found and replace(found[-1], turns=1) == table:
            found[-1] = replace(table, turns=found[-1].turns + 1)
        else:
            found.append(table)
    return tuple(found)


def frozen(trace: Trace) -> dict[int, Location]:
    """The parameters that were used without requiring grad, and never with, and where first."""
    found: dict[int, Location] = {}
    trained: set[int] = set()
    for call in trace.calls:
        for id, needs in zip(call.inputs, call.needs_grad, strict=False):
            if needs and id not in call.outputs:  # not where it is initialised
                trained.add(id)
            elif not needs and call.location is not None and call.outputs and trace.graph.tensor(id).is_parameter:
                found.setdefault(id, call.location)
    return {id: where for id, where in found.items() if id not in trained}


def _table(trace: Trace, events: Sequence[Event], still: dict[int, Location]) -> Table | None:
    """The table of one turn; None if it has no backward."""
    backwards = [event for event in events if isinstance(event, Backward) and event.accumulates]
    if not backwards:
        return None
    columns = list(_columns(trace))
    rows: dict[tuple[str, Location], set[int]] = {}
    for event in backwards:
        name = " + ".join(root.name for root in event.roots)
        rows.setdefault((name, event.location), set()).update(trace.reached(event))
    every = set().union(*rows.values())
    unused = [
        str(trace.graph.tensor(id))
        for module in trace.modules
        if every.intersection(id for _, id in module.parameters)
        for _, id in module.parameters
        if id not in every and id not in still and trace.graph.tensor(id).requires_grad
    ]
    return Table(
        1,
        tuple((name, len(members)) for name, members in columns),
        tuple(
            Row(loss, location, tuple(len(reached.intersection(members)) for _, members in columns))
            for (loss, location), reached in rows.items()
        ),
        tuple(dict.fromkeys(unused)),
    )


def _columns(trace: Trace) -> Iterator[tuple[str, list[int]]]:
    """The modules with their parameters, then what else optimizers hold."""
    seen: set[int] = set()
    for module in trace.modules:
        members = [id for _, id in module.parameters if id not in seen]
        seen.update(members)
        if members:
            yield module.name, members
    for optimizer in trace.optimizers:
        members = [id for id in optimizer.parameters if id not in seen]
        seen.update(members)
        if members:
            yield f"others in {optimizer.name}", members
