"""SAC with a tuned temperature: three optimizers, twin critics, target critics that follow slowly."""

import copy

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import mse_loss

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
critics = nn.ModuleList(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2))
targets = copy.deepcopy(critics).requires_grad_(False)
log_alpha = torch.zeros(1, requires_grad=True)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
critic_optimizer = torch.optim.Adam(critics.parameters(), lr=3e-4)
alpha_optimizer = torch.optim.Adam([log_alpha], lr=3e-4)


def act(state: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_std = actor(state).chunk(2, dim=-1)
    policy = Normal(mean, log_std.clamp(-5, 2).exp())
    raw = policy.rsample()
    action = raw.tanh()
    return action, (policy.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(-1, keepdim=True)


for _ in range(3):
    state, action = torch.randn(32, 3), torch.rand(32, 1) * 2 - 1
    reward, following = torch.randn(32, 1), torch.randn(32, 3)
    alpha = log_alpha.exp().detach()
    with torch.no_grad():
        next_action, next_log_prob = act(following)
        value = torch.min(*(target(torch.cat([following, next_action], dim=-1)) for target in targets))
        backup = reward + 0.99 * (value - alpha * next_log_prob)
    critic_loss = sum(mse_loss(critic(torch.cat([state, action], dim=-1)), backup) for critic in critics)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    chosen, log_prob = act(state)
    best = torch.min(*(critic(torch.cat([state, chosen], dim=-1)) for critic in critics))
    actor_loss = (alpha * log_prob - best).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()

    alpha_loss = -(log_alpha * (log_prob - 1.0).detach()).mean()
    alpha_optimizer.zero_grad()
    alpha_loss.backward()
    alpha_optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
            slow.mul_(0.995).add_(fast, alpha=0.005)
    print(f"{critic_loss.item():.4f} {actor_loss.item():.4f} {alpha_loss.item():.4f}")
