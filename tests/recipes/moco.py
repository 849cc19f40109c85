"""MoCo: a momentum encoder and a queue of detached keys, overwritten in place after the step."""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

torch.manual_seed(0)
query_encoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
key_encoder = copy.deepcopy(query_encoder).requires_grad_(False)
optimizer = torch.optim.SGD(query_encoder.parameters(), lr=0.03)
queue = normalize(torch.randn(8, 64), dim=0)
position = 0

for _ in range(5):
    images = torch.randn(16, 8)
    queries = normalize(query_encoder(images + 0.1 * torch.randn(16, 8)), dim=1)
    with torch.no_grad():
        for slow, fast in zip(key_encoder.parameters(), query_encoder.parameters(), strict=True):
            slow.mul_(0.99).add_(fast, alpha=0.01)
        keys = normalize(key_encoder(images + 0.1 * torch.randn(16, 8)), dim=1)

    positive = torch.einsum("nc,nc->n", queries, keys).unsqueeze(1)
    negative = queries @ queue.clone().detach()
    logits = torch.cat([positive, negative], dim=1) / 0.07
    loss = cross_entropy(logits, torch.zeros(16, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    queue[:, position : position + 16] = keys.T
    position = (position + 16) % 64
    print(f"{loss.item():.4f}")
