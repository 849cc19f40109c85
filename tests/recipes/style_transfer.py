"""Style transfer: the image is the only parameter; it is clamped in place under no_grad between steps."""

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
features.requires_grad_(False).eval()


def gram(x: Tensor) -> Tensor:
    flat = x.flatten(start_dim=2)
    return flat @ flat.transpose(1, 2) / flat.shape[2]


content, style = torch.rand(1, 3, 12, 12), torch.rand(1, 3, 12, 12)
wanted_content = features(content).detach()
wanted_style = gram(features(style)).detach()
image = content.clone().requires_grad_()
optimizer = torch.optim.Adam([image], lr=0.02)

for step in range(6):
    seen = features(image)
    smooth = (image[..., 1:] - image[..., :-1]).abs().mean() + (image[..., 1:, :] - image[..., :-1, :]).abs().mean()
    loss = mse_loss(seen, wanted_content) + 100 * mse_loss(gram(seen), wanted_style) + 0.1 * smooth
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        image.clamp_(0, 1)
    print(f"{step}: {loss.item():.4f}")
picture = (image.detach()[0].permute(1, 2, 0).numpy() * 255).astype("uint8")
print(picture.shape)
