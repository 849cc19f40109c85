"""An actor and a critic whose gradients are zeroed together, in the orders in which no step uses the other's loss."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        self.critic = nn.Sequential(nn.Linear(9, 16), nn.Tanh(), nn.Linear(16, 1))

    def value(self, state, action):
        return self.critic(torch.cat([state, action], 1))


agent = Agent()
actor_optimizer = torch.optim.Adam(agent.actor.parameters(), lr=1e-3)
critic_optimizer = torch.optim.Adam(agent.critic.parameters(), lr=1e-3)


def losses():
    state, action, reward = torch.randn(16, 6), torch.randn(16, 3), torch.randn(16, 1)
    return mse_loss(agent.value(state, action), reward), lambda: -agent.value(state, agent.actor(state)).mean()


for _ in range(5):  # the critic first: what the actor leaves in it is zeroed at the next turn
    agent.zero_grad()
    critic_loss, actor_loss = losses()
    critic_loss.backward()
    critic_optimizer.step()
    actor_loss().backward()
    actor_optimizer.step()

for _ in range(5):  # the actor first, and all is zeroed in between
    agent.zero_grad()
    critic_loss, actor_loss = losses()
    actor_loss().backward()
    actor_optimizer.step()
    agent.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

for _ in range(5):  # both backwards before both steps, the actor's limited to its own parameters
    agent.zero_grad()
    critic_loss, actor_loss = losses()
    critic_loss.backward()
    actor_loss().backward(inputs=list(agent.actor.parameters()))
    critic_optimizer.step()
    actor_optimizer.step()
    print(f"{critic_loss.item():.4f}")
