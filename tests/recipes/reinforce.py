"""REINFORCE with a moving baseline: returns are numbers, the gradient comes from the saved log-probabilities."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
rng = np.random.default_rng(0)
policy = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
baseline = 0.0

for episode in range(4):
    log_probs, rewards = [], []
    state = rng.normal(size=2)
    for _ in range(6):
        distribution = Categorical(logits=policy(torch.as_tensor(state, dtype=torch.float32)))
        action = distribution.sample()
        log_probs.append(distribution.log_prob(action))
        state = state * 0.5 + (action.item() - 1)
        rewards.append(-float(np.linalg.norm(state)))

    total, returns = 0.0, []
    for reward in rewards[::-1]:
        total = reward + 0.9 * total
        returns.insert(0, total)
    baseline = 0.9 * baseline + 0.1 * returns[0]
    loss = torch.cat(
        [-(log_prob * (r - baseline)).view(1) for log_prob, r in zip(log_probs, returns, strict=True)]
    ).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{episode}: {sum(rewards):.3f}")
