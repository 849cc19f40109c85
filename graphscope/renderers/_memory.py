"""What graphs keep for their backwards, as tables: by line, module and loss, the largest, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..events import Backward
from ..location import Location
from ..memory import Held, Memory, Pass, Share
from ._excerpt import WIDTH, Paint
from ._words import clean, clip, count, listed, shorten, size

_TOP = 8


def tables(memory: Memory, paint: Paint) -> Iterator[list[str]]:
    """Blocks of lines, the most telling first."""
    peak = memory.peak
    if peak is None:
        yield [paint("no graph keeps anything for a backward", "bold")]
        return
    yield list(_head(memory, paint))
    for title, shares in (("by line", memory.lines), ("by module", memory.modules), ("by loss", memory.losses)):
        if shares:
            yield [paint(title, "bold"), *_rows(memory, shares)]
    yield [paint("the largest", "bold"), *(_saved(each, memory) for each in memory.largest[:_TOP])]
    if passes := list(_passes(memory)):
        yield [paint("by backward", "bold"), *passes]
    if plans := list(_plans(memory)):
        yield [paint("this step, backpropagated as", "bold"), *plans]


def _head(memory: Memory, paint: Paint) -> Iterator[str]:
    peak = memory.peak
    assert peak is not None
    where = f", after {clean(str(peak.location))}" if peak.location else ""
    yield paint(f"graphs keep {size(peak.bytes)} of activations at most, in step {peak.step}{where}", "bold")
    besides = [
        f"{size(bytes)} of {what}"
        for bytes, what in (
            (memory.total("data"), "data that went in"),
            (memory.total("parameter"), "parameters, buffers and other leaves"),
        )
        if bytes
    ]
    if besides:
        yield f"  and refer to {listed(besides)}, which the program has anyway"
    saving, nodes = memory.nodes
    yield f"  {saving} of the {count(nodes, 'operator')} of that step save tensors, the others keep only themselves"
    if memory.hooked:
        yield f"  {count(memory.hooked, 'saved tensor')} packed away by hooks (checkpoint, save_on_cpu) not counted"


def _rows(memory: Memory, shares: Sequence[Share]) -> Iterator[str]:
    for share in shares[:_TOP]:
        if isinstance(share.what, Location):
            source = (memory.trace.source_line(share.what) or "").strip()
            where = shorten(clean(str(share.what)), 40)
            text = f"{where}  {clip(clean(source), WIDTH - 16 - len(where))}"
        else:
            text = clean(share.what) or "outside of modules"
        yield f"{size(share.bytes):>12}  {text}".rstrip()
    if more := shares[_TOP:]:
        yield f"{size(sum(share.bytes for share in more)):>12}  in {count(len(more), 'other')}"


def _saved(held: Held, memory: Memory) -> str:
    """One line: ``float32 (32, 128) 16.0 KiB saved by TanhBackward0 as result, train.py:14 (net.1)``."""
    graph = memory.trace.graph
    location, module = graph.locations.get(held.node), graph.modules.get(held.node)
    where = (f", {clean(str(location))}" if location else "") + (f" ({clean(module)})" if module else "")
    others = f" and {count(held.nodes - 1, 'other operator')}" if held.nodes > 1 and held.kind == "activation" else ""
    kind = "" if held.kind == "activation" else f" [{held.kind}]"
    return (
        f"  {held.dtype} {held.shape} {size(held.bytes)} saved by {graph.ops[held.node]} as {held.name}"
        f"{others}{where}{kind}"
    )


def _passes(memory: Memory) -> Iterator[str]:
    """What backwards give back and what they retain, one line for each statement."""
    seen: set[Location] = set()
    for each in memory.passes:
        location = each.event.location
        if location not in seen and (each.freed or each.released or each.retained):
            seen.add(location)
            where = clean(str(location))
            if each.retained:
                yield f"{size(each.retained):>12}  retained by {where}, {until(memory, each)}"
            else:
                held = each.freed - each.released
                but = f", {size(held)} of it stay as variables hold them" if held > 0 and each.event.ran else ""
                yield f"{size(each.freed):>12}  freed by {where}{but}"


def until(memory: Memory, held: Pass) -> str:
    """How long something is kept, in words."""
    match memory.end(held):
        case Backward(location=location):
            return f"until {clean(str(location))} frees it"
        case Location() as location:
            return f"until its loss goes away, after {clean(str(location))}"
        case _:
            return "to the end"


def _plans(memory: Memory) -> Iterator[str]:
    for plan, bytes in memory.plans.items():
        about = "about " if plan.startswith("accumulation") else ""
        yield f"{about + size(bytes):>18}  {plan}"
