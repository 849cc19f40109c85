"""A classifier for rare events, trained with the focal loss.

The focal loss multiplies the cross entropy with a power of the probability it was computed from, so several
paths lead from the loss to the same logits. Accuracy and recall are computed from thresholded predictions,
for the log only. Nothing is cut and nothing is visited twice. torch runs it, and graphscope has nothing to
say.

Expected: nothing
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits


class FocalLoss(nn.Module):
    def __init__(self, alpha: float = 0.75, gamma: float = 2.0) -> None:
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        cross_entropy = binary_cross_entropy_with_logits(logits, targets, reduction="none")
        probability = torch.exp(-cross_entropy)
        weight = torch.where(targets > 0, self.alpha, 1 - self.alpha)
        return (weight * (1 - probability) ** self.gamma * cross_entropy).mean()


torch.manual_seed(0)
inputs = torch.randn(512, 10)
targets = (inputs[:, :2].sum(dim=1, keepdim=True) > 2).float()
model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
criterion = FocalLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)

for epoch in range(5):
    for batch, target in zip(inputs.split(128), targets.split(128), strict=True):
        loss = criterion(model(batch), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    schedule.step()

    model.eval()
    with torch.no_grad():
        found = model(inputs).sigmoid() > 0.5
    model.train()
    recall = found[targets > 0].float().mean().item()
    print(f"epoch {epoch}: loss {loss.item():.4f}, recall {recall:.2f}")
