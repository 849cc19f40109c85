"""A running total of the losses, kept for the log with all its history.

``total`` is a tensor with a graph, so it holds on to the graph of every step that was ever added: the memory
grows by one step's graph per step, until the epoch ends or the memory does. Each ``backward()`` is on
``loss``, whose graph is fresh, so torch raises nothing and the gradients are right. ``total += loss.item()``
is the remedy. No error: it is a warning.

Expected: GS104
"""

import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, targets = torch.randn(240, 16), torch.randn(240, 1)

total = torch.zeros(())
for batch, target in zip(inputs.split(8), targets.split(8), strict=True):
    loss = mse_loss(model(batch), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss  # GS104
print(f"mean loss {total.item() / 30:.3f}")
