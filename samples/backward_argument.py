"""``t.backward(z)`` read as "differentiate z with respect to t".

It means the opposite: backward starts at ``t``, and ``z`` is only the incoming gradient, a constant that
weighs the elements of ``t``. The graph of ``z`` is never visited. Here that trains ``encoder`` on the wrong
thing and leaves every ``grad`` in ``decoder`` None; torch raises nothing. graphscope reports the optimizer
that steps without a gradient. ``backward_argument_swapped.py`` has it the other way round.

Expected: GS203
"""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
decoder = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
decoder_optimizer = torch.optim.SGD(decoder.parameters(), lr=0.1)
inputs = torch.randn(32, 6)

for _ in range(3):
    t = encoder(inputs)
    z = decoder(t)
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    t.backward(z)
    encoder_optimizer.step()
    decoder_optimizer.step()  # GS203
    print([parameter.grad is not None for parameter in (encoder[0].weight, decoder[0].weight)])
