"""PGD adversarial training: the attack uses gradients of the input and is detached before the model learns."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def attack(inputs: Tensor, labels: Tensor, reach: float = 0.2) -> Tensor:
    """The worst inputs nearby."""
    delta = torch.zeros_like(inputs).uniform_(-reach, reach).requires_grad_()
    for _ in range(3):
        loss = cross_entropy(model(inputs + delta), labels)
        (slope,) = torch.autograd.grad(loss, delta)
        delta = (delta + 0.1 * slope.sign()).clamp(-reach, reach).detach().requires_grad_()
    return (inputs + delta).detach()


for _ in range(3):
    inputs, labels = torch.randn(32, 10), torch.randint(3, (32,))
    worst = attack(inputs, labels)
    loss = 0.5 * (cross_entropy(model(inputs), labels) + cross_entropy(model(worst), labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
