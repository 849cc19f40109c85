"""How long ``graphscope.trace`` takes beside a bare walk of the same graph, and how long the tool takes to start.

    python benchmarks/run.py

Every measurement has a process of its own, and a graph that nobody has touched before: PyTorch makes the
Python object of a node on first contact, and keeps it. The walk and the trace take turns, so that both meet
the same weather.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from models import chain_loss, gpt2_small_loss, resnet50_loss
from torch import Tensor

from graphscope import trace

GRAPHS: dict[str, tuple[Callable[[], Tensor], int]] = {
    "chain of 1,000": (partial(chain_loss, 1_000), 7),
    "chain of 100,000": (partial(chain_loss, 100_000), 5),
    "chain of 1,000,000": (partial(chain_loss, 1_000_000), 3),
    "ResNet-50": (resnet50_loss, 7),
    "GPT-2 small": (gpt2_small_loss, 7),
}
STARTS = {
    "`import torch`": ["-c", "import torch"],
    "`import torch, graphscope`": ["-c", "import torch, graphscope"],
    "`import torch, graphscope.api`": ["-c", "import torch, graphscope.api"],
    "`import graphscope`": ["-c", "import graphscope"],
    "`graphscope --help`": ["-m", "graphscope", "--help"],
    "`python -c pass`": ["-c", "pass"],
}


def walk(loss: Tensor) -> int:
    """What any tracer has to do: meet each node once."""
    assert loss.grad_fn is not None
    seen, stack = {loss.grad_fn}, [loss.grad_fn]
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                stack.append(node)
    return len(seen)


def traced(loss: Tensor) -> int:
    return len(trace(loss))


def measured(build: Callable[[], Tensor], action: Callable[[Tensor], int]) -> tuple[float, int]:
    """Seconds that an action takes on a fresh graph, and the nodes it met, in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            loss = build()
            start = time.perf_counter()
            met = action(loss)
            os.write(writing, f"{time.perf_counter() - start} {met}".encode())
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)  # at once: a deep graph whose nodes have Python objects overflows the stack when it dies
    os.close(writing)
    with open(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        raise SystemExit(f"{action.__name__} failed")
    seconds, nodes = text.split()
    return float(seconds), int(nodes)


def started(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(1)  # no thread pool is lost in a fork
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, medians\n")
    print("| graph | nodes | bare walk | `trace` | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (build, rounds) in GRAPHS.items():
        pairs = [(measured(build, walk), measured(build, traced)) for _ in range(rounds)]
        assert len({nodes for pair in pairs for _, nodes in pair}) == 1, "both meet the same nodes"
        bare, full = median(pair[0][0] for pair in pairs), median(pair[1][0] for pair in pairs)
        ratio = median(pair[1][0] / pair[0][0] for pair in pairs)
        print(f"| {name} | {pairs[0][0][1]:,} | {1e3 * bare:.2f} ms | {1e3 * full:.2f} ms | {ratio:.1f} |", flush=True)
    print("\n| start | time |\n| --- | ---: |")
    for command in STARTS.values():
        started(command)  # warms the file cache
    for name, command in STARTS.items():
        print(f"| {name} | {median(started(command) for _ in range(7)):.3f} s |", flush=True)


if __name__ == "__main__":
    main()
