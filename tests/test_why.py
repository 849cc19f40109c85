"""``why``: connected exactly when torch gives a gradient, and the statement it names is the one that cut."""

from __future__ import annotations

import linecache
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import graphscope
from graphscope import GraphscopeError
from graphscope.cli import main

FILE = "<ipython-input-1>"
CUTS = {
    "detach": "{0}.detach()",
    "data": "{0}.data",
    "numpy": "torch.from_numpy({0}.detach().numpy() * 1)",
    "tensor": "torch.tensor({0}.tolist())",
    "round trip of numbers": "torch.tensor([each.item() for each in {0}])",
    "argmax": "nn.functional.one_hot({0}.argmax(), 3).float()",
    "int": "({0} * 100).long().float()",
    "comparison": "({0} > 0.1).float()",
    "no_grad": "torch.no_grad()(lambda value: value * 1)({0})",
}
OPERATIONS = ["{0} * {1}", "{0} + 0.3 * {1}", "torch.tanh({0}) - {1}", "torch.cat([{0}[:2], {1}[2:]])", "{0}.exp()"]


class Program:
    """A random program of straight-line statements, some of which cut; without some of its cuts on demand."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.lines: list[tuple[str, str]] = []  # with the cut, and without
        names = ["p", "q", "x"]
        for number in range(choose.randrange(3, 9)):
            operation = choose.choice(OPERATIONS).format(choose.choice(names), choose.choice(names))
            live = f"h{number} = {operation}"
            cut = choose.choice(list(CUTS.values())) if choose.random() < 0.35 else None
            self.lines.append((f"h{number} = {cut.format(f'({operation})')}" if cut else live, live))
            names.append(f"h{number}")
        self.lines.append((f"loss = ({choose.choice(names[3:])} + 0.1 * r).sum()",) * 2)

    def run(self, without: Collection[int] = ()) -> tuple[dict[str, Any], list[graphscope.Why]]:
        """The variables after a watched run without the cuts of these lines, and what ``why`` says of p and q."""
        source = "".join(f"{live if n in without else cut}\n" for n, (cut, live) in enumerate(self.lines, 1))
        linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
        torch.manual_seed(0)
        names: dict[str, Any] = {name: torch.rand(3).add(0.05).requires_grad_() for name in "pqr"}
        names |= {"x": torch.rand(3), "torch": torch, "nn": nn, "np": np}
        with graphscope.watch():
            exec(compile(source, FILE, "exec"), names)
            said = [graphscope.why(names[name], names["loss"]) for name in "pq"]
        return names, said

    def connects(self, name: str, without: Collection[int]) -> bool:
        """Whether torch gives this variable a gradient once the cuts of these lines are gone."""
        names, _ = self.run(without)
        return torch.autograd.grad(names["loss"], names[name], allow_unused=True)[0] is not None


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(min_value=0, max_value=1 << 30))
def test_connected_exactly_when_torch_gives_a_gradient(seed: int) -> None:
    program = Program(seed)
    _, said = program.run()
    for name, why in zip("pq", said, strict=True):
        assert why.connected == program.connects(name, ()), program.lines
        if why.connected:
            continue
        every = range(1, len(program.lines) + 1)
        named = {call.location.line for call in why.cuts if call.location}
        assert program.connects(name, named if named else every) == bool(named), (program.lines, why.text)
        if len(named) > 1:  # then no statement alone is to blame
            assert not any(program.connects(name, [line]) for line in every), (program.lines, why.text)
        assert (why.cut is not None) == (len(named) == 1)


class Step:
    """Two nets and their loss, watched."""

    def __init__(self) -> None:
        self.net1, self.net2 = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4)), nn.Linear(4, 1)
        self.x = torch.randn(2, 3)


def test_way_is_told_operator_by_operator() -> None:
    step = Step()
    why = graphscope.why("step.net1.0.weight", step.net2(step.net1(step.x)).sum())
    assert why.connected and why.path and "AddmmBackward0" in str(why)
    loss = graphscope.trace(step.net2(step.net1(step.x)).sum())
    assert loss.ops[why.path[0]] == "SumBackward0"


def test_cut_is_named_with_the_last_call_on_each_side() -> None:
    step = Step()
    with graphscope.watch():
        hidden = step.net1(step.x)
        copied = hidden.detach()
        loss = step.net2(copied).sum()
        why = graphscope.why("step.net1.0.weight", loss)
    assert not why.connected and [call.op for call in why.cuts] == ["detach"]
    assert why.cut is not None and linecache.getline(__file__, why.cut.line).strip() == "copied = hidden.detach()"
    assert why.before is not None and why.before.op == "linear" and why.after is not None and why.after.op == "linear"


def test_loss_that_never_uses_it_is_told_so() -> None:
    step = Step()
    with graphscope.watch():
        step.net1(step.x)
        why = graphscope.why(step.net1[0].weight, step.net2.weight.sum())
    assert not why.connected and not why.cuts and "never uses" in str(why)


def test_gradient_that_is_always_zero_is_told() -> None:
    step = Step()
    why = graphscope.why(step.net1[0].weight, step.net1(step.x).round().sum())
    assert why.connected and why.flat and "zero always" in str(why)
    assert not graphscope.why(step.net1[0].weight, (step.net1(step.x).round() + step.net1(step.x)).sum()).flat


def test_graph_alone_says_that_it_is_not_enough() -> None:
    step = Step()
    why = graphscope.why(step.net1[0].weight, step.net2(step.net1(step.x).detach()).sum())
    assert not why.connected and "graphscope.watch()" in str(why)


def test_frozen_parameter_is_called_frozen() -> None:
    step = Step()
    step.net1.requires_grad_(False)
    assert "does not require grad" in str(graphscope.why(step.net1[0].weight, step.net2(step.net1(step.x)).sum()))


@pytest.mark.parametrize("asked", ["net9.weight", "net1", 3])
def test_wrong_question_is_refused_with_the_call_that_works(asked: object) -> None:
    step = Step()
    net1 = step.net1
    with pytest.raises(GraphscopeError, match=r"did you mean|name one, such as|a name such as|is called"):
        graphscope.why(asked, net1(step.x).sum())  # type: ignore[arg-type]


def test_command_answers_by_the_name_of_a_parameter_or_module(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nnet, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)\n"
        "hidden = net(torch.ones(2, 3)).detach()\nloss = head(hidden).sum()\nloss.backward()\n"
    )
    said = CliRunner().invoke(main, ["inspect", "--why", "net", str(script)]).output
    assert said.count("`detach` drops the history here") == 2 and "train.py:3" in said
    unknown = CliRunner().invoke(main, ["inspect", "--why", "nett", str(script)])
    assert unknown.exit_code == 2 and "no tensor or module is called 'nett'" in unknown.output
