"""Two losses on one shared network, added up and backpropagated once.

The second network works on the output of the first, and each has its own loss. A single backward over the sum
visits every node once, so nothing is freed too early, and the gradient of ``encoder`` is the sum of both
parts. torch runs it, and graphscope has nothing to say.

Expected: nothing
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
classifier = nn.Linear(8, 3)
optimizer = torch.optim.SGD([*encoder.parameters(), *classifier.parameters()], lr=0.1)
inputs, labels = torch.randn(64, 8), torch.randint(3, (64,))

for _ in range(5):
    code = encoder(inputs)
    reconstruction_loss = mse_loss(code, inputs)
    classification_loss = cross_entropy(classifier(code), labels)

    optimizer.zero_grad()
    (reconstruction_loss + classification_loss).backward()
    optimizer.step()
    print(f"{reconstruction_loss.item():.3f} {classification_loss.item():.3f}")
