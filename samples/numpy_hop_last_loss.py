"""Two networks with a numpy step between them, and only the loss at the end.

The features of ``encoder`` are smoothed with numpy and come back as a new tensor, which has no history. The
only loss is that of ``head``, so no gradient crosses the hop: every ``grad`` in ``encoder`` stays None, and
its optimizer steps without moving anything. torch raises nothing. graphscope points at the line where the
features leave torch and at the one where they come back, and reports the optimizer whose step changes
nothing.

Expected: GS201, GS203
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
head = nn.Linear(8, 1)
encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
head_optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
inputs, targets = torch.randn(64, 10), torch.randn(64, 1)
window = np.array([0.25, 0.5, 0.25], dtype=np.float32)

for epoch in range(3):
    features = encoder(inputs).detach().numpy()  # GS201
    smooth = np.stack([np.convolve(row, window, mode="same") for row in features])
    loss = mse_loss(head(torch.from_numpy(smooth)), targets)  # GS201

    encoder_optimizer.zero_grad()
    head_optimizer.zero_grad()
    loss.backward()
    encoder_optimizer.step()  # GS203
    head_optimizer.step()
    print(f"epoch {epoch}: {loss.item():.3f}, encoder moved: {encoder[0].weight.grad is not None}")
