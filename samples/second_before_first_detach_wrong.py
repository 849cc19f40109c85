"""The detach remedy where it is wrong: one optimizer owns both models.

``critic`` is to learn together with ``adapter``, which prepares the translation for it and has no loss of its
own. A ``detach()`` silences the error of ``second_before_first.py``, but it also cuts ``adapter`` off from
the only loss that could train it. One optimizer holds all three modules, so it steps over ``adapter`` without
a gradient, for ever. torch raises nothing. graphscope names the parameters that no loss reaches.

Expected: GS204
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

torch.manual_seed(0)
translator = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 6))
adapter = nn.Linear(6, 12)
critic = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 2))
parameters = [*translator.parameters(), *adapter.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-2)
source, reference, quality = torch.randn(32, 6), torch.randn(32, 6), torch.randint(2, (32,))

for _ in range(3):
    translation = translator(source)
    critic_loss = cross_entropy(critic(adapter(translation).detach()), quality)  # GS204
    translation_loss = mse_loss(translation, reference)

    optimizer.zero_grad()
    critic_loss.backward()
    translation_loss.backward()
    optimizer.step()  # GS204
    print(f"{critic_loss.item():.3f} {translation_loss.item():.3f}")
