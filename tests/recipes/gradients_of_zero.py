"""Gradients of zero that are right: a margin that is kept, a term that is off, an adapter that begins at zero."""

import torch
from torch import nn
from torch.nn.functional import margin_ranking_loss, mse_loss, relu

torch.manual_seed(0)
inputs = torch.randn(32, 8)

# The bias of a reward model cancels in a comparison; both answers are ranked with a margin to spare.
reward = nn.Linear(8, 1)
optimizer = torch.optim.SGD(reward.parameters(), lr=0.1)
worse, better = inputs, inputs + 50 * reward.weight.detach()
for _ in range(5):
    optimizer.zero_grad()
    margin_ranking_loss(reward(better), reward(worse), torch.ones(32, 1), margin=1.0).backward()
    optimizer.step()

# A penalty on what leaves a box, squared and weighted, in which nothing does.
bounded = nn.Linear(8, 1)
optimizer = torch.optim.SGD(bounded.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    (0.5 * relu(bounded(inputs).abs() - 100).pow(2).mean()).backward()
    optimizer.step()

# A warm-up in which the second term is off.
encoder, decoder, prior = nn.Linear(8, 2), nn.Linear(2, 8), nn.Linear(8, 2)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
optimizer_prior = torch.optim.Adam(prior.parameters())
for _ in range(5):
    code = encoder(inputs)
    loss = mse_loss(decoder(code), inputs) + 0.0 * mse_loss(prior(inputs), code.detach())
    optimizer.zero_grad()
    optimizer_prior.zero_grad()
    loss.backward()
    optimizer.step()
    optimizer_prior.step()

# An adapter whose second matrix is zero, so that the first has no gradient in the first step.
base, down, up = nn.Linear(8, 8), nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
base.requires_grad_(False)
nn.init.zeros_(up.weight)
optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (down, up)]
for _ in range(5):
    loss = mse_loss(base(inputs) + up(down(inputs)), inputs)
    for each in optimizers:
        each.zero_grad()
    loss.backward()
    for each in optimizers:
        each.step()
    print(f"{loss.item():.4f}")
