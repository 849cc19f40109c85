"""Two models with the graphs of ResNet-50 and GPT-2 small; their layers are narrow, which changes no node."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import graphscope
from graphscope.trace import Trace


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False)).append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks, inputs = [], width
        for stage, depth in enumerate(depths):
            for block in range(depth):
                blocks.append(Bottleneck(inputs, width << stage, 2 if stage and not block else 1))
                inputs = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(F.max_pool2d(self.stem(images), 3, 2, 1))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.ln1(x)).split(width, dim=2)
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in qkv)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        y: Tensor = x + self.mlp(self.ln2(x))
        return y


class GPT(nn.Module):
    def __init__(self, layers: int = 12, width: int = 96, vocabulary: int = 1000) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(Block(width, heads=12) for _ in range(layers)))
        self.ln = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        logits: Tensor = self.ln(self.blocks(x)) @ self.tokens.weight.T
        return logits


class Cells(nn.Module):
    """An LSTM cell in a Python loop, as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(8, 16), nn.Linear(16, 1)

    def forward(self, steps: Tensor) -> Tensor:
        hidden = memory = torch.zeros(steps.shape[1], 16)
        outputs = []
        for step in steps:
            hidden, memory = self.cell(step, (hidden, memory))
            outputs.append(self.head(hidden))
        return torch.stack(outputs)


class Residual(nn.Module):
    """Layers with a way around each: a thousand nodes and three for 167 of them."""

    def __init__(self, layers: int = 167) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x


def resnet50_loss() -> Tensor:
    return F.cross_entropy(ResNet()(torch.randn(2, 3, 64, 64)), torch.tensor([1, 2]))


def gpt2_small_loss() -> Tensor:
    ids = torch.arange(32).reshape(2, 16)
    return F.cross_entropy(GPT()(ids).flatten(0, 1), ids.flatten())


def chain_loss(length: int) -> Tensor:
    """A chain of ``length`` operators, every second of which saves a tensor."""
    x = torch.ones((), requires_grad=True)
    y = x
    for _ in range(length // 2):
        y = (y + 1).sin()
    return y


def planned_chain(length: int, fails: bool) -> Trace:
    """Five backwards and five steps, planned over a chain that saves the parameters, or none of them."""
    parameters = [torch.ones((), requires_grad=True) for _ in range(5)]
    loss = parameters[0]
    for position in range(length // 2):
        parameter = parameters[position % 5]
        loss = (loss * parameter if fails else loss + parameter).sin()
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    plan = graphscope.plan()
    for _ in range(5):
        plan.backward(loss, retain_graph=True).step(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return plan.check().trace


def lstm_loss() -> Tensor:
    return Cells()(torch.randn(200, 2, 8)).mean()
