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


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
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


FADING = [
    *("{0}", "{0} * {1}", "{0} - {1}", "{0} - {0}", "torch.relu({0})", "torch.relu(-{0})", "{0} * torch.zeros(3)"),
    *("torch.sqrt({0} - {0})", "torch.sqrt({0} * {0} + 0.1)", "({0} * 1e4).sigmoid()", "{0}.clamp(5, 6)"),
    *("torch.where({0} > 0, {0}.detach(), {1})", "{0}.log()", "{0} / {1}", "{0}.pow(0.5)", "torch.tanh({0})"),
    *("nn.functional.dropout({0}, 1.0)", "{0}.masked_fill({1} > 0, 0.0)", "{0}.softmax(0)", "{0}.norm() + {1}"),
    *("{0}.expand(2, 3) * {1}", "torch.stack([{0}, {1}]).amax(0)", "torch.cat([{0}[:2], {1}[2:]])"),
]


def faded(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, str]:
    """Two leaves and a loss of operations that may let a gradient die, or make it infinite."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    values: dict[str, Any] = {"p": torch.rand(3).requires_grad_(), "q": torch.rand(3).requires_grad_()}
    names, lines = ["p", "q"], []
    for number in range(choose.randrange(1, 6)):
        operation = choose.choice(FADING).format(choose.choice(names[-3:]), choose.choice(names))
        lines.append(f"h{number} = ({operation}).reshape(-1, 3)[0]")
        names.append(f"h{number}")
    source = "\n".join([*lines, f"loss = {names[-1]}.sum() * 1"])
    exec(source, {"torch": torch, "nn": nn}, values)
    return values["p"], values["q"], values["loss"], source


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(min_value=0, max_value=1 << 30))
def test_gradient_fades_exactly_when_torch_gives_one_that_is_zero_or_not_finite(seed: int) -> None:
    p, q, loss, source = faded(seed)
    said = [graphscope.why(each, loss) for each in (p, q)]
    truth = torch.autograd.grad(loss, [p, q], allow_unused=True) if loss.requires_grad else (None, None)
    for why, grad in zip(said, truth, strict=True):
        assert why.connected == (grad is not None), source
        if grad is not None:
            assert bool(why.zero) == bool((grad == 0).all()), (source, why.text)
            assert bool(why.not_finite) == (not bool(grad.isfinite().all())), (source, why.text)


@pytest.mark.parametrize(
    ("loss", "op", "reason"),
    [
        ("torch.relu(-x).sum()", "Relu", "not above zero"),
        ("(x * 1e4).sigmoid().sum()", "Sigmoid", "saturated"),
        ("(x * 1e4).tanh().sum()", "Tanh", "saturated"),
        ("(x * torch.zeros(3)).sum()", "Mul", "other factor is zero"),
        ("x.clamp(5, 6).sum()", "Clamp", "outside of the bounds"),
        ("torch.nn.functional.hardtanh(x * 9).sum()", "Hardtanh", "outside of the bounds"),
        ("torch.where(x > 0, torch.ones(3), x * 2).sum()", "Where", "chooses the other value"),
        ("x.masked_fill(x > 0, 0.0).sum()", "MaskedFill", "mask covers it"),
        ("(x - x).sqrt().sum()", "Sqrt", "infinite at zero"),
        ("(x - x).log().sum()", "Log", "infinite at zero"),
        ("(x - x).pow(0.5).sum()", "Pow", "infinite at zero"),
        ("(1 / (x - x)).sum()", "Reciprocal", "infinite at zero"),
        ("torch.where(x > 9, x, (x - x).sqrt()).sum()", "Sqrt", "infinite at zero"),
    ],
)
def test_operation_at_which_the_gradient_fades_is_named_with_the_reason(loss: str, op: str, reason: str) -> None:
    x = torch.ones(3, requires_grad=True)
    made = eval(loss)
    why = graphscope.why(x, made)
    (node,) = why.zero or why.not_finite
    grad = torch.autograd.grad(made, x, retain_graph=True)[0]
    assert bool((grad == 0).all()) == bool(why.zero) and bool(grad.isfinite().all()) == (not why.not_finite)
    assert f"from {op}Backward" in str(why) and reason in str(why)
    assert graphscope.trace(made).node(node).label == op


@pytest.mark.parametrize("softmax", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(5, 1), (1,)])
def test_a_softmax_over_a_single_number_is_told_as_such(softmax: str, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, requires_grad=True)
    loss = (getattr(x, softmax)(dim=-1) * torch.arange(2.0, 2.0 + shape[0]).reshape(-1, *shape[1:])).sum()
    assert "is taken over a single number" in str(graphscope.why(x, loss))
    assert not torch.autograd.grad(loss, x)[0].any()


def test_a_saturated_softmax_is_not_called_one_of_a_single_number() -> None:
    x = torch.tensor([[0.0, 1000.0]], requires_grad=True)
    told = str(graphscope.why(x, (x.softmax(1) * torch.tensor([1.0, 2.0])).sum()))
    assert "saturated" in told and "single number" not in told


def test_parts_that_cancel_are_told_where_they_meet() -> None:
    x = torch.ones(3, requires_grad=True)
    assert "what comes together at `x` adds up to zero" in str(graphscope.why(x, (x * 2 - x - x).sum()))


class Spying(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        Spying.calls += 1
        return grad * 2


def test_following_a_gradient_runs_no_code_of_the_program_and_frees_nothing() -> None:
    seen: list[object] = []
    x = torch.ones(3, requires_grad=True)
    x.register_hook(seen.append)
    hidden = Spying.apply(torch.relu(x).exp())
    hidden.register_hook(seen.append)
    hidden.grad_fn.register_hook(lambda *_: seen.append("node"))
    loss = (hidden * 0).sum()
    state, version = torch.random.get_rng_state(), loss._version
    assert "from MulBackward0 on" in str(graphscope.why(x, loss))
    assert not graphscope.why(x, hidden.sum()).zero and not seen and not Spying.calls
    assert x.grad is None and loss._version == version and torch.equal(state, torch.random.get_rng_state())
    loss.backward()
    assert Spying.calls == 1 and len(seen) == 3


def test_freed_graph_has_its_way_told_without_the_numbers() -> None:
    x = torch.ones(3, requires_grad=True)
    loss = torch.relu(-x).exp().sum()
    loss.backward()
    why = graphscope.why(x, loss)
    assert why.connected and not why.zero


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


def test_command_tells_where_the_gradient_of_a_pass_became_zero_or_nan(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nnet, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)\n"
        "for shift in (9, -9, -9):\n    net.zero_grad()\n"
        "    hidden = torch.relu(net(torch.ones(2, 3)) + shift)\n    head(hidden).sum().backward()\n"
        "(head.weight - head.weight).sum().sqrt().backward()\n"
    )
    said = CliRunner().invoke(main, ["inspect", "--why", "net.weight", str(script)]).output
    assert "zero everywhere, from ReluBackward0" in said and "train.py:5" in said
    assert (
        "not finite, from SqrtBackward0" in CliRunner().invoke(main, ["inspect", "--why", "head", str(script)]).output
    )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_leaf_is_answered_for(layout: torch.layout) -> None:
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    used, unused = (torch.nested.nested_tensor(rows, layout=layout, requires_grad=True) for _ in range(2))
    loss = torch.nested.to_padded_tensor(used * 2, 0.0).sum()
    assert graphscope.why(used, loss).connected
    assert not graphscope.why(unused, loss).connected
