"""Knowledge distillation: soft labels of a frozen teacher, and features of one layer through a forward hook."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss, softmax

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5)).eval()
student = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))
bridge = nn.Linear(16, 64)
optimizer = torch.optim.AdamW([*student.parameters(), *bridge.parameters()], lr=1e-3)
hidden = {}
student[1].register_forward_hook(lambda module, inputs, output: hidden.update(student=output))
teacher[1].register_forward_hook(lambda module, inputs, output: hidden.update(teacher=output))

for _ in range(4):
    inputs, labels = torch.randn(32, 10), torch.randint(5, (32,))
    with torch.no_grad():
        soft = softmax(teacher(inputs) / 4, dim=1)
    logits = student(inputs)
    match = kl_div(log_softmax(logits / 4, dim=1), soft, reduction="batchmean") * 16
    feature = mse_loss(bridge(hidden["student"]), hidden["teacher"])
    loss = 0.7 * match + 0.3 * cross_entropy(logits, labels) + 0.1 * feature
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    agreement = (logits.argmax(dim=1) == soft.argmax(dim=1)).float().mean().item()
    print(f"{loss.item():.4f} {agreement:.2f}")
