"""An actor and a critic with their own optimizers: the advantage is detached, rewards are normalised in numpy."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
rng = np.random.default_rng(0)
actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
reward_mean, reward_var = 0.0, 1.0

for _ in range(4):
    states = torch.randn(20, 4)
    policy = Categorical(logits=actor(states))
    actions = policy.sample()
    rewards = (actions.numpy() == (states[:, 0] > 0).numpy()).astype(np.float64) + rng.normal(size=20) * 0.1
    reward_mean = 0.9 * reward_mean + 0.1 * rewards.mean()
    reward_var = 0.9 * reward_var + 0.1 * rewards.var()
    normal = torch.from_numpy((rewards - reward_mean) / np.sqrt(reward_var + 1e-8)).float()

    values = critic(states).squeeze(1)
    with torch.no_grad():
        targets = normal + 0.9 * critic(torch.randn(20, 4)).squeeze(1)
    advantage = targets - values
    critic_loss = advantage.pow(2).mean()
    actor_loss = -(policy.log_prob(actions) * advantage.detach()).mean() - 0.01 * policy.entropy().mean()

    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    print(f"{actor_loss.item():.4f} {critic_loss.item():.4f}")
