"""``retain_graph=True`` does not help across an optimizer step.

Two losses share ``trunk``. The first backward retains the graph, so nothing is freed; but the step that
follows overwrites the weights of ``trunk`` in place, and the second backward needs them as they were. torch
raises "one of the variables needed for gradient computation has been modified by an inplace operation".
graphscope names the step as the write. Step once, after both backward calls.

Expected: GS102
"""

import torch
from torch import nn
from torch.nn.functional import l1_loss, mse_loss

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
depth_head, edge_head = nn.Linear(8, 1), nn.Linear(8, 1)
parameters = [*trunk.parameters(), *depth_head.parameters(), *edge_head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.05)
inputs, depth, edge = torch.randn(32, 8), torch.randn(32, 1), torch.randn(32, 1)

for _ in range(3):
    features = trunk(inputs)
    depth_loss = l1_loss(depth_head(features), depth)
    edge_loss = mse_loss(edge_head(features), edge)
    print(f"{depth_loss.item():.3f} {edge_loss.item():.3f}")

    optimizer.zero_grad()
    depth_loss.backward(retain_graph=True)
    optimizer.step()  # GS102
    optimizer.zero_grad()
    edge_loss.backward()  # GS102
    optimizer.step()
