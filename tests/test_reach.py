"""The table of losses and parameters: what torch gives a gradient is what it says."""

from __future__ import annotations

import torch
from torch import nn

import graphscope
from graphscope.renderers import text


class Branches(nn.Module):
    """A trunk and two heads, of which the second is used on demand; one layer never is."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.first, self.second, self.spare = (nn.Linear(3, 3) for _ in range(4))

    def forward(self, x: torch.Tensor, *, both: bool) -> torch.Tensor:
        hidden = self.trunk(x)
        return self.first(hidden) + (self.second(hidden) if both else 0)


def trained(steps: list[bool]) -> tuple[graphscope.Report, list[list[str]]]:
    """A report on so many steps, and the parameters that torch gave no gradient, step by step."""
    net, other = Branches(), nn.Linear(3, 1)
    opt = torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1)
    missing = []
    with graphscope.watch() as report:
        for both in steps:
            opt.zero_grad()
            hidden = net(torch.randn(2, 3), both=both)
            hidden.sum().backward(retain_graph=True)
            other(hidden.detach()).sum().backward()
            missing.append([f"net.{name}" for name, each in net.named_parameters() if each.grad is None])
            opt.step()
    return report, missing


def test_turns_that_are_alike_share_a_table() -> None:
    report, _ = trained([False, False, True])
    assert [table.turns for table in report.reach] == [2, 1]
    first, last = report.reach
    assert first.modules == (("net", 8), ("other", 2))
    assert [row.reached for row in first.rows] == [(4, 0), (0, 2)]
    assert [row.reached for row in last.rows] == [(6, 0), (0, 2)]


def test_unused_are_those_that_torch_gives_no_gradient() -> None:
    report, missing = trained([False, True])
    assert [list(table.unused) for table in report.reach] == missing


def test_table_is_printed_when_asked() -> None:
    report, _ = trained([True])
    printed = text.render(report, reach=True)
    assert "6 of 8" in printed and "net.spare.weight" in printed
    assert "parameters reached" not in text.render(report)


def test_nested_loop_is_told_with_how_often_it_was_so() -> None:
    one, two = nn.Linear(2, 2), nn.Linear(2, 1)
    inner, outer = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.SGD(two.parameters(), lr=0.1)
    with graphscope.watch() as report:
        for turn in range(4):
            for _ in range(2 if turn else 3):
                inner.zero_grad()
                one(torch.ones(1, 2)).sum().backward()
                inner.step()
            outer.zero_grad()
            for _ in range(2):
                two(torch.ones(1, 2)).sum().backward()
            outer.step()
    (loop,) = report.cycles
    assert (len(loop.turns), loop.regular) == (4, 3)
    head, first, second = text.render(report, reach=True).split("\n\n")[0].splitlines()
    assert head == "training loop, 4 turns, 3 of them like this:"
    assert first.startswith("  2 times: gradients zeroed (") and first.count("backward (") == 1
    assert "backward (" in second and ") 2 times, `outer` steps (" in second
