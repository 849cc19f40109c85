"""DQN: epsilon-greedy actions through argmax and item, a replay buffer of arrays, a copied target network."""

import random
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.nn.functional import smooth_l1_loss

torch.manual_seed(0)
random.seed(0)
rng = np.random.default_rng(0)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))


online, target = network(), network()
target.load_state_dict(online.state_dict())
target.eval()
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
buffer: deque[tuple[np.ndarray, int, float, np.ndarray]] = deque(maxlen=100)

state = rng.normal(size=4).astype(np.float32)
for step in range(40):
    if random.random() < 0.2:
        action = random.randrange(2)
    else:
        action = online(torch.from_numpy(state).unsqueeze(0)).argmax(dim=1).item()
    following = (0.9 * state + 0.1 * action + rng.normal(size=4) * 0.1).astype(np.float32)
    buffer.append((state, action, float(-np.abs(following).sum()), following))
    state = following
    if len(buffer) < 16:
        continue

    states, actions, rewards, nexts = zip(*random.sample(buffer, 16), strict=True)
    values = online(torch.tensor(np.array(states))).gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
    best = target(torch.tensor(np.array(nexts))).max(dim=1).values.detach()
    loss = smooth_l1_loss(values, torch.tensor(rewards) + 0.95 * best)
    optimizer.zero_grad()
    loss.backward()
    for parameter in online.parameters():
        parameter.grad.data.clamp_(-1, 1)
    optimizer.step()
    if step % 10 == 9:
        target.load_state_dict(online.state_dict())
        print(f"{step}: {loss.item():.4f}")
