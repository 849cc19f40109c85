"""Domain adaptation with a gradient reversal layer: a custom autograd.Function between features and critic."""

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

torch.manual_seed(0)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * grad, None


features = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
classifier, domain = nn.Linear(24, 3), nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD([*features.parameters(), *classifier.parameters(), *domain.parameters()], lr=0.05)

for step in range(4):
    source, labels, other = torch.randn(16, 8), torch.randint(3, (16,)), torch.randn(16, 8) + 0.5
    both = features(torch.cat([source, other]))
    origin = torch.cat([torch.zeros(16, 1), torch.ones(16, 1)])
    label_loss = cross_entropy(classifier(both[:16]), labels)
    domain_loss = binary_cross_entropy_with_logits(domain(Reverse.apply(both, 0.1 * step)), origin)
    optimizer.zero_grad()
    (label_loss + domain_loss).backward()
    optimizer.step()
    print(f"{label_loss.item():.4f} {domain_loss.item():.4f}")
