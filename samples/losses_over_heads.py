"""One trunk, several heads, and a backward call inside the loop over the heads.

Every head works on the same ``features``. The first round of the loop backpropagates through ``trunk`` and
frees its graph; the second round arrives there again, and torch raises "Trying to backward through the graph
a second time". It is one and the same line that frees and that fails. graphscope says so; add the losses up
in the loop and call ``backward()`` once after it.

Expected: GS101
"""

import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
heads = nn.ModuleDict({"age": nn.Linear(16, 1), "height": nn.Linear(16, 1), "weight": nn.Linear(16, 1)})
optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-3)
inputs = torch.randn(48, 12)
targets = {name: torch.randn(48, 1) for name in heads}

for _ in range(3):
    features = trunk(inputs)
    optimizer.zero_grad()
    for name, head in heads.items():
        loss = mse_loss(head(features), targets[name])
        print(f"{name}: {loss.item():.3f}")
        loss.backward()  # GS101
    optimizer.step()
