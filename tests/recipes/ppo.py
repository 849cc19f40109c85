"""PPO: a rollout under no_grad, numpy advantages, several epochs over the same data."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)
rng = np.random.default_rng(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
critic = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
log_std = nn.Parameter(torch.zeros(1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), log_std], lr=3e-4)

for _ in range(2):
    observations, actions, log_probs, rewards, values = [], [], [], [], []
    observation = rng.normal(size=3).astype(np.float32)
    for _ in range(16):
        with torch.no_grad():
            state = torch.from_numpy(observation)
            policy = Normal(actor(state), log_std.exp())
            action = policy.sample()
            log_probs.append(policy.log_prob(action).sum().item())
            values.append(critic(state).item())
        observations.append(observation)
        actions.append(action.numpy())
        rewards.append(float(-np.abs(observation.sum() - action.numpy()).sum()))
        observation = rng.normal(size=3).astype(np.float32)
    returns = np.array([sum(0.9**k * r for k, r in enumerate(rewards[t:])) for t in range(16)], dtype=np.float32)
    advantages = returns - np.array(values, dtype=np.float32)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    batch = [torch.as_tensor(np.array(x)) for x in (observations, actions, advantages, returns)]
    old = torch.tensor(log_probs)
    for _ in range(3):
        for index in torch.randperm(16).split(8):
            state, action, advantage, target = (x[index] for x in batch)
            policy = Normal(actor(state), log_std.exp())
            ratio = (policy.log_prob(action).sum(dim=-1) - old[index]).exp()
            surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            value_loss = (critic(state).squeeze(-1) - target).pow(2).mean()
            loss = -surrogate + 0.5 * value_loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters(), log_std], 0.5)
            optimizer.step()
    print(f"{loss.item():.4f}")
