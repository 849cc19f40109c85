"""BYOL: a target network without gradients that follows the online network by a moving average."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
predictor = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
target = copy.deepcopy(online)
for parameter in target.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9)


def distance(prediction: Tensor, projection: Tensor) -> Tensor:
    return 2 - 2 * (normalize(prediction, dim=1) * normalize(projection, dim=1)).sum(dim=1)


for _ in range(4):
    images = torch.randn(32, 8)
    one, two = (images + 0.1 * torch.randn_like(images) for _ in range(2))
    with torch.no_grad():
        target_one, target_two = target(one), target(two)
    loss = (distance(predictor(online(one)), target_two) + distance(predictor(online(two)), target_one)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.data = 0.99 * slow.data + 0.01 * fast.data
    print(f"{loss.item():.4f}")
