"""LoRA: frozen weights with a trained low-rank update; the optimizer is given the trained ones only."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 2, alpha: float = 4.0) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * (x @ self.down.T @ self.up.T)


model = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
model.requires_grad_(False)
for name, module in list(model.named_children()):
    if isinstance(module, nn.Linear):
        setattr(model, name, LoRA(module))
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-2)

for _ in range(4):
    tokens, labels = torch.randint(20, (16, 4)), torch.randint(4, (16,))
    loss = cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")

with torch.no_grad():
    for module in model.modules():
        if isinstance(module, LoRA):
            module.base.weight += module.scale * (module.up @ module.down)
