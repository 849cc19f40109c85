"""A physics-informed network: derivatives of the output enter the loss, so they are taken with create_graph."""

import torch
from torch import Tensor, nn

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
stiffness = nn.Parameter(torch.tensor(1.0))
optimizer = torch.optim.Adam([*network.parameters(), stiffness], lr=1e-3)


def slope(of: Tensor, by: Tensor) -> Tensor:
    return torch.autograd.grad(of.sum(), by, create_graph=True)[0]


for epoch in range(4):
    t = torch.linspace(0, 3, 40).unsqueeze(1).requires_grad_()
    u = network(t)
    velocity = slope(u, t)
    acceleration = slope(velocity, t)
    residual = (acceleration + stiffness * u).pow(2).mean()
    start = (u[0] - 1).pow(2).sum() + velocity[0].pow(2).sum()
    measured = (u[::10] - torch.cos(2 * t[::10].detach())).pow(2).mean()
    loss = residual + start + measured
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{epoch}: {loss.item():.4f} stiffness {stiffness.item():.4f}")
