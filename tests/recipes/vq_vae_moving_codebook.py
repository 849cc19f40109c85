"""A VQ-VAE whose codebook is a moving average, set by hand at each step, and in the optimizer as well."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.register_buffer("sizes", torch.ones(6))
        self.register_buffer("sums", self.embedding.weight.detach().clone())

    def follow(self, codes, inputs):
        self.sizes.mul_(0.9).add_(codes.sum(0), alpha=0.1)
        self.sums.mul_(0.9).add_(codes.t() @ inputs.detach(), alpha=0.1)
        self.embedding.weight.data.copy_(self.sums / self.sizes[:, None])

    def forward(self, inputs):
        nearest = torch.cdist(inputs, self.embedding.weight).argmin(1)
        quantized = self.embedding(nearest)
        self.follow(F.one_hot(nearest, 6).float(), inputs)
        commitment = 0.25 * F.mse_loss(inputs, quantized.detach())
        return inputs + (quantized - inputs).detach(), commitment


encoder, quantizer, decoder = nn.Linear(8, 4), Quantizer(), nn.Linear(4, 8)
model = nn.ModuleList([encoder, quantizer, decoder])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(5):
    images = torch.randn(8, 8)
    quantized, commitment = quantizer(encoder(images))
    loss = F.mse_loss(decoder(quantized), images) + commitment
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
