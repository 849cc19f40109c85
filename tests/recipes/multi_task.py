"""Multi-task training with a frozen stem, learned task weights, and one backward per task on retained features."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

torch.manual_seed(0)
stem = nn.Sequential(nn.Linear(10, 16), nn.ReLU()).requires_grad_(False).eval()
trunk = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
heads = nn.ModuleDict({"kind": nn.Linear(16, 3), "size": nn.Linear(16, 1)})
log_variance = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in heads})
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters(), *log_variance.parameters()], lr=1e-3)

for _ in range(4):
    inputs = torch.randn(24, 10)
    kind, size = torch.randint(3, (24,)), torch.randn(24, 1)
    features = trunk(stem(inputs))
    losses = {
        "kind": cross_entropy(heads["kind"](features), kind),
        "size": mse_loss(heads["size"](features), size),
    }
    weighed = {name: loss * torch.exp(-log_variance[name]) + log_variance[name] for name, loss in losses.items()}

    optimizer.zero_grad()
    weighed["kind"].backward(retain_graph=True)
    weighed["size"].backward()
    optimizer.step()
    print({name: round(loss.item(), 3) for name, loss in losses.items()})
