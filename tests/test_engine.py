"""The engine model on small traces written by hand; ``test_oracle`` compares it with torch itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphscope.engine import Change, Culprit, Engine, Verdict, simulate
from graphscope.events import Backward, Event, InPlaceWrite, OptimizerStep, Write
from graphscope.graph import Graph, Root, SavedColumn, SavedTensor
from graphscope.location import Location
from graphscope.trace import Trace

HERE = Location("train.py", 1, 1)


def saved(name: str = "self", *, counter: int = -1, version: int | None = 0, **more: bool) -> SavedTensor:
    return SavedTensor(name, (2,), "float32", 8, counter, counter, version, **more)


def graph(
    edges: dict[int, tuple[int, ...]],
    holds: dict[int, tuple[SavedTensor, ...]],
    custom: dict[int, bool | None] | None = None,
) -> Graph:
    """Nodes are numbered in the order of their making; a node without edges is a leaf."""
    nodes = range(max([*edges, *(target for targets in edges.values() for target in targets)]) + 1)
    return Graph(
        ops=["ExpBackward0" if node in edges else "AccumulateGrad" for node in nodes],
        sequences=[node if node in edges else -1 for node in nodes],
        outputs=[() for _ in nodes],
        targets=[tuple((target, 0) for target in edges.get(node, ())) for node in nodes],
        saved=holds,
        custom=custom or {},
    )


def backward(*nodes: int | None, **more: object) -> Backward:
    return Backward(0, 0, HERE, tuple(Root("loss", node, 0) for node in nodes), **more)  # type: ignore[arg-type]


def write(counter: int, before: int, *, hidden: bool = False) -> InPlaceWrite:
    return InPlaceWrite(0, 0, HERE, "add_", Write(0, counter, counter, before, before + (not hidden), hidden))


def verdicts(graph: Graph, *events: Event) -> tuple[Verdict, ...]:
    return simulate(Trace(graph, events))


def culprits(verdict: Verdict) -> list[tuple[int, str]]:
    return [(culprit.position, culprit.kind) for culprit in verdict.culprits]


TRUNK = graph({1: (0,), 2: (1,), 3: (1,)}, {1: (saved(counter=1),), 2: (saved(counter=2),), 3: (saved(counter=3),)})
"""Two losses, nodes 2 and 3, on the trunk 1."""


def test_second_backward_over_a_shared_trunk_fails_at_the_trunk() -> None:
    first, second = verdicts(TRUNK, backward(2), backward(3))
    assert first.succeeds
    assert (second.kind, second.node, second.certain) == ("freed", 1, True)
    assert second.culprits == (Culprit(backward(2), 0, "freed", (1,)),)


def test_retained_backward_is_no_culprit() -> None:
    assert verdicts(TRUNK, backward(2, retain_graph=True), backward(3))[1].succeeds
    assert culprits(verdicts(TRUNK, backward(2, retain_graph=True), backward(2), backward(3))[2]) == [(1, "freed")]


def test_write_after_saving_fails_and_write_before_does_not() -> None:
    late = verdicts(TRUNK, write(1, 0), backward(2))[0]
    assert (late.kind, late.node, late.version, culprits(late)) == ("stale", 1, 1, [(0, "stale")])
    later = graph({1: (0,)}, {1: (saved(counter=1, version=1),)})
    assert verdicts(later, write(1, 0), backward(1))[0].succeeds


def test_nodes_that_save_nothing_run_twice() -> None:
    assert verdicts(graph({1: (0,)}, {}), backward(1), backward(1))[1].succeeds


def test_custom_function_fails_only_if_it_reads() -> None:
    def second(reads: bool | None) -> Verdict:
        return verdicts(graph({1: (0,)}, {1: (saved(),)}, {1: reads}), backward(1), backward(1))[1]

    assert second(False).succeeds
    assert second(True).fails
    assert not second(None).succeeds and not second(None).fails


def test_assumed_steps_add_up() -> None:
    step = OptimizerStep(0, 0, HERE, 0, (Write(0, 1, 1, 0, 1),), ran=False)
    trace = Trace(TRUNK, (backward(2, retain_graph=True, ran=False), step, step, backward(3, ran=False)))
    verdict = simulate(trace)[1]
    assert (verdict.kind, verdict.version, culprits(verdict)) == ("stale", 2, [(1, "stale"), (2, "stale")])


def test_write_to_a_tensor_of_unknown_version_counts_if_it_came_later() -> None:
    undated = graph({1: (0,)}, {1: (saved(counter=1, version=None),)})
    first, second = (replace(write(1, 0), time=time) for time in (1, 5))
    assert not verdicts(undated, first, backward(1))[0].certain
    known = replace(undated, times={1: 3})
    assert verdicts(known, first, backward(1))[0].succeeds
    assert culprits(verdicts(known, first, second, backward(1))[0]) == [(1, "stale")]


def test_saved_rows_and_saved_tensors_say_the_same() -> None:
    rows = {node: tuple(map(tuple, saved)) for node, saved in TRUNK.saved.items()}
    columns = replace(TRUNK, saved=SavedColumn(rows))
    for events in [(backward(2), backward(3)), (write(1, 0), backward(2))]:
        assert verdicts(columns, *events) == verdicts(TRUNK, *events)


def test_hooked_tensors_are_freed_but_have_no_version() -> None:
    packed = graph({1: (0,)}, {1: (saved(counter=1, version=None, hooked=True),)})
    assert [verdict.kind for verdict in verdicts(packed, write(1, 0), backward(1), backward(1))] == [None, "freed"]


def test_failing_backward_frees_what_ran_before() -> None:
    first, second, trunk = verdicts(TRUNK, write(1, 0), backward(2), backward(2), backward(1))
    assert (first.node, second.kind, second.node) == (1, "freed", 2)
    assert trunk.kind == "stale"


def test_inputs_run_and_free_only_what_leads_to_them() -> None:
    chain = graph({1: (0,), 2: (1,), 3: (2,)}, {node: (saved(counter=node),) for node in (1, 2, 3)})
    assert verdicts(chain, backward(3, inputs=(2,), accumulates=False), backward(2))[1].succeeds
    assert verdicts(chain, backward(3, inputs=(2,)), backward(2))[1].node == 2


def test_root_without_a_graph_fails() -> None:
    assert verdicts(TRUNK, backward(2, None), backward(2))[0].kind == "no graph"


def test_buffers_freed_before_the_trace_have_no_culprit() -> None:
    gone = graph({1: (0,)}, {1: (saved(freed=True),)})
    verdict = verdicts(gone, backward(1))[0]
    assert (verdict.kind, verdict.culprits, verdict.unseen) == ("freed", (), True)


def test_all_culprits_are_named() -> None:
    last = verdicts(TRUNK, backward(2), write(1, 0), write(2, 0), backward(3), backward(3))[-1]
    assert culprits(last) == [(0, "freed"), (1, "stale"), (3, "freed")]


def changes(graph: Graph, *events: Event) -> list[Change]:
    return list(Engine(graph, events).changes(events))


def test_each_event_changes_the_buffers_it_releases_or_makes_stale_and_no_others() -> None:
    kept, written, last = changes(TRUNK, backward(2, retain_graph=True), write(3, 0), backward(2))
    assert kept == Change()
    assert written == Change(stale=frozenset({3}))
    assert last == Change(freed=frozenset({1, 2}))


def test_failing_backward_releases_what_ran_before_it_failed() -> None:
    first, second = changes(TRUNK, backward(2), backward(3))
    assert first.freed == {1, 2}
    assert second.freed == {3}


def test_write_makes_a_saved_tensor_of_unknown_version_stale_once() -> None:
    undated = graph({1: (0,)}, {1: (saved(counter=1, version=None),)})
    assert [change.stale for change in changes(undated, write(1, 0), write(1, 1))] == [{1}, frozenset()]


def test_what_a_step_writes_one_by_one_is_told_as_the_step() -> None:
    step = OptimizerStep(0, 0, HERE, 0, (Write(0, 1, 1, 0, 1),))
    last = verdicts(TRUNK, write(1, 0), step, backward(2))[-1]
    assert culprits(last) == [(1, "stale")]
    elsewhere = replace(write(1, 0), location=Location("train.py", 2, 2))
    assert culprits(verdicts(TRUNK, elsewhere, step, backward(2))[-1]) == [(0, "stale"), (1, "stale")]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("RuntimeError: invalid gradient at index 1 - got [] but expected shape compatible with [3]", (None, True)),
        (
            "RuntimeError: The differentiated Tensor at index 1 appears to not have been used in the graph.",
            ("freed", True),
        ),
        ("RuntimeError: Function MulBackward0 returned an invalid gradient at index 0 - got [2]", ("freed", False)),
    ],
)
def test_an_error_tells_whether_the_nodes_ran(error: str, expected: tuple[str | None, bool]) -> None:
    """Roots are checked before any node runs, unused inputs after all did; a node that fails stops them midway."""
    _, second = verdicts(TRUNK, backward(2, error=error), backward(3))
    assert (second.kind, second.certain) == expected
