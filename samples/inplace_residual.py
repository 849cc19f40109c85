"""A residual block that adds its shortcut in place.

``relu`` keeps its output for backward, and ``out += x`` then overwrites that output. The backward of ``relu``
finds the tensor one version ahead, and torch raises "one of the variables needed for gradient computation has
been modified by an inplace operation". graphscope points at the statement that wrote and at the backward that
needs the old values; ``out = out + x`` is the remedy.

Expected: GS102
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.layer(x))
        out += x  # GS102
        return out


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), Block(16), Block(16), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(32, 8), torch.randint(3, (32,))

for _ in range(3):
    loss = cross_entropy(model(inputs), labels)
    print(f"{loss.item():.3f}")
    optimizer.zero_grad()
    loss.backward()  # GS102
    optimizer.step()
