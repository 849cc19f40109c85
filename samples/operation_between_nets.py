"""An operation between two networks does not separate their graphs.

The output of ``embedder`` is centred and normalised before ``scorer`` sees it. That makes new tensors, but
they keep their history: it is still one graph, so the second backward runs into what the first one freed, and
torch raises "Trying to backward through the graph a second time". Only ``detach()`` or a way out of torch
would separate the two. graphscope shows that both losses meet in ``embedder``.

Expected: GS101
"""

import torch
from torch import nn
from torch.nn.functional import normalize

torch.manual_seed(0)
embedder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
scorer = nn.Linear(4, 1)
embedder_optimizer = torch.optim.SGD(embedder.parameters(), lr=0.05)
scorer_optimizer = torch.optim.SGD(scorer.parameters(), lr=0.05)
inputs, targets, scores = torch.randn(32, 6), torch.randn(32, 4), torch.rand(32, 1)

for _ in range(3):
    embedding = embedder(inputs)
    embedding_loss = (embedding - targets).pow(2).mean()
    unit = normalize(embedding - embedding.mean(dim=0), dim=1)
    score_loss = (scorer(unit) - scores).pow(2).mean()
    print(f"{embedding_loss.item():.3f} {score_loss.item():.3f}")

    embedder_optimizer.zero_grad()
    scorer_optimizer.zero_grad()
    embedding_loss.backward()  # GS101
    score_loss.backward()  # GS101
    embedder_optimizer.step()
    scorer_optimizer.step()
