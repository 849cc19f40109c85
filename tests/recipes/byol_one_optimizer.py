"""BYOL with the target in the module, and so in the optimizer: it gets no gradient, and follows by ``.data =``."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.target, self.predictor = nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(4, 4)
        self.target.load_state_dict(self.online.state_dict())

    def update(self, decay=0.99):
        for online, target in zip(self.online.parameters(), self.target.parameters(), strict=True):
            target.data = target.data * decay + online.data * (1 - decay)

    def forward(self, one, other):
        with torch.no_grad():
            wanted = self.target(other)
        return 2 - 2 * F.cosine_similarity(self.predictor(self.online(one)), wanted).mean()


model = BYOL()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(5):
    images = torch.randn(8, 8)
    loss = model(images + 0.1 * torch.randn(8, 8), images + 0.1 * torch.randn(8, 8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.update()
