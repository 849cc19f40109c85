"""Graphs that outlive their step: who holds them is found wherever it is, and what does not grow is left alone."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

import graphscope
from graphscope.findings import Finding

LOOP = """
import functools
from collections import deque
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
{before}
def train():
    {local}
    for step in range({steps}):
        out = net(torch.randn(6, 4))
        loss = out.pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        {keep}
train()
"""


def found(folder: Path, keep: str, before: str = "", local: str = "pass", steps: int = 10) -> list[Finding]:
    script = folder / "train.py"
    script.write_text(LOOP.format(keep=keep, before=before, local=local, steps=steps))
    with contextlib.redirect_stdout(io.StringIO()):
        report = graphscope.inspect(script)
    assert all(each.code == "GS104" for each in report.findings)
    assert report.trace.outcome.exception is None
    assert not any("internal error" in each for each in report.trace.unseen)
    return list(report.findings)


METER = """
class Meter:
    def __init__(self):
        self.values = []
    def update(self, value):
        self.values.append(value)
meter = Meter()
"""
SLOTS = """
class State:
    __slots__ = ("total",)
state = State()
state.total = 0
"""
CLOSURE = """
def logger():
    history = []
    def log(value):
        history.append(value)
    return log
log = logger()
"""
HOLDERS = {
    "local": ("total = total + loss", "", "total = 0", "total"),
    "list": ("losses.append(loss)", "losses = []", "pass", "losses"),
    "tuples in a list": ("losses.append((step, loss))", "losses = []", "pass", "losses"),
    "dict": ("losses[step] = loss", "losses = {}", "pass", "losses"),
    "list in a dict": ("log['loss'].append(loss)", "log = {'loss': []}", "pass", "log['loss']"),
    "element": ("log['loss'] += loss", "log = {'loss': 0}", "pass", "log['loss']"),
    "deque": ("losses.append(loss)", "losses = deque(maxlen=500)", "pass", "losses"),
    "module attribute": ("net.total = net.total + loss", "net.total = 0", "pass", "net.total"),
    "object": ("meter.update(loss)", METER, "pass", "meter.values"),
    "slot": ("state.total += loss", SLOTS, "pass", "state.total"),
    "closure": ("log(loss)", CLOSURE, "pass", "log.history"),
    "default argument": ("log(loss)", "def log(value, seen=[]):\n    seen.append(value)", "pass", "log.seen"),
    "class attribute": ("Log.seen.append(loss)", "class Log:\n    seen = []", "pass", "Log.seen"),
    "average": ("smooth = 0.9 * smooth + 0.1 * loss", "", "smooth = 0", "smooth"),
    "every second step": ("if step % 2: losses.append(loss)", "losses = []", "pass", "losses"),
}


@pytest.mark.parametrize("keep, before, local, name", HOLDERS.values(), ids=HOLDERS)
def test_the_holder_is_named_within_ten_steps(keep: str, before: str, local: str, name: str, tmp_path: Path) -> None:
    (finding,) = found(tmp_path, keep, before, local)
    assert finding.facts["holder"] == name
    lines = (tmp_path / "train.py").read_text().splitlines()
    causes = {place.location.line for place in finding.places if place.role.value == "cause"}
    assert 1 + next(i for i, line in enumerate(lines) if line.strip() == keep) in causes


CLEAN = {
    "number": ("total += loss.item()", "", "total = 0"),
    "detached": ("losses.append(loss.detach())", "losses = []", "pass"),
    "last": ("last = loss", "", "last = None"),
    "few": ("losses.append(out)", "losses = deque(maxlen=4)", "pass"),
    "window": ("losses = [*losses, loss][-4:]", "", "losses = []"),
    "warm-up": ("if step < 3: losses.append(out)", "losses = []", "pass"),
    "no_grad": ("with torch.no_grad(): losses.append(net(torch.ones(2, 4)))", "losses = []", "pass"),
    "once": ("kept = kept if step else out", "", "kept = None"),
    "gradients": ("seen.append([p.grad.clone() for p in net.parameters()])", "seen = []", "pass"),
    "refused": (  # torch does not say of such a view whether it is a leaf
        "with torch.no_grad(): step == 1 and views[0].add_(1)",
        "",
        "views = torch.ones(2, 3, requires_grad=True).unbind(0)",
    ),
    "weights": ("seen.append([p.detach().clone() for p in net.parameters()])", "seen = []", "pass"),
}


@pytest.mark.parametrize("keep, before, local", CLEAN.values(), ids=CLEAN)
def test_what_does_not_grow_is_left_alone(keep: str, before: str, local: str, tmp_path: Path) -> None:
    assert not found(tmp_path, keep, before, local, steps=24)


def test_an_epoch_that_ends_is_growth_all_the_same(tmp_path: Path) -> None:
    keep = "total = total + loss if step % 7 else loss"
    assert [each.facts["holder"] for each in found(tmp_path, keep, local="total = 0", steps=30)] == ["total"]


def test_losses_of_an_episode_are_kept_for_its_backward(tmp_path: Path) -> None:
    actor = "actor = nn.Linear(4, 1)\nacting = torch.optim.SGD(actor.parameters(), lr=0.01)\nlosses = []"
    keep = (
        "losses.append(actor(torch.randn(2, 4)).mean())\n"
        "        if step % 8 == 7:\n"
        "            acting.zero_grad()\n"
        "            torch.stack(losses).sum().backward()\n"
        "            acting.step()\n"
        "            losses.clear()"
    )
    assert not found(tmp_path, keep, actor, steps=32)


def test_growth_is_told_in_nodes_and_bytes_per_step(tmp_path: Path) -> None:
    (unused,) = found(tmp_path, "kept.append(net(torch.ones(6, 4)))", "kept = []")
    assert unused.facts["bytes_per_step"] == 6 * 8 * 4 + 6 * 4 * 4  # the result of tanh, and the batch
    assert unused.facts["nodes_per_step"] > 0


def test_looking_keeps_nothing_alive(tmp_path: Path) -> None:
    before = "import weakref, gc\nlosses, gone = [], []"
    keep = "losses.append(loss); gone.append(weakref.ref(out)); del out"
    (tmp_path / "out").mkdir()
    script = LOOP.format(before=before, local="pass", keep=keep, steps=12) + (
        "losses.clear()\nprint(sum(each() is not None for each in gone))\n"
    )
    path = tmp_path / "train.py"
    path.write_text(script)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        graphscope.inspect(path)
    assert said.getvalue() == "0\n"
