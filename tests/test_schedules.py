"""Which optimizer a scheduler sets the rates of, also once its steps are recorded no more."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import graphscope


def trained(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def test_optimizer_made_in_a_late_epoch_is_not_the_one_that_is_scheduled() -> None:
    net = nn.Linear(4, 1)
    with graphscope.watch() as report:
        first = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = lr_scheduler.StepLR(first, 1)
        optimizer = first
        for epoch in range(7):
            if epoch == 4:
                optimizer = second = torch.optim.SGD(net.parameters(), lr=0.1)
            trained(net, optimizer, 15)
            schedule.step()
    (finding,) = report.findings
    assert finding.code == "GS312"
    assert finding.facts["kind"] == "of-another"
    assert second.param_groups[0]["lr"] == 0.1


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_two_optimizers_of_one_network_in_turns_are_scheduled_each() -> None:
    net = nn.Linear(4, 1)
    with graphscope.watch() as report:
        one, two = torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.Adam(net.parameters(), lr=0.1)
        schedules = [lr_scheduler.ExponentialLR(each, 0.9) for each in (one, two)]
        for epoch in range(6):
            trained(net, two if epoch % 3 == 1 else one, 15)
            for each in schedules:
                each.step()
    assert not report.findings


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("nested", [False, True])
def test_schedule_that_steps_first_skips_its_first_rate(nested: bool) -> None:
    net = nn.Linear(4, 1)
    with graphscope.watch() as report:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule: lr_scheduler.LRScheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
        if nested:
            schedule = lr_scheduler.ChainedScheduler([schedule])
        rates = []
        for _ in range(3):
            schedule.step()
            trained(net, optimizer, 15)
            rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.05, 0.025, 0.0125]
    (finding,) = report.findings
    assert finding.facts == {"kind": "too-early", "scheduler": "ExponentialLR", "optimizer": "optimizer"}


@pytest.mark.filterwarnings("ignore:.*epoch parameter")
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_schedule_that_is_told_the_epoch_skips_nothing() -> None:
    net = nn.Linear(4, 1)
    with graphscope.watch() as report:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
        for epoch in range(3):
            schedule.step(epoch)
            trained(net, optimizer, 3)
    assert not report.findings
