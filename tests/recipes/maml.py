"""MAML: an inner step with create_graph, and an outer loss through the adapted weights."""

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import mse_loss

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for _ in range(3):
    optimizer.zero_grad()
    total = 0.0
    for _ in range(4):
        shift = torch.rand(1) * 3
        support, query = torch.randn(10, 1), torch.randn(10, 1)
        weights = dict(model.named_parameters())
        for _ in range(2):
            inner = mse_loss(functional_call(model, weights, support), torch.sin(support + shift))
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            weights = {
                name: weight - 0.05 * slope for (name, weight), slope in zip(weights.items(), slopes, strict=True)
            }
        outer = mse_loss(functional_call(model, weights, query), torch.sin(query + shift)) / 4
        outer.backward()
        total += outer.item()
    optimizer.step()
    print(f"{total:.4f}")
