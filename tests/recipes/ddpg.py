"""DDPG: actions leave torch for the environment, the actor learns through the critic, targets are averaged."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
rng = np.random.default_rng(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1), nn.Tanh())
critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)

memory: list[tuple[np.ndarray, np.ndarray, float, np.ndarray]] = []
state = rng.normal(size=3).astype(np.float32)
for _ in range(12):
    action = actor(torch.from_numpy(state)).detach().cpu().numpy()
    action = np.clip(action + rng.normal(size=1) * 0.1, -1, 1).astype(np.float32)
    following = (0.8 * state + 0.2 * action).astype(np.float32)
    memory.append((state, action, float(-np.square(following).sum()), following))
    state = following
    if len(memory) < 8:
        continue

    chosen = [memory[i] for i in rng.integers(len(memory), size=8)]
    states, actions, rewards, nexts = (
        torch.tensor(np.array(x), dtype=torch.float32) for x in zip(*chosen, strict=True)
    )
    future = critic_target(torch.cat([nexts, actor_target(nexts)], dim=1))
    expected = rewards.unsqueeze(1) + 0.99 * future.detach()
    critic_loss = mse_loss(critic(torch.cat([states, actions], dim=1)), expected)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    actor_loss = -critic(torch.cat([states, actor(states)], dim=1)).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    for slow, fast in ((actor_target, actor), (critic_target, critic)):
        for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
            old.data.copy_(0.99 * old.data + 0.01 * new.data)
    print(f"{critic_loss.item():.4f} {actor_loss.item():.4f}")
