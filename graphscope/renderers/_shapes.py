"""The boxes of a picture, and the words in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from .._plain import dataclass
from ..findings import Role
from ..graph import Node
from ..location import Location
from ._collapse import Box, Closed, Collapse, Rest
from ._repeats import Frame
from ._scene import STALE, Scene
from ._scopes import Scope, dotted
from ._words import count, meta, size

_ROWS = 6  # leaves named in one box


@dataclass(slots=True)
class Shape:
    """A box of the picture. ``kind`` is a key of the style's looks; ``nodes`` are the graph nodes in it.

    ``words`` are put side by side, ``lines`` each on its own; ``marks`` are states in words, by the key of the
    style's marks; ``module`` is shown as far as no box around it says so. ``times`` tells of how many like it a box is.
    """

    id: str
    kind: str
    title: str
    words: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    module: str | None = None
    marks: dict[str, str] = field(default_factory=dict)
    tooltip: list[str] = field(default_factory=list)
    scope: Scope = ()
    nodes: tuple[int, ...] = ()
    failing: bool = False
    losses: int = 0  # one bit per loss that reaches it
    codes: tuple[str, ...] = ()
    location: Location | None = None
    optimizers: tuple[int, ...] = ()
    owned: bool = True
    rows: list[tuple[str, str]] = field(default_factory=list)
    times: int = 1
    position: float = 0.0  # in the order in which the gradient comes by

    @property
    def name(self) -> str:
        """What to call it where it is not drawn."""
        return self.title or (self.rows[0][0] if self.rows else self.id)

    @property
    def is_shared(self) -> bool:
        """Whether more than one loss reaches it."""
        return bool(self.losses & (self.losses - 1))


def shape(box: Box, nodes: list[int], scene: Scene, folding: Collapse) -> Shape:
    """The box that these graph nodes share."""
    graph = scene.graph
    if isinstance(box, Rest):
        words = [*_kept(nodes, scene)]
        found = Shape(f"rest_{box.number}", "rest", count(len(nodes), "more node"), words, codes=scene.codes_of(nodes))
    elif box in graph.leaf_tensors and not isinstance(box, Closed):
        found = _leaves(box, [id for id in nodes if id in graph.leaf_tensors], scene, folding)
    else:
        operators = [id for id in nodes if id not in graph.leaf_tensors and id not in folding.joined]
        times = folding.times.get(box, 1)
        if len(operators) == times:
            found = _operator(operators, scene)
        elif isinstance(box, Closed):
            found = _module(box, nodes, operators, scene, folding.alone.get(box))
        else:
            found = _chain(box, operators, scene, times)
        found.times = times
    found.nodes = tuple(nodes)
    found.scope = folding.scope(box, nodes)
    return found


def _operator(ids: list[int], scene: Scene) -> Shape:
    """One operator, or one of each of the blocks that a repeat stands for."""
    node = scene.graph.node(ids[0])
    words = [meta(output) for output in node.outputs[:1]]
    words += _kept(ids, scene)
    words += ["custom Function"] if node.custom else []
    return Shape(
        f"n{node.id}",
        "function" if node.custom else "operator",
        node.op if node.custom else node.label,
        words,
        list(scene.show.details.get(node.id, ())),
        module=scene.modules.get(node.id),
        marks=_marks(ids, scene),
        tooltip=_tooltip(node, scene),
        losses=scene.masks.get(node.id, 0),
        codes=scene.codes_of(ids),
        location=node.location,
    )


def _chain(first: int, nodes: list[int], scene: Scene, times: int) -> Shape:
    """Operators in a row: what they are, and what they keep."""
    kinds = _kinds_of(nodes[: len(nodes) // times], scene)
    return Shape(
        f"n{first}",
        "chain",
        count(len(nodes) // times, "operator"),
        [_kinds(kinds), *_kept(nodes, scene)],
        marks=_marks(nodes, scene),
        tooltip=[f"{kind} x{number}" for kind, number in kinds.most_common()],
        losses=scene.masks.get(first, 0),
        codes=scene.codes_of(nodes),
        location=scene.graph.locations.get(first),
    )


def _module(box: Closed, nodes: list[int], operators: list[int], scene: Scene, frame: Frame | None) -> Shape:
    """A module call drawn closed, or several that repeat."""
    leaves = [id for id in nodes if id in scene.graph.leaf_tensors]
    path, call = dotted(box.scope), box.scope[-1][1]
    words = [count(len(operators), "operator")] + ([count(len(leaves), "leaf tensor")] if leaves else [])
    kind = scene.classes.get(".".join(path))
    title = repeat_name(frame) if frame else ".".join(path) + (f" (call {call + 1})" if call else "")
    masks = {scene.masks.get(id, 0) for id in operators}
    return Shape(
        "module_" + str(min(nodes)),
        "repeat" if frame else "module",
        title,
        [*([kind] if kind else []), *words, *_kept(operators, scene)],
        marks=_marks(operators, scene),
        tooltip=[f"{kind} x{number}" for kind, number in _kinds_of(operators, scene).most_common()],
        losses=masks.pop() if len(masks) == 1 else 0,
        codes=scene.codes_of(nodes),
        location=scene.graph.locations.get(operators[0]),
        optimizers=scene.holders_of(leaves),
    )


def repeat_name(frame: Frame) -> str:
    """The names that a repeat stands for: ``blocks.0 to .11``."""
    first, last = frame.first, frame.last
    if first == last:
        return ".".join(first)
    return f"{'.'.join(first)} to {'.' if first[:-1] == last[:-1] else '.'.join(last[:-1]) + '.'}{last[-1]}"


def _marks(ids: list[int], scene: Scene) -> dict[str, str]:
    """The states of some operators, each with its words."""
    marks: dict[str, str] = {}
    freed = [id for id in ids if id in scene.freed]
    if freed:
        some = f" ({len(freed)} of {len(ids)})" if len(freed) < len(ids) else ""
        marks["freed"] = scene.freed[freed[0]] + some
    for finding in scene.findings:
        if finding.code in STALE and any(id in ids for id in finding.nodes):
            saved = finding.facts.get("saved")
            cause = next((place.location for place in finding.places if place.role is Role.CAUSE), None)
            marks["stale"] = f"{saved or 'saved tensor'} overwritten" + (f" at {cause}" if cause else "")
    for kind in ("new", "gone"):
        changed = [id for id in ids if scene.changes.get(id) == kind]
        if changed:
            marks[kind] = kind if len(changed) == len(ids) else f"{len(changed)} of {len(ids)} {kind}"
    return marks


def _leaves(first: int, nodes: list[int], scene: Scene, folding: Collapse) -> Shape:
    """Leaves that the same boxes read; a parameter says which optimizer holds it."""
    nodes = sorted(nodes, key=lambda id: scene.graph.leaf_tensors[id])
    tensors = [scene.graph.tensor(scene.graph.leaf_tensors[id]) for id in nodes]
    own = [id for id in nodes if folding.single.get(id, first) == first]
    shown = [scene.graph.tensor(scene.graph.leaf_tensors[id]) for id in own]
    parameter = scene.is_parameter(first)
    holders = scene.holders_of(nodes)
    words = [" and ".join(scene.trace.optimizers[id].name for id in holders)] if holders else []
    words += ["in no optimizer"] if parameter and scene.trace.optimizers and not holders else []
    if not parameter:
        words = [f"{tensors[0].dtype} | input"]
    if len(shown) > _ROWS:
        words.insert(0, f"and {len(shown) - _ROWS} more")
    return Shape(
        f"n{first}",
        "parameter" if parameter else "input",
        "",
        words,
        marks={kind: kind for kind in ("new", "gone") if any(scene.changes.get(id) == kind for id in nodes)},
        tooltip=[f"{tensor}: {tensor.shape} {tensor.dtype} on {tensor.device}" for tensor in tensors],
        losses=scene.masks.get(first, 0),
        codes=scene.codes_of(nodes),
        location=tensors[0].made_at,
        optimizers=holders,
        owned=bool(holders) or not parameter or not scene.trace.optimizers,
        rows=[(tensor.name or "unnamed", str(tensor.shape)) for tensor in shown[:_ROWS]],
        times=folding.times.get(first, 1),
    )


def unreached_shapes(scene: Scene) -> list[Shape]:
    """For each finding about parameters that no loss reaches, the box of these parameters."""
    known = {tensor.name: tensor for tensor in reversed(scene.graph.tensors) if tensor.is_leaf}
    drawn = {
        scene.graph.tensor(scene.graph.leaf_tensors[id]).name for id in scene.masks if id in scene.graph.leaf_tensors
    }
    shapes: dict[tuple[object, ...], Shape] = {}
    for finding in scene.findings:
        names = finding.facts.get("parameters")
        told = [str(name) for name in names if name not in drawn] if isinstance(names, tuple) else []
        if not told:
            continue
        if (key := tuple(told)) in shapes:
            shapes[key].codes = tuple(sorted({*shapes[key].codes, finding.code}))
            continue
        ids = {tensor.id for tensor in scene.graph.tensors if tensor.name == told[0]}
        holders = [optimizer for optimizer in scene.trace.optimizers if ids & set(optimizer.parameters)]
        words = [*([f"and {len(told) - _ROWS} more"] if len(told) > _ROWS else []), *(o.name for o in holders)]
        shapes[key] = Shape(
            f"unreached_{len(shapes)}",
            "parameter",
            "",
            words,
            marks={"finding": "no loss reaches them" if len(told) > 1 else "no loss reaches it"},
            tooltip=[f"{name}: no loss reaches it" for name in told],
            codes=(finding.code,),
            optimizers=tuple(o.id for o in holders),
            owned=bool(holders),
            rows=[(name, str(known[name].shape) if name in known else "") for name in told[:_ROWS]],
        )
    return list(shapes.values())


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
                f"loss_{position}",
                "loss",
                loss.root.name,
                words,
                tooltip=tooltip,
                failing=loss.failing,
                location=loss.location,
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
