"""Gradients of several small batches, accumulated before one step.

Four backward calls in a row look like a second backward, but each batch has its own forward and so its own
graph. The gradients add up in ``grad``, the loss is divided by the number of batches, and they are cleared
after the step. torch runs it, and graphscope has nothing to say.

Expected: nothing
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs, labels = torch.randn(128, 20), torch.randint(4, (128,))
accumulate = 4

optimizer.zero_grad()
for epoch in range(2):
    for number, (batch, label) in enumerate(zip(inputs.split(16), labels.split(16), strict=True), start=1):
        loss = cross_entropy(model(batch), label) / accumulate
        loss.backward()
        if number % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print(f"epoch {epoch}, batch {number}: {loss.item() * accumulate:.3f}")
