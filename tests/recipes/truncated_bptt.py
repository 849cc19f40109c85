"""An LSTM language model with truncated backpropagation: the state is carried on and detached between chunks."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)


class LanguageModel(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.1)
        self.decode = nn.Linear(width, tokens)
        self.decode.weight = self.embed.weight

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, state = self.lstm(self.embed(x), state)
        return self.decode(output), state


model = LanguageModel(tokens=12, width=16)
text = torch.randint(12, (61, 4))
learning_rate, total = 0.5, 0.0
state = (torch.zeros(2, 4, 16), torch.zeros(2, 4, 16))
for start in range(0, 60, 10):
    state = tuple(part.detach() for part in state)
    model.zero_grad()
    logits, state = model(text[start : start + 10], state)
    loss = cross_entropy(logits.flatten(0, 1), text[start + 1 : start + 11].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-learning_rate)
    total += loss.item()
print(f"perplexity {math.exp(total / 6):.2f}")
