"""A NeRF in small: coarse samples choose where the fine ones go, under no_grad, and both renderings are trained."""

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, relu

torch.manual_seed(0)


def encoded(x: Tensor) -> Tensor:
    return torch.cat([x, *(f(x * 2**k) for k in range(3) for f in (torch.sin, torch.cos))], dim=-1)


def render(field: nn.Module, depths: Tensor) -> tuple[Tensor, Tensor]:
    color, density = field(encoded(depths.unsqueeze(-1))).split([3, 1], dim=-1)
    gaps = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 0.1)], dim=1)
    alpha = 1 - torch.exp(-relu(density.squeeze(-1)) * gaps)
    free = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], dim=1), dim=1)[:, :-1]
    weights = alpha * free
    return (weights.unsqueeze(-1) * color.sigmoid()).sum(dim=1), weights


coarse, fine = (nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 4)) for _ in range(2))
nn.init.constant_(coarse[2].bias, 0.5)
nn.init.constant_(fine[2].bias, 0.5)
optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

for _ in range(4):
    target = torch.rand(16, 3)
    near = torch.linspace(0.1, 1.0, 8).expand(16, 8) + 0.05 * torch.rand(16, 8)
    rough, weights = render(coarse, near)
    with torch.no_grad():
        drawn = torch.multinomial(weights + 1e-5, 8, replacement=True)
        depths = torch.cat([near, near.gather(1, drawn) + 0.02 * torch.rand(16, 8)], dim=1).sort(dim=1).values
    sharp, _ = render(fine, depths)
    loss = mse_loss(rough, target) + mse_loss(sharp, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"{loss.item():.4f} psnr {-10 * torch.log10(mse_loss(sharp, target)).item():.2f}")
