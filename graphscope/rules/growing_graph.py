"""GS104: the graphs of all earlier steps stay alive, so that memory grows from step to step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..engine import Engine
from ..events import Backward
from ..findings import Action, Confidence, Edit, Finding, Fix, Place, Role, Severity, size
from ..location import Location
from ..rule import Rule
from ..trace import Holder, Survey, Trace
from ._keeping import Put, kept, puts

_ENOUGH = 4  # earlier steps whose graphs are alive
_MANY = 8  # passes of one statement, where only three steps were made
_WINDOW = 10  # a deque of so few is a window, not growth
_NODE = 600  # bytes that a node takes by itself, as measured on torch 2.13
_MEMORY = 2**30


class GrowingGraph(Rule):
    """Something keeps the graphs of all earlier steps alive, so that memory grows with each step.

    A tensor with a history holds on to the graph behind it, with all that its nodes saved. A running total of losses, a
    list of outputs, a buffer of log-probabilities or a state that is carried along then holds one more graph after each
    step, until the memory is gone. The results are right. Keep a number (``.item()``) or a ``.detach()`` in its place.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            total = 0.0
            for _ in range(8):
                loss = net(torch.ones(2, 4)).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss  # GS104

    Bad, in a list::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        outputs = []
        with graphscope.watch() as report:
            for _ in range(8):
                out = net(torch.ones(2, 4))
                opt.zero_grad()
                out.pow(2).mean().backward()
                opt.step()
                outputs.append(out)  # GS104

    Bad, in a hook::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        seen = {"head": []}

        def keep(name):
            def hook(module, inputs, output):
                seen[name].append(output)  # GS104
            return hook

        with graphscope.watch() as report:
            net.register_forward_hook(keep("head"))
            for _ in range(8):
                loss = net(torch.ones(2, 4)).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        outputs = []
        with graphscope.watch() as report:
            total = 0.0
            for _ in range(8):
                out = net(torch.ones(2, 4))
                loss = out.pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
                outputs.append(out.detach())

    Good, as the losses of one step are summed up before its backward::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(8):
                losses = [net(torch.full((2, 4), float(part))).pow(2).mean() for part in range(10)]
                opt.zero_grad()
                sum(losses).backward()
                opt.step()
    """

    code = "GS104"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for what holds the most graphs."""
        series: dict[tuple[Location, int], list[Survey]] = defaultdict(list)
        for each in trace.surveys:
            series[each.location, each.leaf].append(each)
        found = [survey for surveys in series.values() if (survey := _growth(surveys))]
        grown = [survey for survey in found if not _is_used(trace, survey)]
        if grown:
            most = max(grown, key=lambda survey: (len(survey.steps), survey.nodes))
            holder = _holder(series[most.location, most.leaf])
            if holder is None or holder.limit is None or holder.limit > _WINDOW:
                yield self._finding(trace, most, holder)

    def _finding(self, trace: Trace, survey: Survey, holder: Holder | None) -> Finding:
        what = f"`{holder.name}`" if holder else "something that was not found in the variables"
        found = puts(trace, holder) if holder and not _is_tensor(holder) else ()
        places = _places(trace, survey, holder, found)
        count = len(survey.steps)
        rate = survey.bytes + survey.nodes * _NODE
        saved = f" with {size(survey.bytes)} of saved tensors" if survey.bytes else ""
        freed = "" if survey.bytes else " (what they saved is freed)"
        again = ", and each backward goes through all of them again" if _lengthens(trace, survey) else ""
        return self.finding(
            f"{what} keeps the graphs of earlier steps alive{again}: {_nodes(survey)}{saved} more with each "
            f"step{freed}, those of {count} steps when step {survey.ended} had ended; {_outlook(survey, holder, rate)}",
            places=places,
            confidence=Confidence.CERTAIN if holder else Confidence.LIKELY,
            fixes=_fixes(trace, holder, found),
            holder=holder.name if holder else None,
            kind=holder.kind if holder else None,
            nodes_per_step=survey.nodes,
            bytes_per_step=survey.bytes,
            steps=survey.steps,
        )


def _nodes(survey: Survey) -> str:
    return f"{survey.nodes} node{'' if survey.nodes == 1 else 's'}"


def _outlook(survey: Survey, holder: Holder | None, rate: int) -> str:
    """When memory will be gone, or how much it takes until the container is full."""
    if holder and holder.limit:
        per_step = max(1, survey.passes // len(survey.steps))
        return f"when it has all of its {holder.limit:,} it takes about {size(rate * holder.limit // per_step)}"
    return f"at this rate 1 GiB is gone after {_MEMORY // max(rate, 1):,} steps"


def _growth(surveys: Sequence[Survey]) -> Survey | None:
    """The survey that shows growth: nothing that was alive at the one before is gone, and more is."""
    grown = [
        later
        for earlier, later in pairwise(surveys)
        if set(earlier.steps) < set(later.steps)
        and (len(later.steps) >= _ENOUGH or (len(later.steps) >= _ENOUGH - 1 and later.passes >= _MANY))
    ]
    if not grown:
        return None
    most = max(grown, key=lambda survey: len(survey.steps))
    after = surveys[surveys.index(most) + 1 :]
    moved = [later for later in after if not set(most.steps) <= set(later.steps)]
    is_window = moved and all(len(later.steps) >= len(most.steps) - 1 for later in after)
    return None if is_window else most


def _holder(surveys: Sequence[Survey]) -> Holder | None:
    return next((survey.holder for survey in reversed(surveys) if survey.holder), None)


def _is_tensor(holder: Holder) -> bool:
    """Whether the variable, attribute or element is a tensor itself: a total, a state."""
    return holder.tensors == 1 and holder.kind in ("Tensor", "Parameter")


def _ends(trace: Trace) -> list[int]:
    """When the steps of the program ended: those of optimizers, or its backwards where none steps."""
    steps = [event.time for event in trace.steps if event.ran]
    return steps or [event.time for event in trace.backwards if event.accumulates]


def _is_used(trace: Trace, survey: Survey) -> bool:
    """Whether such graphs are kept for a backward that comes later: that of an episode, of a meta step."""
    graph = trace.graph
    sites = {
        node
        for node, location in graph.locations.items()
        if location == survey.location and any(graph.leaf_tensors.get(t) == survey.leaf for t, _ in graph.targets[node])
    }
    if not sites:
        return False
    engine = Engine(graph, trace.events)
    ends = _ends(trace)
    for event in trace.backwards:
        for node in engine.runs(event) & sites:
            if sum(graph.times.get(node, event.time) <= end < event.time for end in ends) >= 2:
                return True
        sites -= engine.runs(event)
    return False


def _lengthens(trace: Trace, survey: Survey) -> bool:
    """Whether each backward goes through more nodes than the one before, by as many as stay alive."""
    runs: dict[Location, list[Backward]] = defaultdict(list)
    for event in trace.backwards:
        if event.error is None and event.accumulates:
            runs[event.location].append(event)
    engine = Engine(trace.graph, trace.events)
    for events in runs.values():
        sizes = [len(engine.runs(event)) for event in events[:_ENOUGH]]
        if len(sizes) == _ENOUGH and all(a < b for a, b in pairwise(sizes)):
            return sizes[-1] - sizes[0] >= survey.nodes
    return False


def _places(trace: Trace, survey: Survey, holder: Holder | None, found: Sequence[Put]) -> list[Place]:
    name = f"`{holder.name}`" if holder else "it"
    places = [Place(put.location, Role.CAUSE, f"put into {name} here, with its history") for put in found]
    if holder and holder.location:
        label = f"{name} gets its history here" if not found else "made here, with its history"
        places.append(Place(holder.location, Role.CAUSE, label))
        places += [Place(each, Role.RELATED, "called from here") for each in holder.callers[:1]]
    if survey.location not in {place.location for place in places}:
        places.append(Place(survey.location, Role.RELATED, "the graphs are made here"))
    return places


def _fixes(trace: Trace, holder: Holder | None, found: Sequence[Put]) -> list[Fix]:
    if holder is None:
        return [Fix("keep `.detach()` of the tensor, or `.item()` of a number", changes_gradients=False)]
    if found:
        put = found[0]
        names = " and ".join(f"`{name}.detach()`" for name in put.names) or "the tensor's `.detach()`"
        edits = tuple(Edit(Action.DETACH, put.location, name=name) for name in put.names)
        title = f"put {names} into `{holder.name}`, or the number with `.item()`"
        return [Fix(title, put.location, changes_gradients=False, edits=edits)]
    if holder.location and (text := kept(trace, holder.location)):
        target, value = text
        if value.isidentifier():
            edit = Edit(Action.DETACH, holder.location, name=value)
            title = f"write `{value}.item()` (or `{value}.detach()`) in place of `{value}`"
            return [Fix(title, holder.location, changes_gradients=False, edits=(edit,))]
        return [Fix(f"keep `{target}` detached: `{target} = {target}.detach()` after it", holder.location)]
    return [Fix(f"keep `.detach()` in `{holder.name}`, or `.item()` of a number", changes_gradients=False)]
