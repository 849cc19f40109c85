"""A GRU whose hidden state is carried from one chunk of a sequence to the next.

``hidden`` comes out of one chunk with its whole history and goes into the next. The second backward therefore
walks back into the first chunk, whose graph is freed, and torch raises "Trying to backward through the graph
a second time". Keeping the graph would not help: the step in between has changed the weights it needs.
graphscope points at the call that takes the old state in; ``gru(chunk, hidden.detach())`` is the remedy.

Expected: GS101
"""

import torch
from torch import nn
from torch.nn.functional import mse_loss

torch.manual_seed(0)
gru = nn.GRU(input_size=1, hidden_size=16, batch_first=True)
readout = nn.Linear(16, 1)
optimizer = torch.optim.Adam([*gru.parameters(), *readout.parameters()], lr=1e-2)
wave = torch.sin(torch.arange(121) * 0.2 + torch.rand(8, 1)).unsqueeze(2)

hidden = torch.zeros(1, 8, 16)
for start in range(0, 120, 20):
    chunk, target = wave[:, start : start + 20], wave[:, start + 1 : start + 21]
    output, hidden = gru(chunk, hidden)  # GS101
    loss = mse_loss(readout(output), target)
    print(f"{start}: {loss.item():.3f}")

    optimizer.zero_grad()
    loss.backward()  # GS101
    optimizer.step()
