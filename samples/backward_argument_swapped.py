"""``z.backward(t)``: the argument of ``backward`` is the incoming gradient.

Backward starts at ``z`` and visits all that made it, ``decoder`` and ``encoder``. The values of ``t`` weigh
the elements of ``z``, as if the loss were ``(z * t.detach()).sum()``; being the argument gives ``t`` no
gradient of its own. Both optimizers are reached, torch runs it, and graphscope has nothing to say. Compare
``backward_argument.py``.

Expected: nothing
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
    z.backward(t)
    encoder_optimizer.step()
    decoder_optimizer.step()
    print([parameter.grad is not None for parameter in (encoder[0].weight, decoder[0].weight)])
