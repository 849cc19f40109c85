"""A small GPT that learns a nursery rhyme, character by character.

Causal self-attention, pre-norm blocks, an output layer that shares its weight with the token embedding (one
parameter, reached along two paths), weight decay by group, gradient clipping, and a greedy sample at the end
under ``no_grad``. torch runs it, and graphscope has nothing to say.

Expected: nothing
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

RHYME = """
twinkle, twinkle, little star,
how i wonder what you are!
up above the world so high,
like a diamond in the sky.
"""


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, context: int, width: int = 32, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.context = context
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def write(self, tokens: Tensor, count: int) -> Tensor:
        """Go on with the likeliest characters."""
        for _ in range(count):
            logits = self(tokens[:, -self.context :])
            tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
        return tokens


torch.manual_seed(0)
alphabet = sorted(set(RHYME))
text = torch.tensor([alphabet.index(character) for character in RHYME])
model = GPT(vocabulary=len(alphabet), context=24)
decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-2
)

for step in range(40):
    starts = torch.randint(len(text) - model.context, (16,))
    window = torch.stack([text[start : start + model.context + 1] for start in starts])
    logits = model(window[:, :-1])
    loss = cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())

    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step}: loss {loss.item():.3f}")

written = model.write(text[:8].unsqueeze(0), count=40)
print("".join(alphabet[token] for token in written[0]).strip())
