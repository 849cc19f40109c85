"""Early stopping: the best state is deep-copied and loaded back; a schedule steps on the validation loss."""

import copy

import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
inputs, targets = torch.randn(96, 6), torch.randn(96, 1)
best, best_state, bad = float("inf"), copy.deepcopy(model.state_dict()), 0

for epoch in range(8):
    model.train()
    for batch, target in zip(inputs[:64].split(32), targets[:64].split(32), strict=True):
        optimizer.zero_grad()
        loss = mse_loss(model(batch), target)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        validation = mse_loss(model(inputs[64:]), targets[64:]).item()
    schedule.step(validation)
    print(f"{epoch}: {validation:.4f}")
    if validation < best:
        best, best_state, bad = validation, copy.deepcopy(model.state_dict()), 0
    elif (bad := bad + 1) == 2:
        break
model.load_state_dict(best_state)
