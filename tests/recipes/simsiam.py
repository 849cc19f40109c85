"""SimSiam: both views through the same encoder, and a stop-gradient on the one that is compared with."""

import torch
from torch import nn
from torch.nn.functional import cosine_similarity

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Linear(32, 16))
predictor = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 16))
optimizer = torch.optim.SGD(
    [{"params": encoder.parameters()}, {"params": predictor.parameters(), "lr": 0.1}], lr=0.05, momentum=0.9
)

for _ in range(4):
    sample = torch.randn(32, 10)
    first, second = sample + 0.1 * torch.randn(32, 10), sample + 0.1 * torch.randn(32, 10)
    z1, z2 = encoder(first), encoder(second)
    p1, p2 = predictor(z1), predictor(z2)
    loss = -0.5 * (cosine_similarity(p1, z2.detach()).mean() + cosine_similarity(p2, z1.detach()).mean())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        collapse = z1.std(dim=0).mean()
    print(f"{loss.item():.4f} {collapse:.4f}")
