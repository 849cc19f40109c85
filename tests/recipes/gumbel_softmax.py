"""Discrete choices: hard Gumbel-softmax forward, soft gradient backward, and a rounded value straight through."""

import torch
from torch import nn
from torch.nn.functional import gumbel_softmax, mse_loss

torch.manual_seed(0)
chooser = nn.Linear(6, 4)
table = nn.Parameter(torch.randn(4, 6))
scale = nn.Linear(6, 1)
optimizer = torch.optim.Adam([*chooser.parameters(), table, *scale.parameters()], lr=1e-2)

for step in range(4):
    inputs = torch.randn(32, 6)
    choice = gumbel_softmax(chooser(inputs), tau=max(0.5, 1 - 0.1 * step), hard=True)
    level = scale(inputs)
    level = level + (level.round() - level).detach()
    loss = mse_loss(choice @ table * (1 + 0.1 * level), inputs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    used = torch.bincount(choice.argmax(dim=1), minlength=4).tolist()
    print(f"{loss.item():.4f} {used}")
