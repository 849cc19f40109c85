"""Contrastive learning beside a critic: one optimizer holds the encoder and its target too, which follows by hand."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8))
        self.value = nn.Linear(8, 1)

    def forward(self, observation):
        return self.value(self.encoder(observation))


class Contrast(nn.Module):
    def __init__(self, critic, target):
        super().__init__()
        self.encoder, self.encoder_target = critic.encoder, target.encoder
        self.W = nn.Parameter(torch.rand(8, 8))

    def encode(self, x, ema=False):
        if ema:
            with torch.no_grad():
                return self.encoder_target(x)
        return self.encoder(x)

    def compute_logits(self, anchor, positive):
        logits = anchor @ (self.W @ positive.T)
        return logits - logits.max(1)[0][:, None]


def soft_update(net, target, tau):
    for param, target_param in zip(net.parameters(), target.parameters(), strict=True):
        target_param.data.copy_(tau * param.data + (1 - tau) * target_param.data)


critic, critic_target = Critic(), Critic()
critic_target.load_state_dict(critic.state_dict())
contrast = Contrast(critic, critic_target)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
encoder_optimizer = torch.optim.Adam(critic.encoder.parameters(), lr=1e-3)
contrast_optimizer = torch.optim.Adam(contrast.parameters(), lr=1e-3)

for _ in range(5):
    observation, reward = torch.rand(4, 6), torch.rand(4, 1)
    with torch.no_grad():
        wanted = reward + 0.99 * critic_target(observation + 0.1)
    critic_loss = F.mse_loss(critic(observation), wanted)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()
    soft_update(critic, critic_target, 0.05)

    anchor, positive = contrast.encode(observation), contrast.encode(observation + 0.01, ema=True)
    loss = F.cross_entropy(contrast.compute_logits(anchor, positive), torch.arange(4))
    encoder_optimizer.zero_grad()
    contrast_optimizer.zero_grad()
    loss.backward()
    encoder_optimizer.step()
    contrast_optimizer.step()
