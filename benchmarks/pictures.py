"""How long a picture takes from a cold start, beside torchviz and torchview drawing the same models.

    python benchmarks/pictures.py

Each run has a process of its own: torch is imported and the model has run, then the clock starts, and stops when the
SVG is there. The peers write DOT, which they leave to a `dot` on PATH to draw; here pygraphviz draws it, in a child
that is given 30 seconds. It may crash on what they write: such a run is made again; `crashes` means that none ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from models import GPT, Cells, Residual, ResNet, gpt2_small_loss, lstm_loss, resnet50_loss
from torch import Tensor, nn

RUNS, MOST, SECONDS = 3, 12, 30.0


def residual_loss() -> Tensor:
    return Residual()(torch.randn(2, 8)).mean()


# The loss; the model and its input, for torchview; whether every node is to be drawn.
MODELS: dict[str, tuple[Callable[[], Tensor], Callable[[], tuple[nn.Module, Tensor]], bool]] = {
    "1,000 nodes, all drawn": (residual_loss, lambda: (Residual(), torch.randn(2, 8)), True),
    "GPT-2 small": (gpt2_small_loss, lambda: (GPT(), torch.arange(32).reshape(2, 16)), False),
    "ResNet-50": (resnet50_loss, lambda: (ResNet(), torch.randn(2, 3, 64, 64)), False),
    "LSTM of 200 steps": (lstm_loss, lambda: (Cells(), torch.randn(200, 2, 8)), False),
}


def ours(name: str) -> tuple[float, int, int]:
    loss, whole = MODELS[name][0](), MODELS[name][2]
    start = time.perf_counter()
    import graphscope
    from graphscope.report import Report, render
    from graphscope.show import Show
    from graphscope.trace import Trace

    graph = graphscope.trace(loss)
    drawn = str(render(Report(Trace(graph=graph)), "svg", Show(boxes=0) if whole else Show()))
    seconds = time.perf_counter() - start
    return seconds, len(graph), drawn.count("<g id=") - drawn.count('class="module"')


def torchviz(name: str) -> tuple[float, int, int]:
    loss = MODELS[name][0]()
    start = time.perf_counter()
    from torchviz import make_dot

    source = make_dot(loss).source
    return _drawn(source, start)


def torchview(name: str) -> tuple[float, int, int]:
    model, given = MODELS[name][1]()
    start = time.perf_counter()
    from torchview import draw_graph

    source = draw_graph(model, input_data=given, device="cpu").visual_graph.source
    return _drawn(source, start)


def _drawn(source: str, start: float) -> tuple[float, int, int]:
    from graphscope.errors import GraphscopeError
    from graphscope.renderers._engine import draw

    try:
        drawn = draw(source, "svg", seconds=SECONDS).decode()
    except GraphscopeError as error:
        if "did not finish" not in str(error):
            raise
        return float("inf"), 0, 0
    boxes = drawn.count('class="node"')
    return time.perf_counter() - start, boxes, boxes


def measured(tool: str, name: str) -> str:
    """Median seconds and the boxes in the picture."""
    runs: list[float] = []
    boxes = 0
    for _ in range(MOST):
        command = [sys.executable, __file__, tool, name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
        if done.returncode:
            continue
        seconds, _, boxes = map(float, done.stdout.split())
        runs.append(seconds)
        if len(runs) == RUNS or seconds == float("inf"):
            break
    if not runs:
        return "crashes"
    return f"none in {SECONDS:g} s" if runs[-1] == float("inf") else f"{median(runs):.2f} s, {int(boxes):,} boxes"


def table() -> None:
    """Print what each tool takes for each model."""
    print("\n| model | graphscope | torchviz | torchview |\n| --- | ---: | ---: | ---: |")
    for name in MODELS:
        cells = [measured(tool, name) for tool in ("ours", "torchviz", "torchview")]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        print(*{"ours": ours, "torchviz": torchviz, "torchview": torchview}[sys.argv[1]](sys.argv[2]))
    else:
        table()
