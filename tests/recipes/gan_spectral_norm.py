"""A hinge GAN with spectral norm: the critic is frozen for the generator's step, which also shows the real score."""

import torch
from torch import nn
from torch.nn.utils import parametrizations

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(
    parametrizations.spectral_norm(nn.Linear(2, 16)), nn.LeakyReLU(0.2), parametrizations.weight_norm(nn.Linear(16, 1))
)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-4, betas=(0.0, 0.9))


def set_requires_grad(net: nn.Module, flag: bool) -> None:
    for parameter in net.parameters():
        parameter.requires_grad_(flag)


for _ in range(4):
    real = torch.randn(8, 2)
    set_requires_grad(critic, True)
    critic_optimizer.zero_grad()
    fake = generator(torch.randn(8, 4)).detach()
    (torch.relu(1 - critic(real)).mean() + torch.relu(1 + critic(fake)).mean()).backward()
    critic_optimizer.step()

    set_requires_grad(critic, False)
    generator_optimizer.zero_grad()
    gap = critic(real).mean() - critic(generator(torch.randn(8, 4))).mean()
    gap.backward()
    generator_optimizer.step()
