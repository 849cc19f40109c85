"""Second remedy for ``second_before_first.py``: detach what the second model reads.

``critic`` reads ``translation.detach()``, so its backward ends there: it trains ``critic`` alone and leaves
the graph of ``translator`` untouched for its own loss. Each optimizer has the loss it needs. torch runs it,
and graphscope has nothing to say. Compare ``second_before_first_detach_wrong.py``.

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
    critic_loss = cross_entropy(critic(translation.detach()), quality)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    translation_loss = mse_loss(translation, reference)
    translator_optimizer.zero_grad()
    translation_loss.backward()
    translator_optimizer.step()
    print(f"{critic_loss.item():.3f} {translation_loss.item():.3f}")
