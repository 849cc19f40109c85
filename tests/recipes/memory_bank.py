"""Instance discrimination: a memory bank of numpy features that is refreshed with detached embeddings."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

torch.manual_seed(0)
rng = np.random.default_rng(0)
encoder = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9)
images = torch.randn(40, 6)
bank = rng.normal(size=(40, 4)).astype(np.float32)
bank /= np.linalg.norm(bank, axis=1, keepdims=True)

for _ in range(2):
    for index in torch.randperm(40).split(10):
        embedding = normalize(encoder(images[index]), dim=1)
        logits = embedding @ torch.tensor(bank).T / 0.1
        loss = cross_entropy(logits, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        fresh = 0.5 * bank[index.numpy()] + 0.5 * embedding.detach().numpy()
        bank[index.numpy()] = fresh / np.linalg.norm(fresh, axis=1, keepdims=True)
    print(f"{loss.item():.4f}")
