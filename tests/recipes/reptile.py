"""Reptile: a copy is trained on each task, and the weights are moved towards it under no_grad."""

import copy

import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

for _ in range(3):
    shift = torch.rand(1) * 3
    learner = copy.deepcopy(model)
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.05)
    for _ in range(4):
        inputs = torch.randn(16, 1)
        loss = mse_loss(learner(inputs), torch.sin(inputs + shift))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(model.parameters(), learner.parameters(), strict=True):
            slow += 0.1 * (fast - slow)
    print(f"{loss.item():.4f}")
