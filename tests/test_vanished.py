"""GS222: a warning where nothing was meant to vanish, a note where a gradient of zero may be right, else nothing."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

import graphscope

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x, y = torch.rand(16, 4), torch.rand(16, 1)
{setup}
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    opt.zero_grad()
    {loss}
    loss.backward()
    opt.step()
"""
LINEAR = "net = nn.Linear(4, 1)"
DEAD = "net = nn.Linear(4, 1); nn.init.constant_(net.bias, -50.0)"
FAR = "net = nn.Linear(4, 1); nn.init.constant_(net.bias, 500.0)"
HIDDEN = (
    "net = nn.Sequential(nn.Linear(4, 8), {}); nn.init.constant_(net[0].bias, {}); "
    "head = nn.Linear(8, 1).requires_grad_(False)"
)


def told(tmp_path: Path, setup: str, loss: str) -> list[tuple[str, str]]:
    """The severity of each finding of GS222, and the operator that it names first."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(setup=setup, loss=loss))
    linecache.checkcache()
    report = graphscope.inspect(script)
    assert report.trace.outcome.status == 0, report.trace.outcome.exception
    found = [finding for finding in report.findings if finding.code == "GS222"]
    return [(each.severity.value, report.trace.graph.node(each.nodes[0]).label) for each in found]


@pytest.mark.parametrize(
    ("setup", "loss", "op"),
    [
        (LINEAR, "loss = F.cross_entropy(net(x), torch.zeros(16, dtype=torch.long))", "LogSoftmax"),
        (LINEAR, "loss = -(net(x).softmax(dim=-1) * y).sum()", "Softmax"),
        (
            "net = nn.Linear(4, 4)",
            "loss = ((net(x).mean(1, True).unsqueeze(1).softmax(-1) @ y.unsqueeze(1)) ** 2).mean()",
            "Softmax",
        ),
        (DEAD, "loss = F.mse_loss(torch.relu(net(x)), y)", "Relu"),
        (DEAD, "loss = F.mse_loss(net(x).clamp(0, 1), y)", "Clamp"),
        (FAR, "loss = F.binary_cross_entropy(torch.sigmoid(net(x)) * 0.5, y)", "Sigmoid"),
        (FAR, "loss = F.smooth_l1_loss(torch.tanh(net(x)), y)", "Tanh"),
        (HIDDEN.format("nn.ReLU()", -50.0), "loss = F.mse_loss(head(net(x)), y)", "Relu"),
        (HIDDEN.format("nn.Tanh()", 50.0), "loss = head(net(x)).pow(2).mean()", "Tanh"),
    ],
)
def test_what_was_not_to_vanish_is_a_warning(tmp_path: Path, setup: str, loss: str, op: str) -> None:
    assert told(tmp_path, setup, loss) == [("warning", op)]


@pytest.mark.parametrize(
    ("setup", "loss", "op"),
    [
        (DEAD, "loss = torch.relu(1 + net(x)).mean()", "Relu"),
        (DEAD, "loss = 0.5 * (y * (1 + net(x)).clamp(min=0)).mean()", "Clamp"),
        (DEAD, "loss = torch.relu(1 + net(x)).pow(2).mean()", "Pow"),
        (DEAD, "loss = F.mse_loss(torch.relu(1 + net(x)), torch.zeros(16, 1))", "MseLoss"),
        (LINEAR, "loss = 0.0 * F.mse_loss(net(x), y)", "Mul"),
    ],
)
def test_what_may_be_meant_is_a_note(tmp_path: Path, setup: str, loss: str, op: str) -> None:
    assert [(severity, label[: len(op)]) for severity, label in told(tmp_path, setup, loss)] == [("note", op)]


@pytest.mark.parametrize(
    ("setup", "loss"),
    [
        (LINEAR, "loss = F.mse_loss(net(x), y)"),
        (LINEAR, "loss = F.mse_loss(net(x), y) * (step < 3)"),  # two steps on zeros in a row are too few
        (LINEAR, "loss = F.mse_loss(net(x).round(), y)"),  # a staircase, which GS206 tells of
    ],
)
def test_others_are_left_alone(tmp_path: Path, setup: str, loss: str) -> None:
    assert told(tmp_path, setup, loss) == []


def test_zeros_that_the_program_wrote_are_not_told_of(tmp_path: Path) -> None:
    loss = "loss = net(x).mean(); net.weight.register_hook(torch.zeros_like); net.bias.register_hook(torch.zeros_like)"
    assert told(tmp_path, LINEAR, loss) == []
