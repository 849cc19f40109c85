"""Training loops to be run bare, watched, or in anomaly mode: ``python loops.py NAME STEPS TIMES [--anomaly]``.

The CPU time of each step is written to the file TIMES, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from models import GPT, ResNet
from torch import nn
from torch.nn import functional as F

Step = Callable[[], None]


def tiny_mlp() -> Step:
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(64, 16), torch.randint(4, (64,))

    def step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()

    return step


def gan() -> Step:
    generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))
    critic = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
    real = torch.randn(128, 64)

    def step() -> None:
        fake = generator(torch.randn(128, 16))
        critic_optimizer.zero_grad()
        (F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()).backward()
        critic_optimizer.step()
        generator_optimizer.zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        generator_optimizer.step()

    return step


def classifier(net: nn.Module, images: torch.Tensor, classes: torch.Tensor) -> Step:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(images).flatten(0, -2), classes).backward()
        optimizer.step()

    return step


def small_resnet() -> Step:
    return classifier(ResNet((2, 2, 2, 2), width=4), torch.randn(8, 3, 32, 32), torch.randint(1000, (8,)))


def small_gpt() -> Step:
    ids = torch.randint(1000, (4, 64))
    return classifier(GPT(layers=4), ids, ids.flatten())


def busy() -> Step:
    """The tiny MLP with some 20 ms of work in each step."""
    step, matrix = tiny_mlp(), torch.randn(512, 512)

    def slow() -> None:
        begun = time.process_time()
        while time.process_time() - begun < 0.02:
            matrix @ matrix
        step()

    return slow


LOOPS = {"tiny-mlp": tiny_mlp, "gan": gan, "small-resnet": small_resnet, "small-gpt": small_gpt, "busy": busy}


def main(name: str, steps: str, times: str, *options: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly("--anomaly" in options)
    step = LOOPS[name]()
    taken = []
    for _ in range(int(steps)):
        begun = time.process_time()
        step()
        taken.append(time.process_time() - begun)
    Path(times).write_text(json.dumps(taken))


if __name__ == "__main__":
    main(*sys.argv[1:])
