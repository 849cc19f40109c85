"""VQ-VAE: a straight-through estimator, with codebook and commitment losses that detach one side each."""

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)


class Quantizer(nn.Module):
    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.codebook = nn.Embedding(codes, width)
        self.register_buffer("usage", torch.zeros(codes))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        index = torch.cdist(z, self.codebook.weight).argmin(dim=1)
        self.usage += torch.bincount(index, minlength=len(self.usage))
        code = self.codebook(index)
        loss = mse_loss(code, z.detach()) + 0.25 * mse_loss(z, code.detach())
        return z + (code - z).detach(), loss


encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
quantizer = Quantizer(codes=16, width=4)
decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
model = nn.ModuleList([encoder, quantizer, decoder])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = torch.randn(64, 8)

for batch in data.split(16):
    quantized, vq_loss = quantizer(encoder(batch))
    loss = mse_loss(decoder(quantized), batch) + vq_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f} {(quantizer.usage > 0).sum().item()} codes used")
