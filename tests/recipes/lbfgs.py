"""LBFGS: the closure is called several times per step and computes the forward anew each time."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
inputs = torch.randn(64, 2)
targets = (inputs[:, :1] * inputs[:, 1:]).sin()
calls = 0


def closure() -> torch.Tensor:
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = mse_loss(model(inputs), targets)
    loss.backward()
    return loss


for _ in range(3):
    loss = optimizer.step(closure)
    print(f"{loss.item():.4f} after {calls} calls")
