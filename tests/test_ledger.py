"""What the gradients hold and which steps take turns, on timelines written by hand and on a few recorded ones."""

from __future__ import annotations

import torch

import graphscope
from graphscope.cycles import Loop, Mark, kin, loops
from graphscope.events import Backward, Event, GradWrite, OptimizerStep, ZeroGrad
from graphscope.graph import Graph, Root
from graphscope.ledger import Ledger, ledger
from graphscope.location import Location
from graphscope.trace import OptimizerRef, Trace


def at(line: int) -> Location:
    return Location("train.py", line, line)


# Nodes 0 and 1 are the leaves with tensors 0 and 1; node 2 reaches both, node 3 only tensor 0.
GRAPH = Graph(
    ops=["AccumulateGrad", "AccumulateGrad", "MulBackward0", "ExpBackward0"],
    sequences=[-1, -1, 0, 1],
    outputs=[(), (), (), ()],
    targets=[(), (), ((0, 0), (1, 0)), ((0, 0),)],
    leaf_tensors={0: 0, 1: 1},
)
BOTH, FIRST = 2, 3
OPTIMIZERS = (OptimizerRef(0, "a", "SGD", ((0,),), at(1)), OptimizerRef(1, "b", "SGD", ((1,),), at(2)))


def timeline(*said: tuple[str, int, int]) -> Trace:
    """Events from ``(kind, line, of)``: the node of a backward, the optimizer of a step, the tensor zeroed."""
    events: list[Event] = []
    for time, (kind, line, of) in enumerate(said):
        match kind:
            case "backward":
                events.append(Backward(time, 0, at(line), (Root("loss", of, 9),)))
            case "step":
                events.append(OptimizerStep(time, 0, at(line), of))
            case "zero":
                events.append(ZeroGrad(time, 0, at(line), (of,)))
            case "set":
                events.append(GradWrite(time, 0, at(line), "grad =", (of,), (of,), replaces=True))
    return Trace(GRAPH, tuple(events), optimizers=OPTIMIZERS)


def held(book: Ledger, position: int) -> list[list[int]]:
    """For each different holding of a use, the times of its changes, last first."""
    return [[change.time for change in holding] for holding, _ in book.uses[position].parts]


def test_a_grad_holds_all_backwards_since_it_was_zeroed() -> None:
    book = ledger(
        timeline(("backward", 1, BOTH), ("zero", 2, 0), ("backward", 3, FIRST), ("backward", 4, BOTH), ("step", 5, 0))
    )
    assert held(book, 0) == [[3, 2, 1]]
    assert [change.time for change in book.uses[0].fresh] == [2, 3]


def test_what_another_loss_left_is_told_by_parameter() -> None:
    book = ledger(timeline(("backward", 1, BOTH), ("step", 2, 1), ("backward", 3, FIRST), ("step", 4, 0)))
    assert held(book, 0) == [[0]]
    assert held(book, 1) == [[2, 0]]


def test_a_step_leaves_used_gradients_behind() -> None:
    book = ledger(timeline(("backward", 1, FIRST), ("step", 2, 0), ("backward", 3, FIRST), ("step", 4, 0)))
    holding, _ = book.uses[1].parts[0]
    assert holding.used is not None and holding.used.time == 1
    assert [change.time for change in holding.fresh] == [2]


def test_a_grad_that_is_set_holds_nothing_of_before() -> None:
    book = ledger(timeline(("backward", 1, FIRST), ("step", 2, 0), ("set", 3, 0), ("step", 4, 0)))
    assert held(book, 1) == [[2]]


def test_a_step_that_wraps_another_is_not_a_second_use() -> None:
    inner, outer = OptimizerStep(1, 0, at(2), 0), OptimizerStep(2, 0, at(3), 0, began=0)
    trace = timeline(("backward", 1, FIRST))
    book = Ledger(Trace(GRAPH, (*trace.events, inner, outer), optimizers=OPTIMIZERS))
    assert [use.step for use in book.uses] == [inner]


def test_a_hundred_thousand_steps_that_never_zero_stay_linear() -> None:
    said = [(kind, line, of) for _ in range(50_000) for kind, line, of in (("backward", 1, FIRST), ("step", 2, 0))]
    book = Ledger(timeline(*said))
    holding, _ = book.uses[-1].parts[0]
    assert len(book.uses) == 50_000 and len(holding.fresh) == 1 and holding.used is not None


def shapes(loop: Loop) -> list[list[tuple[list[tuple[str, int, int]], int]]]:
    """Turns as ``[([(kind, line, how often)], how often)]``."""
    return [
        [([(mark.kind, mark.location.line, n) for mark, n in part], often) for part, often in turn.shape]
        for turn in loop.turns
    ]


def test_several_steps_of_one_optimizer_to_one_of_another_are_one_turn() -> None:
    inner = [("zero", 10, 0), ("backward", 11, FIRST), ("step", 12, 0)] * 3
    (loop,) = loops(timeline(*([*inner, ("backward", 13, BOTH), ("step", 14, 1)] * 2)))
    assert loop.end == Mark("step", at(14), 1)
    critic = ([("zero", 10, 1), ("backward", 11, 1), ("step", 12, 1)], 3)
    assert shapes(loop) == [[critic, ([("backward", 13, 1), ("step", 14, 1)], 1)]] * 2
    assert [turn.backwards for turn in loop.turns] == [4, 4]


def test_the_steady_pattern_is_not_that_of_an_uneven_tail() -> None:
    full = [("backward", 1, FIRST)] * 4 + [("step", 2, 0), ("zero", 3, 0)]
    tail = [("backward", 1, FIRST), ("step", 2, 0)]
    (loop,) = loops(timeline(*full, *full, *full, *tail))
    assert [turn.backwards for turn in loop.turns] == [4, 4, 4, 1]
    assert loop.regular == 2 and loop.steady == loop.turns[1].shape  # the first has no zeroing before it


def test_loops_one_after_another_are_told_apart() -> None:
    first, second = ([("backward", 1, BOTH), ("step", line, 0)] * 2 for line in (2, 3))
    assert [len(loop.turns) for loop in loops(timeline(*first, *second))] == [2, 2]


def test_a_loop_that_never_steps_is_cut_at_its_backwards() -> None:
    (loop,) = loops(timeline(*[("backward", 1, FIRST), ("zero", 2, 0)] * 3))
    assert loop.end.kind == "backward" and len(loop.turns) == 3


def test_what_a_closure_does_counts_once() -> None:
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = torch.optim.LBFGS([weight], max_iter=3)
    with graphscope.watch() as report:
        for _ in range(3):

            def closure():
                optimizer.zero_grad()
                loss = (weight**4).sum()
                loss.backward()
                return loss

            optimizer.step(closure)
    (loop,) = loops(report.trace)
    assert {turn.backwards for turn in loop.turns} == {1}
    assert len({turn.shape for turn in loop.turns}) == 1


def test_an_optimizer_that_is_rebuilt_counts_as_the_first_one() -> None:
    twin = OptimizerRef(2, "a", "SGD", ((0,),), at(1))
    assert kin(Trace(optimizers=(*OPTIMIZERS, twin))) == (0, 1, 0)


def changes(run) -> list[tuple[str, tuple[str | None, ...]]]:
    """What was done to gradients by hand: the functions, with the shapes of the tensors."""
    net = torch.nn.Linear(2, 1)
    net(torch.ones(3, 2)).sum().backward()
    with graphscope.watch() as report:
        run(net)
    shape = {row.id: row.shape for row in report.trace.tensors}
    return [
        (
            event.op if isinstance(event, GradWrite) else "zero",
            tuple(shape[id] for id in event.tensors),
        )
        for event in report.trace.events
        if isinstance(event, GradWrite | ZeroGrad)
    ]


BIAS, WEIGHT = (1,), (1, 2)


def test_clipping_is_seen_however_it_is_imported() -> None:
    from torch.nn.utils import clip_grad_norm_, clip_grad_value_

    assert changes(lambda net: clip_grad_norm_(net.parameters(), 1.0)) == [("clip_grad_norm_", (WEIGHT, BIAS))]
    assert changes(lambda net: torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)) == [
        ("clip_grad_value_", (WEIGHT, BIAS))
    ]
    assert ("_foreach_clamp_min_", (WEIGHT, BIAS)) in changes(lambda net: clip_grad_value_(net.parameters(), 1.0))


def test_zeroing_is_seen_however_it_is_written() -> None:
    def by_multiplying(net):
        net.bias.grad *= 0

    def by_detached_alias(net):
        net.bias.grad.detach().zero_()

    def by_data(net):
        net.bias.grad.data.fill_(0)

    def by_none(net):
        net.bias.grad = None

    for run in (by_multiplying, by_detached_alias, by_data, by_none):
        assert changes(run) == [("zero", (BIAS,))], run


def test_scaling_in_place_is_no_new_gradient() -> None:
    def halve(net):
        net.weight.grad /= 2

    def replace(net):
        net.weight.grad = torch.ones(1, 2)

    assert changes(halve) == [("div_", (WEIGHT,))]
    assert changes(replace) == [("grad =", (WEIGHT,))]
