"""A second model, fed by the first, is trained before the first.

``critic`` judges what ``translator`` made, and is updated first. Its backward goes on through ``translation``
into ``translator`` and frees the graph there, so the backward of ``translator`` that follows fails: torch
raises "Trying to backward through the graph a second time". graphscope names the backward that freed the
graph. The three remedies are in ``second_before_first_retain.py``, ``_detach.py`` and ``_sum.py``; which one
is right depends on whether the critic's loss is meant to train ``translator`` too.

Expected: GS101
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
    critic_optimizer.zero_grad()
    critic_loss.backward()  # GS101
    critic_optimizer.step()

    translation_loss = mse_loss(translation, reference)
    translator_optimizer.zero_grad()
    translation_loss.backward()  # GS101
    translator_optimizer.step()
    print(f"{critic_loss.item():.3f} {translation_loss.item():.3f}")
