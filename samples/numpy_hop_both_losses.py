"""Two networks with a numpy step between them, each with a loss of its own.

The prediction of ``regressor`` goes through numpy before ``ranker`` reads it, so ``ranker``'s loss cannot
reach ``regressor``. Here that is harmless: the two graphs are separate, neither backward frees what the other
needs, and every parameter has a loss that reaches it. torch runs it, and graphscope has nothing to say.
Compare ``numpy_hop_last_loss.py``, where the first loss is missing.

Expected: nothing
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

torch.manual_seed(0)
regressor = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
ranker = nn.Linear(2, 1)
regressor_optimizer = torch.optim.SGD(regressor.parameters(), lr=0.1)
ranker_optimizer = torch.optim.SGD(ranker.parameters(), lr=0.1)
inputs, targets, relevant = torch.randn(32, 5), torch.randn(32, 2), torch.randint(2, (32, 1)).float()

for _ in range(3):
    prediction = regressor(inputs)
    regression_loss = mse_loss(prediction, targets)

    ranks = prediction.detach().numpy().argsort(axis=0).argsort(axis=0) / len(inputs)
    logits = ranker(torch.from_numpy(ranks.astype(np.float32)))
    ranking_loss = binary_cross_entropy_with_logits(logits, relevant)

    regressor_optimizer.zero_grad()
    regression_loss.backward()
    regressor_optimizer.step()
    ranker_optimizer.zero_grad()
    ranking_loss.backward()
    ranker_optimizer.step()
    print(f"{regression_loss.item():.3f} {ranking_loss.item():.3f}")
