"""What graphscope costs: traces, predictions, starts, watched programs, long runs and pictures, each beside a limit.

    python benchmarks/run.py                        # all of it, some twenty minutes
    python benchmarks/run.py tracing prediction     # some of its sections

Every measurement of a graph has a process of its own, and a graph that nobody has touched before: PyTorch makes the
Python object of a node on first contact, and keeps it. The walk and the trace take turns, so that both meet
the same weather.
"""

from __future__ import annotations

import compileall
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median
from typing import TypeVar

import networkx
import pictures
import torch
from models import chain_loss, gpt2_small_loss, lstm_loss, planned_chain, resnet50_loss
from torch import Tensor
from watching import endurance, overhead

import graphscope
from graphscope import check, trace
from graphscope.engine import simulate
from graphscope.trace import Trace

T = TypeVar("T")

# How to make the graph, in how many pairs of processes, and how many times in each.
GRAPHS: dict[str, tuple[Callable[[], Tensor], int, int]] = {
    "chain of 1,000": (partial(chain_loss, 1_000), 5, 9),
    "chain of 100,000": (partial(chain_loss, 100_000), 5, 1),
    "chain of 1,000,000": (partial(chain_loss, 1_000_000), 3, 1),
    "ResNet-50": (resnet50_loss, 5, 9),
    "GPT-2 small": (gpt2_small_loss, 5, 9),
    "LSTM of 200 steps": (lstm_loss, 5, 9),
}
PLANS = {"all succeed": False, "all but the first fail": True}
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


def structure(loss: Tensor) -> int:
    return len(trace(loss, facts=False))


def traced(loss: Tensor) -> int:
    return len(trace(loss))


def predicted(plan: Trace) -> int:
    simulate(plan)
    return len(plan.graph)


def measured(build: Callable[[], T], action: Callable[[T], int], times: int) -> tuple[float, int]:
    """Seconds that an action takes on a fresh graph, median of some times, and the nodes it met, in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            seconds = []
            for subject in [build() for _ in range(times)]:
                start = time.perf_counter()
                nodes = action(subject)
                seconds.append(time.perf_counter() - start)
            os.write(writing, f"{median(seconds)} {nodes}".encode())
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
    took, met = text.split()
    return float(took), int(met)


def started(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def check_seconds() -> float:
    """How long ``check`` takes on a network of two layers, the median of many."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = net(torch.ones(2, 4)).sum()
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        check(loss, optimizer)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def bulk(loss: Tensor) -> int:
    """What ``to_networkx`` is measured beside: networkx given the same nodes and edges in bulk; the fraction in ppm."""
    graph = trace(loss)
    start = time.perf_counter()
    mine = graph.to_networkx()
    middle = time.perf_counter()
    other = networkx.MultiDiGraph()
    other.add_nodes_from(mine.nodes(data=True))
    other.add_edges_from(mine.edges(keys=True, data=True))
    return int(1e6 * (middle - start) / (time.perf_counter() - middle))


def tracing() -> None:
    """Print what a trace takes beside a bare walk."""
    print("| graph | nodes | bare walk | structure alone | ratio | with shapes and saved tensors | ratio | networkx |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, (build, pairs, times) in GRAPHS.items():
        ways = (walk, structure, traced)
        runs = [[measured(build, way, times) for way in ways] for _ in range(pairs)]
        assert all(len({nodes for _, nodes in run}) == 1 for run in runs), "the trace has the nodes that the walk met"
        walks, alone, whole = ([run[way][0] for run in runs] for way in range(3))
        built = median(measured(build, bulk, 1)[1] / 1e6 for _ in range(pairs))
        cells = [
            f"{runs[0][0][1]:,}",
            f"{1e3 * median(walks):.2f} ms",
            f"{1e3 * median(alone):.2f} ms",
            f"{median(map(truediv, alone, walks)):.1f}",
            f"{1e3 * median(whole):.2f} ms",
            f"{median(map(truediv, whole, walks)):.1f}",
            f"{built:.2f}x",
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def prediction() -> None:
    """Print what the model of the engine takes beside a bare walk."""
    print("\n| prediction of 5 backwards and 5 steps | nodes | bare walk | prediction | ratio |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, fails in PLANS.items():
        pairs = [
            (
                *measured(partial(chain_loss, 10_000), walk, 5),
                *measured(partial(planned_chain, 10_000, fails), predicted, 1),
            )
            for _ in range(5)
        ]
        walks, met, predictions, _ = zip(*pairs, strict=True)
        ratio = median(map(truediv, predictions, walks))
        cells = f"{met[0]:,} | {1e3 * median(walks):.2f} ms | {1e3 * median(predictions):.2f} ms | {ratio:.1f}"
        print(f"| {name} | {cells} |", flush=True)


def starts() -> None:
    """Print how long the tool takes to start."""
    print("\n| start | time |\n| --- | ---: |")
    rounds = [[started(command) for command in STARTS.values()] for _ in range(9)]
    for name, seconds in zip(STARTS, zip(*rounds, strict=True), strict=True):
        print(f"| {name} | {median(seconds):.3f} s |")
    print(f"| `check`, two layers | {check_seconds():.4f} s |", flush=True)


SECTIONS = {
    "tracing": tracing,
    "prediction": prediction,
    "starts": starts,
    "overhead": overhead,
    "endurance": endurance,
    "pictures": pictures.table,
}


def main(wanted: list[str]) -> None:
    compileall.compile_dir(Path(graphscope.__file__).parent, quiet=1)  # as pip does when it installs; its peers are so
    torch.set_num_threads(1)  # no thread pool is lost in a fork
    bulk(torch.ones(1, requires_grad=True).exp())  # imports all that a first call imports
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, medians\n")
    for name in wanted or SECTIONS:
        SECTIONS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
