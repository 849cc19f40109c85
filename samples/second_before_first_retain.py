"""First remedy for ``second_before_first.py``: keep the graph.

``retain_graph=True`` on the first backward keeps what the nodes of ``translator`` saved, and the second
backward can visit them again. Both losses then train ``translator``, so its gradients are cleared once,
before both. The step of ``critic`` in between does no harm: the loss that is left does not read the weights
that it changes. torch runs it, and graphscope has nothing to say.

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
    critic_loss.backward(retain_graph=True)
    critic_optimizer.step()

    translation_loss.backward()
    translator_optimizer.step()
    print(f"{critic_loss.item():.3f} {translation_loss.item():.3f}")
