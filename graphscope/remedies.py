"""What would mend a failing call: edits of the sequence of events, each tried on the engine model first."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from ._plain import dataclass
from .engine import Culprit, Engine, Verdict
from .events import Backward, Event, GradRead, InPlaceWrite, OptimizerStep, ZeroGrad
from .findings import Action, Edit, Fix
from .graph import Graph
from .location import Location
from .trace import Trace

Timeline = list[tuple[int, Event]]
"""Events with the positions that they have in the trace."""


def remedies(trace: Trace, verdict: Verdict) -> tuple[Fix, ...]:
    """Fixes for a failing call: those that keep all gradients and hold the least memory first, those that fail last.

    A fix that would not help is kept only if people usually try it.
    """
    if verdict.kind not in ("freed", "stale"):
        return ()
    case = _Case(trace, verdict)
    candidates = [candidate for propose in _PROPOSALS for candidate in propose(case)]
    fixes = [case.tried(candidate) for candidate in candidates]
    shown = [fix for fix, candidate in zip(fixes, candidates, strict=True) if fix.works or candidate.popular]
    return tuple(sorted(dict.fromkeys(shown), key=_rank))


def _rank(fix: Fix) -> tuple[bool, bool, int]:
    return not fix.works, fix.changes_gradients is not False, fix.bytes or 0


@dataclass(frozen=True)
class _Candidate:
    """A fix, and the sequence (and graph, where it cuts edges) that the program would have with it."""

    fix: Fix
    timeline: Timeline
    graph: Graph | None = None
    popular: bool = False


@dataclass(frozen=True)
class _Case:
    """One failing call in its trace."""

    trace: Trace
    verdict: Verdict

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.trace.graph, self.trace.events)

    @cached_property
    def timeline(self) -> Timeline:
        return list(enumerate(self.trace.events))

    @cached_property
    def failing(self) -> frozenset[int]:
        """The positions of the calls that fail as things are."""
        return frozenset(verdict.position for verdict in self.engine.run(self.trace.events) if verdict.fails)

    @property
    def position(self) -> int:
        return self.verdict.position

    @cached_property
    def freers(self) -> tuple[Culprit, ...]:
        return tuple(culprit for culprit in self.verdict.culprits if culprit.kind == "freed")

    @cached_property
    def writers(self) -> tuple[Culprit, ...]:
        return tuple(culprit for culprit in self.verdict.culprits if culprit.kind == "stale")

    @cached_property
    def is_carried(self) -> bool:
        """Whether the statement that fails ran before: something was carried over from an earlier turn of a loop."""
        return any(_same_statement(event, self.verdict.event) for event in self.trace.events[: self.position])

    def alike(self, culprits: tuple[Culprit, ...]) -> frozenset[int]:
        """The positions of all runs of the culprits' statements: to edit a line is to edit each of them."""
        return frozenset(
            position
            for position, event in self.timeline
            if any(_same_statement(event, culprit.event) for culprit in culprits)
        )

    def edits(self, action: Action, events: Iterable[Event], other: Location | None = None) -> tuple[Edit, ...]:
        """The edits of these statements; none for a plan, whose statements are not at the lines it names."""
        locations = dict.fromkeys(event.location for event in events) if self.verdict.event.ran else ()
        return tuple(Edit(action, location, other) for location in locations)

    def is_part(self, culprit: Culprit) -> bool:
        """Whether a write is part of the computation that the failing call goes through."""
        if isinstance(culprit.event, OptimizerStep):
            return False
        made = self.trace.graph.locations
        return any(made.get(node) == culprit.event.location for node in self.engine.runs(self.verdict.event))

    def existed(self, time: int) -> bool:
        """Whether the roots of the failing call had been computed by then."""
        nodes = (root.node for root in self.verdict.event.roots)
        if not self.verdict.event.ran:
            return True
        made = [self.trace.graph.times.get(node) for node in nodes if node is not None]
        return all(each is not None and each <= time for each in made)

    def tried(self, candidate: _Candidate) -> Fix:
        """The fix with the model's answer: the call must run, and no other may begin to fail."""
        events = tuple(event for _, event in candidate.timeline)
        engine = self.engine if candidate.graph is None else Engine(candidate.graph, events)
        for verdict in engine.run(events):
            position = candidate.timeline[verdict.position][0]
            if not verdict.succeeds and (position == self.position or position not in self.failing):
                return replace(candidate.fix, checked=True, works=False, reason=self.objection(verdict))
        return replace(candidate.fix, checked=True, until=self.verdict.event.location if candidate.fix.bytes else None)

    def objection(self, verdict: Verdict) -> str:
        """Why a call still fails."""
        op = self.trace.graph.ops[verdict.node] if verdict.node is not None else "a node"
        by = ", ".join(
            dict.fromkeys(str(each.event.location) for each in verdict.culprits if each.kind == verdict.kind)
        )
        if verdict.kind == "freed":
            return f"the buffers of {op} would still have been freed" + (f" at {by}" if by else "")
        name = f"`{verdict.saved.name}`, " if verdict.saved else "a tensor "
        return f"{name}saved by {op}, would have been modified by an inplace operation" + (f" at {by}" if by else "")

    def held(self, culprits: tuple[Culprit, ...]) -> int:
        """Bytes that the graphs of these calls keep alive; leaves and parameters live on without them."""
        nodes = frozenset().union(
            *(self.engine.runs(each.event) for each in culprits if isinstance(each.event, Backward))
        )
        tensors, saved = self.trace.tensors, self.trace.graph.saved
        rows = (row for node in nodes & self.engine.buffers.needed for row in saved.get(node, ()) if not row.freed)
        kept = {(row.storage, row.bytes) for row in rows if row.tensor is None or not tensors[row.tensor].is_leaf}
        return sum(bytes for _, bytes in kept)

    def names(self, tensors: frozenset[int]) -> str:
        return ", ".join(f"`{self.trace.tensors[id]}`" for id in sorted(tensors))


def _same_statement(one: Event, other: Event) -> bool:
    """Whether both are runs of one statement. All of an assumed plan is written at one place."""
    if isinstance(other, Backward | OptimizerStep) and not other.ran:
        return one is other
    return type(one) is type(other) and one.location == other.location


def _call(event: Event) -> str:
    if not isinstance(event, Backward):
        return "the call"
    names = ", ".join(root.name for root in event.roots)
    return f"{names}.backward()" if event.accumulates and len(event.roots) == 1 else f"the backward of {names}"


def _writer(case: _Case, event: Event) -> str:
    if isinstance(event, OptimizerStep):
        return f"{case.trace.optimizers[event.optimizer].name}.step()"
    return f"`{event.op}`" if isinstance(event, InPlaceWrite) else "the write"


def _places(culprits: tuple[Culprit, ...]) -> str:
    return " and ".join(dict.fromkeys(str(culprit.event.location) for culprit in culprits))


def _retain(case: _Case) -> Iterator[_Candidate]:
    """Keep the graphs of the calls that freed it."""
    if case.freers:
        title = "pass retain_graph=True" + (f" at {_places(case.freers)}" if len(case.freers) > 1 else "")
        edits = case.edits(Action.RETAIN_GRAPH, [each.event for each in case.freers])
        if _uses_up(case):
            title += ", with torch._functorch.config.donated_buffer = False before the compiled code is first called"
            edits = ()
        where, held = case.freers[0].event.location, case.held(case.freers)
        fix = Fix(title, where, changes_gradients=False, bytes=held, edits=edits)
        timeline = _inserted(_retained(case, case.timeline), _next_turn(case), after=case.position)
        yield _Candidate(fix, timeline, case.trace.graph, popular=True)
        if case.writers and not case.is_carried and not _is_foreign(case):
            timeline = _postponed(case, _retained(case, case.timeline))
            what = _writer(case, case.writers[0].event)
            both = replace(fix, title=f"{title}, and move {what} after {_call(case.verdict.event)}")
            edits += _moves(case)
            yield _Candidate(replace(both, changes_gradients=_step_sees_more(case), edits=edits), timeline)


def _uses_up(case: _Case) -> bool:
    """Whether compiled code that is to keep its graph ran backward before, and may be made for one use."""
    compiled = case.trace.graph.compiled
    earlier = (event for event in case.trace.events[: case.freers[0].position] if isinstance(event, Backward))
    spent = (event for event in earlier if not (event.retain_graph or event.create_graph))
    return any(not compiled.isdisjoint(each.nodes) for each in case.freers) and any(
        not compiled.isdisjoint(case.engine.runs(event)) for event in spent
    )


def _retained(case: _Case, timeline: Timeline) -> Timeline:
    positions = case.alike(case.freers)
    return [
        (
            position,
            replace(event, retain_graph=True) if position in positions and isinstance(event, Backward) else event,
        )
        for position, event in timeline
    ]


def _next_turn(case: _Case) -> Timeline:
    """What the next turn of the loop does to what it will carry over from this one, if it will."""
    graph, event = case.trace.graph, case.verdict.event
    old = frozenset().union(*(case.engine.runs(each.event) for each in case.freers if isinstance(each.event, Backward)))
    new = case.engine.runs(event) - old
    joins = {target for node in new for target, _ in graph.targets[node] if target in old} - graph.leaf_tensors.keys()
    carried = {(graph.locations[node], graph.ops[node]) for node in joins if node in graph.locations}
    again = [node for node in new if (graph.locations.get(node), graph.ops[node]) in carried]
    if not case.is_carried or not again or not event.ran:
        return []
    between = case.timeline[case.freers[-1].position : case.position]
    steps = [(position, replace(each, ran=False)) for position, each in between if isinstance(each, OptimizerStep)]
    roots = tuple(replace(event.roots[0], node=node) for node in again)
    return [*steps, (case.position, replace(event, roots=roots, retain_graph=True))]


def _sum(case: _Case) -> Iterator[_Candidate]:
    """Backpropagate all the losses in one call."""
    event = case.verdict.event
    calls = [each.event for each in case.freers if isinstance(each.event, Backward)]
    if not calls or any(call.inputs != event.inputs or not call.accumulates for call in [*calls, event]):
        return
    roots = tuple(dict.fromkeys(root for call in [*calls, event] for root in call.roots))
    merged = replace(event, roots=roots)
    names = " + ".join(dict.fromkeys(root.name for root in roots))
    first = case.freers[0].position
    between = case.trace.events[first : case.position]
    others = {culprit.position for culprit in case.freers}
    rest = [
        (position, each) for position, each in case.timeline if position not in others and position != case.position
    ]
    if not any(isinstance(each, OptimizerStep | ZeroGrad | GradRead) for each in between):
        what = f"({names})" if len(roots) > 1 else names
        title = f"call {what}.backward() once" if not case.is_carried else "add up the losses and call backward once"
        fewer = len(roots) < sum(len(call.roots) for call in [*calls, event])  # what was counted twice counts once
        edits = case.edits(Action.SUM, calls, event.location)
        fix = Fix(title, event.location, changes_gradients=fewer, bytes=case.held(case.freers), edits=edits)
        yield _Candidate(fix, _inserted(rest, [(case.position, merged)], after=case.position))
    elif case.existed(case.freers[0].event.time):
        title = f"call ({names}).backward() once, before the steps"
        where = case.freers[0].event.location
        edits = case.edits(Action.SUM, [*calls[1:], event], where)
        fix = Fix(title, where, changes_gradients=True, bytes=0, edits=edits)
        yield _Candidate(fix, _inserted(rest, [(case.position, merged)], after=first))


def _inserted(timeline: Timeline, entries: Timeline, *, after: int) -> Timeline:
    index = next((index for index, (position, _) in enumerate(timeline) if position > after), len(timeline))
    return [*timeline[:index], *entries, *timeline[index:]]


def _later_write(case: _Case) -> Iterator[_Candidate]:
    """Move the step, or the write, after the call that needs the old values."""
    if not case.writers or case.is_carried or case.freers or any(map(case.is_part, case.writers)) or _is_foreign(case):
        return
    what = " and ".join(dict.fromkeys(_writer(case, culprit.event) for culprit in case.writers))
    fix = Fix(
        f"move {what} after {_call(case.verdict.event)}",
        case.writers[0].event.location,
        changes_gradients=_step_sees_more(case),
        bytes=0,
        edits=_moves(case),
    )
    timeline = _postponed(case, case.timeline)
    if _wipes(case.trace, timeline) <= _wipes(case.trace, case.timeline):
        yield _Candidate(fix, timeline)
    else:
        yield from _with_zeroing(case, fix)


def _with_zeroing(case: _Case, fix: Fix) -> Iterator[_Candidate]:
    """Move what clears gradients between the two calls before the first of them, lest it clear what a step needs."""
    zeros = {position for position in _moved(case) if isinstance(case.trace.events[position], ZeroGrad)}
    moved = [each for each in case.timeline if each[0] in zeros]
    stays = [each for each in case.timeline if each[0] not in zeros]
    first = min((call for call, zero in _wipes(case.trace, _postponed(case, case.timeline, zeros))), default=None)
    if first is None or not moved or not isinstance(call := case.trace.events[first], Backward):
        return
    timeline = _postponed(case, _inserted(stays, moved, after=first - 1), zeros)
    if _wipes(case.trace, timeline) <= _wipes(case.trace, case.timeline):
        names = " and ".join(dict.fromkeys(_zeroing(case, event) for _, event in moved))
        steps = [event for position, event in case.timeline if position in _moved(case) - zeros]
        edits = case.edits(Action.MOVE_AFTER, steps, case.verdict.event.location)
        edits += case.edits(Action.MOVE_BEFORE, [event for _, event in moved], call.location)
        title = f"{fix.title}, and {names} before {_call(call)}"
        yield _Candidate(replace(fix, title=title, edits=edits), timeline)


def _zeroing(case: _Case, event: Event) -> str:
    if isinstance(event, ZeroGrad) and event.optimizer is not None:
        return f"{case.trace.optimizers[event.optimizer].name}.zero_grad()"
    return "the zeroing"


def _wipes(trace: Trace, timeline: Timeline) -> frozenset[tuple[int, int]]:
    """The positions of each backward, and of the clearing of gradients that throws away what it made, unused."""
    fresh: dict[int, set[int]] = {}
    found: set[tuple[int, int]] = set()
    for position, event in timeline:
        match event:
            case Backward(accumulates=True):
                for id in trace.reached(event):
                    fresh.setdefault(id, set()).add(position)
            case OptimizerStep(optimizer=optimizer):
                for id in trace.optimizers[optimizer].parameters:
                    fresh.pop(id, None)
            case ZeroGrad(tensors=zeroed):
                found |= {(each, position) for id in zeroed for each in fresh.pop(id, ())}
            case _:
                pass
    return frozenset(found)


def _is_foreign(case: _Case) -> bool:
    """Whether a step moved behind the failing call would use its gradients, though another optimizer is there for it.

    The loss of a critic reaches the generator as well, which is not to follow it. Where that other optimizer holds
    the same parameters, both losses train them.
    """
    reached = case.trace.reached(case.verdict.event)
    for culprit in case.writers:
        if isinstance(culprit.event, OptimizerStep):
            held = reached & set(case.trace.optimizers[culprit.event.optimizer].parameters)
            others = [set(o.parameters) & reached for o in case.trace.optimizers if o.id != culprit.event.optimizer]
            if held and any(others) and not held <= set[int]().union(*others):
                return True
    return False


def _moved(case: _Case) -> frozenset[int]:
    """The positions of the steps and writes, and of the clearing of gradients that follows a step."""
    steps = {culprit.event.location for culprit in case.writers if isinstance(culprit.event, OptimizerStep)}
    moved = {culprit.position for culprit in case.writers}
    moved |= {
        position
        for position, event in case.timeline[: case.position]
        if isinstance(event, InPlaceWrite) and event.location in steps  # LBFGS writes several times in a step
    }
    moved |= {
        position
        for position, event in case.timeline[min(moved) : case.position]
        if isinstance(event, ZeroGrad) and any(isinstance(each.event, OptimizerStep) for each in case.writers)
    }
    return frozenset(moved)


def _moves(case: _Case) -> tuple[Edit, ...]:
    """The edits that move them after the failing call."""
    moved = [event for position, event in case.timeline if position in _moved(case)]
    return case.edits(Action.MOVE_AFTER, moved, case.verdict.event.location)


def _postponed(case: _Case, timeline: Timeline, stays: Collection[int] = ()) -> Timeline:
    """The steps and writes moved after the failing call, with the clearing of gradients that follows, if it may."""
    moved = _moved(case).difference(stays)
    index = next(index for index, (position, _) in enumerate(timeline) if position == case.position)
    start, end = timeline[: index + 1], timeline[index + 1 :]
    return [each for each in start if each[0] not in moved] + [each for each in start if each[0] in moved] + end


def _step_sees_more(case: _Case) -> bool:
    """Whether a step moved after the failing call would also use the gradients of that call."""
    reached = case.trace.reached(case.verdict.event)
    steps = (each.event for each in case.writers if isinstance(each.event, OptimizerStep))
    return any(reached & set(case.trace.optimizers[step.optimizer].parameters) for step in steps)


def _earlier_call(case: _Case) -> Iterator[_Candidate]:
    """Call it before the step, or the write."""
    if not case.writers or case.freers or case.is_carried:
        return
    first = case.writers[0]
    if first.position == case.position - 1 or not case.existed(first.event.time) or _is_foreign(case):
        return
    rest = [each for each in case.timeline if each[0] != case.position]
    timeline = _inserted(rest, [(case.position, case.verdict.event)], after=min(_moved(case)) - 1)
    title = f"call {_call(case.verdict.event)} before {_writer(case, first.event)}"
    where = case.verdict.event.location
    edits = case.edits(Action.MOVE_BEFORE, [case.verdict.event], first.event.location)
    fix = Fix(title, where, changes_gradients=_step_sees_more(case), bytes=0, edits=edits)
    if _wipes(case.trace, timeline) <= _wipes(case.trace, case.timeline):
        yield _Candidate(fix, timeline)


def _detach(case: _Case) -> Iterator[_Candidate]:
    """Cut the edges from what was made after the culprits' graphs to what was made before."""
    calls = [each.event for each in case.freers if isinstance(each.event, Backward)]
    if not calls or _trains_once(case):
        return
    graph = case.trace.graph
    old = frozenset().union(*(case.engine.completes(call) for call in calls))
    new = case.engine.runs(case.verdict.event) - old
    since = max(call.time for call in calls)
    first = graph.joints(new, old, since)
    if not first:
        return
    shared = frozenset(old - graph.leaf_tensors.keys())
    if graph.times.get(first[0], since) < since:
        since = 0  # all was made before the call that frees it
    joins = shared | {
        target
        for node in first
        for target, _ in graph.targets[node]
        if target >= 0 and graph.times.get(target, since) < since and graph.reachable([target]) & shared
    }
    cut = {
        node: tuple((-1, 0) if target in joins else (target, output) for target, output in graph.targets[node])
        for node in first
    }
    detached = replace(graph, targets=[cut.get(node, edges) for node, edges in enumerate(graph.targets)])
    roots = [root.node for root in case.verdict.event.roots if root.node is not None]
    if not all(detached.reached_tensors([root]) for root in roots):
        return  # a loss would be left without a graph
    lost = graph.reached_tensors(roots) - detached.reached_tensors(roots)
    reason = f"no gradient from {_call(case.verdict.event)} to {case.names(lost)}" if lost else None
    where = _first_location(graph, cut)
    if where and all(graph.ops[node].startswith("Clone") for node in cut):
        title = "write detach() in place of clone(), which keeps the history"
    elif where:
        others = sorted({at for node in cut if (at := graph.locations.get(node)) is not None and at != where})
        told = [f"line {at.line}" if at.file == where.file else str(at) for at in others]
        more = f", and {' and '.join(dict.fromkeys(told))}, take" if told else " takes"
        title = f"detach() what this statement{more} from the earlier graph"
    else:
        title = "detach() what the earlier graph gives"
    edits = _detachments(case, cut, joins)
    fix = Fix(title, where, changes_gradients=True, reason=reason, bytes=0, edits=edits)
    yield _Candidate(fix, case.timeline, graph=detached)


def _trains_once(case: _Case) -> bool:
    """Whether what was computed once, for all turns of a loop, is to train what an optimizer holds: in each of them."""
    if not case.is_carried or _made_once(case) is None:
        return False
    graph = case.trace.graph
    shared = graph.reached_tensors(node for culprit in case.verdict.culprits for node in culprit.nodes)
    return any(not shared.isdisjoint(optimizer.parameters) for optimizer in case.trace.optimizers)


def _detach_others(case: _Case) -> Iterator[_Candidate]:
    """The same, where it keeps the loss from nothing but what another optimizer is there for: a critic's."""
    for candidate in _detach(case):
        roots = [root.node for root in case.verdict.event.roots if root.node is not None]
        kept = candidate.graph.reached_tensors(roots) if candidate.graph is not None else frozenset()
        lost = case.trace.graph.reached_tensors(roots) - kept
        held = [frozenset(optimizer.parameters) for optimizer in case.trace.optimizers]
        if any(lost & each for each in held) and all(not (lost & each and kept & each) for each in held):
            yield candidate


def _detachments(case: _Case, cut: Iterable[int], joins: frozenset[int]) -> tuple[Edit, ...]:
    """The edits that detach, in each statement that made a cut node, the tensors it took from the earlier graph."""
    graph = case.trace.graph
    edits: dict[Edit, None] = {}
    names = {tensor.node: tensor.name for tensor in case.trace.tensors if tensor.name and tensor.node in joins}
    for node in cut:
        location = graph.locations.get(node)
        if location is None or not case.verdict.event.ran:
            return ()
        for target, _ in graph.targets[node]:
            if target in joins:
                edits[Edit(Action.DETACH, location, name=names.get(target))] = None
    return tuple(edits)


def _first_location(graph: Graph, nodes: dict[int, tuple[tuple[int, int], ...]]) -> Location | None:
    located = (node for node in sorted(nodes, key=graph.sequences.__getitem__) if node in graph.locations)
    return next((graph.locations[node] for node in located), None)


def _recompute(case: _Case) -> Iterator[_Candidate]:
    """Compute the forward anew: nothing that came before has touched the nodes it makes."""
    culprits, event = case.verdict.culprits, case.verdict.event
    if not culprits or any(map(case.is_part, case.writers)) or case.engine.buffers.gone & case.engine.runs(event):
        return
    last = culprits[-1]
    if case.existed(last.event.time):
        what = ", ".join(root.name for root in event.roots)
        edits = _computed_again(case)
    elif (once := _made_once(case)) is not None:
        what, edits = f"what {once} gives", ()
    else:
        return
    between = case.trace.events[last.position : case.position]
    wrote = bool(case.writers) or any(isinstance(each, OptimizerStep | InPlaceWrite) for each in between)
    title = f"compute {what} again after {_places(culprits)}"
    if case.is_carried and what.startswith("what "):
        title = f"compute {what} anew for each {_call(event)}"
    fix = Fix(title, event.location, changes_gradients=wrote, bytes=0, edits=edits)
    yield _Candidate(fix, [each for each in case.timeline if each[0] >= case.position])


def _computed_again(case: _Case) -> tuple[Edit, ...]:
    """The edits that repeat, before the failing call, the statements of its function that computed its roots."""
    graph, here = case.trace.graph, case.verdict.event.location
    locations: dict[Location, None] = {}
    for node in case.engine.runs(case.verdict.event) - graph.leaf_tensors.keys():
        places = (graph.locations.get(node), *graph.callers.get(node, ()))
        mine = (each for each in places if each and (each.file, each.function) == (here.file, here.function))
        location = next(mine, None)
        if location is None or location >= here or not case.verdict.event.ran:
            return ()
        locations[location] = None
    return tuple(Edit(Action.COMPUTE_AGAIN, location, here) for location in sorted(locations))


def _made_once(case: _Case) -> Location | None:
    """The statement that gave all of what the failing call shares with its culprits, if that ran only once."""
    graph = case.trace.graph
    shared = {node for culprit in case.verdict.culprits for node in culprit.nodes}
    if {graph.locations.get(node) for node in shared} != {place := graph.locations.get(min(shared, default=-1))}:
        place = _only([_called(case, node) for node in shared])
    if place is None:
        return None
    again = (node for node, at in graph.locations.items() if place in (at, *graph.callers.get(node, ())))
    return place if max(graph.times[node] for node in again) < case.verdict.culprits[0].event.time else None


def _called(case: _Case, node: int) -> Location | None:
    """The statement that made a node, of those in the function of the failing call."""
    here = case.verdict.event.location
    around = (case.trace.graph.locations.get(node), *case.trace.graph.callers.get(node, ()))
    return next((each for each in around if each and (each.file, each.function) == (here.file, here.function)), None)


def _only(places: list[Location | None]) -> Location | None:
    """The place that all of these are."""
    return places[0] if len(set(places)) == 1 else None


def _without_write(case: _Case) -> Iterator[_Candidate]:
    """Write to another tensor: the out-of-place form, or a clone made before."""
    writes = tuple(culprit for culprit in case.writers if isinstance(culprit.event, InPlaceWrite))
    if not writes or len(writes) < len(case.verdict.culprits):
        return
    removed = case.alike(writes)
    timeline = [each for each in case.timeline if each[0] not in removed]
    for culprit in writes[:1]:
        event = culprit.event
        assert isinstance(event, InPlaceWrite)
        for title, action in _other_forms(case, event):
            edits = [edit for each in writes for edit in _edits_of(case, each.event, action)]
            size = _size(case, culprit)
            fix = Fix(title, event.location, changes_gradients=False, bytes=size, edits=tuple(edits))
            yield _Candidate(fix, timeline)


def _edits_of(case: _Case, event: Event, action: Action | None) -> Iterator[Edit]:
    """What to change at a write."""
    if action is not None and isinstance(event, InPlaceWrite):
        tensors, number = case.trace.tensors, event.write.tensor
        name = _written_name(case, event) or (tensors[number].name if number < len(tensors) else None)
        yield from (replace(edit, name=name) for edit in case.edits(action, [event]))


def _written_name(case: _Case, event: InPlaceWrite) -> str | None:
    """What the statement that writes calls the tensor: ``h`` for ``h += 1``, ``h[0] = 1`` and ``h.add_(1)``."""
    at = event.location
    try:
        tree = ast.parse(case.trace.sources.get(at.file, ""))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and (node.lineno, node.end_lineno) == (
            at.line,
            at.end_line,
        ):
            if isinstance(node, ast.Expr):
                written = node.value.func.value if _is_method(node.value, event.op) else None  # type: ignore[attr-defined]
            else:
                written = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(node, ast.Assign) and not isinstance(written, ast.Subscript):
                    written = None
            written = written.value if isinstance(written, ast.Subscript) else written
            return ast.unparse(written) if isinstance(written, ast.Name | ast.Attribute) else None
    return None


def _is_method(node: ast.expr, op: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == op


def _other_forms(case: _Case, event: InPlaceWrite) -> Iterator[tuple[str, Action | None]]:
    """What to write instead, and the action that does it."""
    tensors = case.trace.tensors
    tensor = tensors[event.write.tensor] if event.write.tensor < len(tensors) else None
    name = _written_name(case, event) or (tensor and tensor.name) or "x"
    if tensor is not None and tensor.id in case.trace.graph.leaf_tensors.values():
        yield f"use {name}.clone() in the forward, so that the graph keeps the old values", None
        return
    saved_at = case.trace.graph.locations.get(-1 if case.verdict.node is None else case.verdict.node)
    if event.op == "__setitem__" and saved_at == event.location:  # a copy of the whole would be written just as well
        yield f"collect the values in a list, and torch.stack it, in place of writing into `{name}`", None
        return
    operator = _OPERATORS.get(event.op.strip("_").removeprefix("i"))
    if operator:
        yield f"write `{name} = {name} {operator} ...`, out of place", Action.OUT_OF_PLACE
    elif event.op.endswith("_") and not event.op.startswith("_"):
        yield f"write `{name} = {name}.{event.op.rstrip('_')}(...)`, out of place", Action.OUT_OF_PLACE
    elif not event.op.endswith("_"):  # a function's name
        yield "leave `inplace=True` out", Action.OUT_OF_PLACE
    yield f"write to a copy: `{name} = {name}.clone()` before it", Action.CLONE


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "matmul": "@"}


def _size(case: _Case, culprit: Culprit) -> int:
    """Bytes of the old values that the graph then keeps beside the new ones."""
    counters = {write.counter for write in culprit.writes}
    rows = (row for node in culprit.nodes for row in case.trace.graph.saved.get(node, ()) if row.counter in counters)
    return max((row.bytes for row in rows), default=0)


_PROPOSALS: tuple[Callable[[_Case], Iterator[_Candidate]], ...] = (
    _sum,
    _retain,
    _later_write,
    _earlier_call,
    _without_write,
    _detach_others,
    _recompute,
    _detach,
)
