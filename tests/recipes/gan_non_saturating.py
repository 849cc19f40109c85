"""A GAN with the non-saturating loss and R1: the discriminator step sees detached fakes."""

import torch
from torch import nn
from torch.nn.functional import softplus

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2))
discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.0, 0.99))
d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.0, 0.99))

for step in range(4):
    real = torch.randn(32, 2) + 1
    with torch.no_grad():
        fake = generator(torch.randn(32, 4))
    d_optimizer.zero_grad()
    d_loss = softplus(-discriminator(real)).mean() + softplus(discriminator(fake)).mean()
    d_loss.backward()
    if step % 2 == 0:
        real.requires_grad_()
        (slope,) = torch.autograd.grad(discriminator(real).sum(), real, create_graph=True)
        (5.0 * slope.square().sum(dim=1).mean()).backward()
    d_optimizer.step()

    g_optimizer.zero_grad()
    discriminator.requires_grad_(False)
    g_loss = softplus(-discriminator(generator(torch.randn(32, 4)))).mean()
    g_loss.backward()
    discriminator.requires_grad_(True)
    g_optimizer.step()
    print(f"{d_loss.item():.4f} {g_loss.item():.4f}")
