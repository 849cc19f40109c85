"""An advantage actor-critic agent that learns to balance a pole.

One network has two heads on a shared body. A rollout collects log-probabilities and values with their
history; the returns are plain numbers. The advantage that weighs the policy loss is detached, so that the
policy does not pull on the values, and the three terms of the loss are backpropagated at once. Sampled
actions leave torch through ``item()`` on purpose: the gradient comes from ``log_prob``. torch runs it, and
graphscope has nothing to say.

Expected: nothing
"""

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn.functional import smooth_l1_loss


class CartPole:
    """The classic control problem, with the dynamics of Barto, Sutton and Anderson (1983)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def reset(self) -> list[float]:
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        position, speed, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * spin**2 * math.sin(angle)) / 1.1
        angular = (9.8 * math.sin(angle) - math.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        linear = push - 0.05 * angular * math.cos(angle) / 1.1
        self.state = [position + 0.02 * speed, speed + 0.02 * linear, angle + 0.02 * spin, spin + 0.02 * angular]
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state, 1.0, fallen


class ActorCritic(nn.Module):
    def __init__(self, observations: int, actions: int, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)

    def forward(self, observation: Tensor) -> tuple[Categorical, Tensor]:
        features = self.body(observation)
        return Categorical(logits=self.policy(features)), self.value(features).squeeze(-1)


@dataclass
class Rollout:
    log_probs: Tensor
    values: Tensor
    entropy: Tensor
    rewards: list[float]


def play(environment: CartPole, model: ActorCritic, limit: int = 60) -> Rollout:
    """One episode with the current policy."""
    log_probs, values, entropies, rewards = [], [], [], []
    observation, done = environment.reset(), False
    while not done and len(rewards) < limit:
        policy, value = model(torch.tensor(observation))
        action = policy.sample()
        observation, reward, done = environment.step(int(action.item()))
        log_probs.append(policy.log_prob(action))
        values.append(value)
        entropies.append(policy.entropy())
        rewards.append(reward)
    return Rollout(torch.stack(log_probs), torch.stack(values), torch.stack(entropies).mean(), rewards)


def discounted(rewards: list[float], gamma: float = 0.99) -> Tensor:
    """The return that follows each step, normalised."""
    returns, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + gamma * running
        returns.append(running)
    result = torch.tensor(returns[::-1])
    return (result - result.mean()) / (result.std() + 1e-6)


torch.manual_seed(0)
environment = CartPole(seed=0)
model = ActorCritic(observations=4, actions=2)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for episode in range(8):
    rollout = play(environment, model)
    returns = discounted(rollout.rewards)
    advantage = (returns - rollout.values).detach()

    policy_loss = -(rollout.log_probs * advantage).mean()
    value_loss = smooth_l1_loss(rollout.values, returns)
    loss = policy_loss + 0.5 * value_loss - 0.01 * rollout.entropy

    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
    optimizer.step()
    steps = len(rollout.rewards)
    print(f"episode {episode}: {steps} steps, policy {policy_loss.item():.3f}, value {value_loss.item():.3f}")
