"""Heads backpropagate into a detached copy of the features; the trunk is visited once, with their gradients."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
heads = nn.ModuleList(nn.Linear(32, 1) for _ in range(3))
optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.05)

for _ in range(3):
    inputs, targets = torch.randn(16, 12), torch.randn(3, 16, 1)
    features = trunk(inputs)
    shared = features.detach().requires_grad_()
    optimizer.zero_grad()
    total = 0.0
    for head, target in zip(heads, targets, strict=True):
        loss = mse_loss(head(shared), target)
        loss.backward()
        total += loss.item()
    features.backward(gradient=shared.grad)
    optimizer.step()
    print(f"{total:.4f}")
