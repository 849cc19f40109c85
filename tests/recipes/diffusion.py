"""DDPM: noise prediction with a moving average of the weights, then sampling under no_grad from the averaged model."""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
beta = torch.linspace(1e-3, 0.2, 20)
alpha_bar = torch.cumprod(1 - beta, dim=0)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-math.log(100) * torch.arange(4) / 4))
        self.layers = nn.Sequential(nn.Linear(2 + 8, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 2))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angle = time.unsqueeze(1) * self.frequencies
        return self.layers(torch.cat([x, angle.sin(), angle.cos()], dim=1))


model = Denoiser()
average = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(5):
    clean = torch.randn(64, 2) * 0.2 + torch.tensor([1.0, -1.0])
    time = torch.randint(20, (64,))
    noise = torch.randn_like(clean)
    noisy = alpha_bar[time, None].sqrt() * clean + (1 - alpha_bar[time, None]).sqrt() * noise
    loss = mse_loss(model(noisy, time), noise)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
        slow.data.lerp_(fast.data, 0.1)
    print(f"{loss.item():.4f}")

with torch.no_grad():
    x = torch.randn(16, 2)
    for t in reversed(range(20)):
        predicted = average(x, torch.full((16,), t))
        x = (x - beta[t] / (1 - alpha_bar[t]).sqrt() * predicted) / (1 - beta[t]).sqrt()
        x += beta[t].sqrt() * torch.randn_like(x) * (t > 0)
print(f"{x.numpy().mean():.3f}")
