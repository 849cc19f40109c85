"""Two generators in a cycle: one backward over all generator terms, a pool of detached fakes for the discriminators."""

import itertools
import random

import torch
from torch import Tensor, nn
from torch.nn.functional import l1_loss, mse_loss

torch.manual_seed(0)
random.seed(0)
to_b, to_a = nn.Linear(4, 4), nn.Linear(4, 4)
judge_a, judge_b = nn.Linear(4, 1), nn.Linear(4, 1)
g_optimizer = torch.optim.Adam(itertools.chain(to_a.parameters(), to_b.parameters()), lr=1e-3)
d_optimizer = torch.optim.Adam(itertools.chain(judge_a.parameters(), judge_b.parameters()), lr=1e-3)
pool: list[Tensor] = []


def pooled(fake: Tensor) -> Tensor:
    """Half of the time an older fake, as CycleGAN does."""
    pool.append(fake.detach())
    return random.choice(pool[-5:]) if random.random() < 0.5 else pool[-1]


for _ in range(4):
    a, b = torch.randn(16, 4), torch.randn(16, 4) + 1
    judge_a.requires_grad_(False)
    judge_b.requires_grad_(False)
    fake_b, fake_a = to_b(a), to_a(b)
    fooled = mse_loss(judge_b(fake_b), torch.ones(16, 1)) + mse_loss(judge_a(fake_a), torch.ones(16, 1))
    cycle = l1_loss(to_a(fake_b), a) + l1_loss(to_b(fake_a), b)
    g_optimizer.zero_grad()
    (fooled + 10 * cycle).backward()
    g_optimizer.step()

    judge_a.requires_grad_(True)
    judge_b.requires_grad_(True)
    d_optimizer.zero_grad()
    for judge, real, fake in ((judge_a, a, fake_a), (judge_b, b, fake_b)):
        right = mse_loss(judge(real), torch.ones(16, 1)) + mse_loss(judge(pooled(fake)), torch.zeros(16, 1))
        (0.5 * right).backward()
    d_optimizer.step()
    print(f"{fooled.item():.4f} {cycle.item():.4f}")
