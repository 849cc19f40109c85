"""Third remedy for ``second_before_first.py``: one backward over the sum.

Both losses are there before anything is updated, so a single backward can serve both. It visits each node
once, keeps no buffer longer than needed, and gives the same gradients as retaining the graph. torch runs it,
and graphscope has nothing to say.

Expected: nothing
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

torch.manual_seed(0)
translator = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 6))
critic = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 2))
translator_optimizer = torch.optim.Adam(translator.parameters(), lr=1e-2)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
source, reference, quality = torch.randn(32, 6), torch.randn(32, 6), torch.randint(2, (32,))

for _ in range(3):
    translation = translator(source)
    critic_loss = cross_entropy(critic(translation), quality)
    translation_loss = mse_loss(translation, reference)
    critic_optimizer.zero_grad()
    translator_optimizer.zero_grad()
    (critic_loss + translation_loss).backward()
    critic_optimizer.step()
    translator_optimizer.step()
    print(f"{critic_loss.item():.3f} {translation_loss.item():.3f}")
