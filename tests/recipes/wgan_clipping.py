"""The first WGAN: the critic's weights are clipped through ``.data`` after its step."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
g_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-4)
c_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-4)

for _ in range(3):
    for parameter in critic.parameters():
        parameter.requires_grad = True
    for _ in range(2):
        fake = generator(torch.randn(16, 3)).detach()
        c_loss = critic(fake).mean() - critic(torch.randn(16, 2)).mean()
        c_optimizer.zero_grad()
        c_loss.backward()
        c_optimizer.step()
        for parameter in critic.parameters():
            parameter.data.clamp_(-0.05, 0.05)

    for parameter in critic.parameters():
        parameter.requires_grad = False
    g_optimizer.zero_grad()
    g_loss = -critic(generator(torch.randn(16, 3))).mean()
    g_loss.backward()
    g_optimizer.step()
    print(f"{c_loss.item():.4f} {g_loss.item():.4f}")
