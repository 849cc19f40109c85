"""Schedulers that step too early, are nested, are given an epoch, and torch's warnings about them."""

import warnings

import torch
from _said import end, say

torch.manual_seed(0)
warnings.simplefilter("always")
kinds = torch.optim.lr_scheduler


def train(make, early=False, epoch=False):
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    scheduler = make(optimizer)
    value = None
    for turn in range(14):
        if early:
            scheduler.step(turn) if epoch else scheduler.step()
        optimizer.zero_grad()
        value = net(torch.ones(2, 3)).pow(2).mean()
        value.backward()
        optimizer.step()
        if not early:
            scheduler.step(value.item()) if isinstance(scheduler, kinds.ReduceLROnPlateau) else scheduler.step()
    say(net, optimizer, value, optimizer.param_groups[0]["lr"])


train(lambda o: kinds.ExponentialLR(o, 0.5), early=True)
train(lambda o: kinds.CosineAnnealingLR(o, 5), early=True, epoch=True)
train(lambda o: kinds.SequentialLR(o, [kinds.LinearLR(o), kinds.StepLR(o, 2)], milestones=[3]))
train(lambda o: kinds.ChainedScheduler([kinds.ConstantLR(o), kinds.LambdaLR(o, lambda turn: 0.9**turn)]))
train(lambda o: kinds.CosineAnnealingWarmRestarts(o, 3))
train(lambda o: kinds.OneCycleLR(o, 0.2, total_steps=20))
train(kinds.ReduceLROnPlateau)
end()
