"""Fixes are tried on the engine model before they are shown."""

from __future__ import annotations

from dataclasses import replace

from test_engine import HERE, TRUNK, backward, graph, saved, write

from graphscope.engine import simulate
from graphscope.events import Backward, Event, OptimizerStep, Write
from graphscope.findings import Fix
from graphscope.graph import Graph, TensorRef
from graphscope.location import Location
from graphscope.remedies import remedies
from graphscope.trace import OptimizerRef, Trace

PARAMETER = TensorRef(0, "w", (2,), "float32", "cpu", True, True, 1, 1, 0)
SHARED = Graph(
    ops=["AccumulateGrad", "MulBackward0", "SinBackward0", "CosBackward0"],
    sequences=[-1, 0, 1, 2],
    outputs=[()] * 4,
    targets=[(), ((0, 0),), ((1, 0),), ((1, 0),)],
    saved={1: (saved("other", counter=1),), 2: (saved(counter=2),), 3: (saved(counter=3),)},
    leaf_tensors={0: 0},
    tensors=(PARAMETER,),
)
"""Two losses, nodes 2 and 3, on a trunk that multiplies by the parameter."""


def step() -> OptimizerStep:
    return OptimizerStep(0, 0, HERE, 0, (Write(0, 1, 1, 0, 1),), ran=False)


def at(line: int, event: Backward) -> Backward:
    return Backward(0, 0, Location("train.py", line, line), event.roots, event.retain_graph)


def fixes(graph: Graph, *events: Event) -> list[Fix]:
    trace = Trace(graph, events, optimizers=(OptimizerRef(0, "opt", "SGD", ((0,),)),))
    failing = next(verdict for verdict in simulate(trace) if not verdict.succeeds)
    return list(remedies(trace, failing))


def find(found: list[Fix], words: str) -> Fix:
    return next(fix for fix in found if words in fix.title)


def test_sum_and_retain_mend_two_losses() -> None:
    found = fixes(TRUNK, at(1, backward(2)), at(2, backward(3)))
    assert found[0].works and found[0].changes_gradients is False
    assert find(found, "once").works
    retain = find(found, "retain_graph=True")
    assert (retain.works, retain.location, retain.bytes) == (True, Location("train.py", 1, 1), 16)


def test_a_loss_that_was_counted_twice_counts_once_in_a_sum() -> None:
    once = find(fixes(TRUNK, at(1, backward(2)), at(2, backward(2))), "once")
    assert (once.title, once.changes_gradients) == ("call loss.backward() once", True)


def test_retain_across_a_step_does_not_help_and_says_why() -> None:
    found = fixes(SHARED, backward(2, ran=False), step(), backward(3, ran=False))
    retain = next(fix for fix in found if fix.title == "pass retain_graph=True")
    assert not retain.works and "`other`, saved by MulBackward0" in (retain.reason or "")
    assert found[-1] is retain
    assert find(found, "retain_graph=True, and move opt.step() after").works


def test_step_moves_after_the_backward() -> None:
    found = fixes(SHARED, backward(2, retain_graph=True, ran=False), step(), backward(3, ran=False))
    moved = find(found, "move opt.step() after")
    assert moved.works and moved.changes_gradients


def test_detach_names_what_loses_its_gradient() -> None:
    own = replace(
        SHARED,
        ops=[*SHARED.ops, "AccumulateGrad"],
        sequences=[*SHARED.sequences, -1],
        outputs=[()] * 5,
        targets=[*SHARED.targets[:3], ((1, 0), (4, 0)), ()],
        leaf_tensors={0: 0, 4: 1},
        tensors=(PARAMETER, replace(PARAMETER, id=1, name="v", storage=9, counter=9)),
    )
    detach = find(fixes(own, at(1, backward(2)), at(2, backward(3))), "detach()")
    assert detach.works and detach.changes_gradients and "`w`" in (detach.reason or "")


def test_detach_is_not_proposed_where_it_would_leave_a_loss_without_a_graph() -> None:
    assert not any("detach()" in fix.title for fix in fixes(SHARED, at(1, backward(2)), at(2, backward(3))))


def test_write_to_a_copy_mends_a_stale_tensor() -> None:
    found = fixes(TRUNK, write(1, 0), at(2, backward(2)))
    assert find(found, "clone()").works
    assert find(found, "out of place").title == "write `x = x + ...`, out of place"


def test_retaining_what_was_compiled_for_one_use_names_the_switch() -> None:
    """torch refuses retain_graph through compiled code that ran a backward without it before."""
    plain = graph(
        {1: (0,), 2: (1,), 4: (0,), 5: (4,), 6: (4,)}, {1: (saved(),), 4: (saved(),)}, custom={1: True, 4: True}
    )
    ops = ["CompiledFunctionBackward" if node in plain.custom else op for node, op in enumerate(plain.ops)]
    compiled = replace(plain, ops=ops)
    first, *again = at(1, backward(2)), at(2, backward(5)), at(3, backward(6))
    assert "donated_buffer = False" in find(fixes(compiled, first, *again), "retain_graph=True").title
    assert "donated_buffer" not in find(fixes(compiled, *again), "retain_graph=True").title
