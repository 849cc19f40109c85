"""A VAE with the reparametrisation trick, and a separate probe trained on the detached codes."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 10))
probe = nn.Linear(4, 2)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
probe_optimizer = torch.optim.Adam(probe.parameters(), lr=1e-2)

for epoch in range(4):
    inputs = torch.randn(32, 10)
    labels = (inputs[:, 0] > 0).long()
    mean, log_variance = encoder(inputs).chunk(2, dim=1)
    code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
    divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(dim=1).mean()
    loss = mse_loss(decoder(code), inputs) + min(1.0, epoch / 10) * divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    probe_loss = cross_entropy(probe(mean.detach()), labels)
    probe_optimizer.zero_grad()
    probe_loss.backward()
    probe_optimizer.step()
    print(f"{loss.item():.4f} {probe_loss.item():.4f}")
