"""Activation checkpointing, both kinds, with dropout inside and a trainable embedding in front."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


embed = nn.Embedding(30, 16)
first, second = (nn.ModuleList(Layer(16) for _ in range(2)) for _ in range(2))
last = nn.Sequential(Layer(16), Layer(16), nn.Linear(16, 5))
modules = nn.ModuleList([embed, first, second, last])
optimizer = torch.optim.AdamW(modules.parameters(), lr=1e-3)

for _ in range(3):
    tokens, labels = torch.randint(30, (8, 6)), torch.randint(5, (8,))
    x = embed(tokens)
    for layer in first:
        x = checkpoint(layer, x, use_reentrant=False)
    for layer in second:
        x = checkpoint(layer, x, use_reentrant=True)
    logits = checkpoint_sequential(last, 2, x, use_reentrant=False).mean(dim=1)
    loss = cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
