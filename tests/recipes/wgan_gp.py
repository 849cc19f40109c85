"""WGAN-GP: several critic steps with a gradient penalty per generator step."""

import torch
from torch import Tensor, nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
c_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))


def gradient_penalty(real: Tensor, fake: Tensor) -> Tensor:
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    scores = critic(between)
    (slope,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True, retain_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean()


for _ in range(2):
    for _ in range(3):
        real = torch.randn(16, 2) * 0.3 + 1
        fake = generator(torch.randn(16, 3)).detach()
        c_loss = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake)
        c_optimizer.zero_grad()
        c_loss.backward()
        c_optimizer.step()
    g_loss = -critic(generator(torch.randn(16, 3))).mean()
    g_optimizer.zero_grad()
    g_loss.backward()
    g_optimizer.step()
    print(f"{c_loss.item():.4f} {g_loss.item():.4f}")
