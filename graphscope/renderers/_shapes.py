"""The boxes of a picture, and the words in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..graph import Node
from ..location import Location
from ._fold import Box, Closed
from ._scene import Scene
from ._words import count, meta, size

_ROWS = 6  # leaves named in one box


@dataclass(slots=True)
class Shape:
    """A box of the picture. ``kind`` is loss, operator, chain, module, rest, parameter, input or cut."""

    id: str
    kind: str
    title: str
    lines: list[str] = field(default_factory=list)
    state: str | None = None
    tooltip: list[str] = field(default_factory=list)
    module: tuple[str, ...] = ()
    freed: bool = False
    failing: bool = False
    losses: int = 0  # one bit per loss that reaches it
    codes: tuple[str, ...] = ()
    place: str | None = None  # shown where a finding names it
    optimizers: tuple[int, ...] = ()
    rows: list[tuple[str, str]] = field(default_factory=list)


def shape(box: Box, nodes: list[int], scene: Scene) -> Shape:
    """The box that these graph nodes share."""
    graph = scene.graph
    if isinstance(box, str):
        return Shape("rest", "rest", count(len(nodes), "more node"), codes=scene.codes_of(nodes))
    operators = [id for id in nodes if id not in graph.leaf_tensors]
    if isinstance(box, Closed):
        return _module(box.path, nodes, operators, scene)
    if box in graph.leaf_tensors:
        return _leaves(box, [id for id in nodes if id in graph.leaf_tensors], scene)
    return _operator(box, scene) if len(operators) == 1 else _chain(box, operators, scene)


def _operator(id: int, scene: Scene) -> Shape:
    node = scene.graph.node(id)
    codes = scene.codes_of([id])
    words = [meta(output) for output in node.outputs[:1]]
    words += [node.module] if node.module else []
    words += _kept([id], scene)
    words += ["custom Function"] if node.custom else []
    lines = [" | ".join(words)] if words else []
    return Shape(
        f"n{id}",
        "operator",
        node.op if node.custom else node.label,
        lines,
        scene.freed.get(id),
        _tooltip(node, scene),
        tuple(node.module.split(".")) if node.module else (),
        freed=id in scene.freed,
        losses=scene.masks.get(id, 0),
        codes=codes,
        place=str(node.location) if node.location else None,
    )


def _chain(first: int, nodes: list[int], scene: Scene) -> Shape:
    """Operators in a row, or a module drawn closed: what they are, and what they keep."""
    node = scene.graph.node(first)
    kinds = _kinds_of(nodes, scene)
    return Shape(
        f"n{first}",
        "chain",
        count(len(nodes), "operator"),
        [_kinds(kinds), *_kept(nodes, scene)],
        scene.freed.get(first),
        [f"{kind} x{number}" for kind, number in kinds.most_common()],
        tuple(node.module.split(".")) if node.module else (),
        freed=first in scene.freed,
        losses=scene.masks.get(first, 0),
        codes=scene.codes_of(nodes),
    )


def _module(path: tuple[str, ...], nodes: list[int], operators: list[int], scene: Scene) -> Shape:
    leaves = [id for id in nodes if id in scene.graph.leaf_tensors]
    words = [count(len(operators), "operator")] + ([count(len(leaves), "leaf tensor")] if leaves else [])
    kinds = _kinds_of(operators, scene)
    freed = [id for id in operators if id in scene.freed]
    masks = {scene.masks.get(id, 0) for id in operators}
    return Shape(
        "module_" + str(min(nodes)),
        "module",
        ".".join(path),
        [" | ".join([*words, *_kept(operators, scene)])],
        scene.freed[freed[0]] if freed else None,
        [f"{kind} x{number}" for kind, number in kinds.most_common()],
        path[:-1],
        freed=bool(freed),
        losses=masks.pop() if len(masks) == 1 else 0,
        codes=scene.codes_of(nodes),
        optimizers=scene.holders_of(leaves),
    )


def _leaves(first: int, nodes: list[int], scene: Scene) -> Shape:
    """Leaves that the same boxes read; a parameter says which optimizer holds it."""
    tensors = [scene.graph.tensor(id) for id in sorted(scene.graph.leaf_tensors[id] for id in nodes)]
    holders = scene.holders_of(nodes)
    parameter = scene.is_parameter(first)
    names = [scene.trace.optimizers[id].name for id in holders]
    state = "in no optimizer" if parameter and scene.trace.optimizers and not names else None
    words = [" and ".join(names)] if names else []
    if not parameter:
        words = [f"{tensors[0].dtype} | input"]
    if len(tensors) > _ROWS:
        words.insert(0, f"and {len(tensors) - _ROWS} more")
    return Shape(
        f"n{first}",
        "parameter" if parameter else "input",
        "",
        words,
        state,
        [f"{tensor}: {tensor.shape} {tensor.dtype} on {tensor.device}" for tensor in tensors],
        codes=scene.codes_of(nodes),
        optimizers=holders,
        rows=[(tensor.name or "unnamed", str(tensor.shape)) for tensor in tensors[:_ROWS]],
    )


def loss_shapes(scene: Scene) -> list[Shape]:
    """The boxes of the losses."""
    found = []
    names = Counter(loss.root.name for loss in scene.losses)
    for position, loss in enumerate(scene.losses):
        tensor = scene.graph.tensor(loss.root.tensor)
        words = [f"{tensor.shape} {tensor.dtype}"]
        words += [str(loss.location)] if loss.location else []
        words += [f"step {loss.call.step}"] if loss.call and names[loss.root.name] > 1 else []
        words += ["no graph"] if loss.root.node is None else []
        words += [loss.state] if loss.state else []
        tooltip = [f"{loss.root.name}: {words[0]}", *source(loss.location, scene)]
        found.append(
            Shape(
                f"loss_{position}", "loss", loss.root.name, [" | ".join(words)], tooltip=tooltip, failing=loss.failing
            )
        )
    return found


def _kept(nodes: list[int], scene: Scene) -> list[str]:
    bytes = sum(saved.bytes for id in nodes for saved in scene.graph.saved.get(id, ()))
    if not bytes:
        return []
    return [f"{size(bytes)} gone" if any(id in scene.freed for id in nodes) else f"saves {size(bytes)}"]


def _kinds_of(nodes: list[int], scene: Scene) -> Counter[str]:
    ops = Counter(scene.graph.ops[id] for id in nodes)
    return Counter({op.partition("Backward")[0] or op: number for op, number in ops.items()})


def _kinds(kinds: Counter[str]) -> str:
    words = [f"{kind} x{number}" if number > 1 else kind for kind, number in kinds.most_common(4)]
    return ", ".join(words) + (" ..." if len(kinds) > 4 else "")


def _tooltip(node: Node, scene: Scene) -> list[str]:
    number = f", sequence number {node.sequence}" if node.sequence >= 0 else ""
    lines = [f"{node.op} (node {node.id}{number})"]
    lines += [f"gives {meta(output)} on {output.device}" for output in node.outputs]
    for saved in node.saved:
        version = "" if saved.version is None else f", version {saved.version}"
        what = "packed by hooks" if saved.hooked else f"{saved.shape} {saved.dtype}, {size(saved.bytes)}{version}"
        lines.append(f"saves {saved.name}: {what}{', freed' if saved.freed else ''}")
    return lines + source(node.location, scene)


def source(location: Location | None, scene: Scene) -> list[str]:
    """A location with its source line, for a tooltip."""
    if location is None:
        return []
    line = scene.trace.source_line(location)
    return [f"{location}: {line.strip()}" if line else str(location)]
