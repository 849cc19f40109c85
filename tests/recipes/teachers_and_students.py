"""Networks that teach: two teachers trained before their student, then two peers who learn from each other.

The losses are divergences written out: the entropy of the answer to be learnt is a constant in each.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
inputs = torch.randn(64, 8)
labels = (inputs.sum(1) > 0).long() + 2 * (inputs[:, 0] > 0).long()
teachers = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])
optimizer = torch.optim.Adam(teachers.parameters(), lr=1e-2)
for _ in range(6):
    optimizer.zero_grad()
    sum(cross_entropy(teacher(inputs), labels) for teacher in teachers).backward()
    optimizer.step()


def divergence(answer, logits):
    entropy = -(answer * answer.log()).sum(1).mean()
    return -(answer * logits.log_softmax(1)).sum(1).mean() - entropy


student = nn.Linear(8, 4)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for _ in range(6):
    with torch.no_grad():
        answer = sum(teacher(inputs).softmax(1) for teacher in teachers) / 2
        doubt = -(answer * answer.log()).sum(1).mean()
    logits = student(inputs)
    loss = cross_entropy(logits, labels) - (answer * logits.log_softmax(1)).sum(1).mean() - doubt
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

one, other = nn.Linear(8, 4), nn.Linear(8, 4)
optimizer_one = torch.optim.SGD(one.parameters(), lr=0.1)
optimizer_other = torch.optim.SGD(other.parameters(), lr=0.1)
for _ in range(6):
    first, second = one(inputs), other(inputs)
    loss_one = cross_entropy(first, labels) + divergence(second.detach().softmax(1), first)
    loss_other = cross_entropy(second, labels) + divergence(first.detach().softmax(1), second)
    optimizer_one.zero_grad()
    loss_one.backward()
    optimizer_one.step()
    optimizer_other.zero_grad()
    loss_other.backward()
    optimizer_other.step()
    print(f"{loss_one.item():.4f} {loss_other.item():.4f}")
