"""bfloat16 autocast on the CPU, a gradient scaler in the usual order, clipping after unscaling, numpy logs."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
scaler = torch.amp.GradScaler("cpu")
history, predictions = [], []

for _ in range(4):
    inputs, labels = torch.randn(32, 16), torch.randint(4, (32,))
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(inputs)
    loss = cross_entropy(logits.float(), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    history.append(loss.item())
    predictions.append(logits.detach().float().softmax(dim=1).cpu().numpy())
print(np.round(history, 3), np.concatenate(predictions).mean(axis=0).round(2))
