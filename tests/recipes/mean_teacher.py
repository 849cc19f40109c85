"""A mean teacher: an averaged model, buffers copied along, gives consistency targets for unlabelled data."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, softmax
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 3))
teacher = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.95), use_buffers=True)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True)

for step in range(5):
    labelled, labels = torch.randn(16, 6), torch.randint(3, (16,))
    unlabelled = torch.randn(32, 6)
    with torch.no_grad():
        wanted = softmax(teacher(unlabelled + 0.1 * torch.randn(32, 6)), dim=1)
    given = softmax(student(unlabelled), dim=1)
    sure = (wanted.max(dim=1).values > 0.34).float()
    consistency = (sure * mse_loss(given, wanted, reduction="none").mean(dim=1)).mean()
    loss = cross_entropy(student(labelled), labels) + min(1.0, step / 3) * consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    teacher.update_parameters(student)
    print(f"{loss.item():.4f}")
