"""Long runs are recorded until they repeat themselves, then sampled."""

from __future__ import annotations

import torch

import graphscope
from graphscope.events import Backward, OptimizerStep
from graphscope.findings import Severity
from graphscope.tracer.pattern import Pattern
from graphscope.tracer.recorder import Recorder


def recorded(pattern: Pattern, steps: int, events) -> list[int]:
    """Which of these steps are recorded; ``events(step)`` are those of a step."""
    found, awake = [], True
    for step in range(steps):
        for event in events(step):
            pattern.saw(event)
        if awake:
            found.append(step)
        awake = pattern.next_step()
    return found


def test_a_pattern_that_repeats_itself_is_looked_at_ever_more_rarely():
    found = recorded(Pattern(), 10_000, lambda _: ("zero", "backward", "step"))
    assert found[:11] == list(range(11))
    assert 20 < len(found) < 50
    assert found[-1] > 5_000


def test_what_is_new_is_recorded_whenever_it_comes():
    found = recorded(Pattern(), 1000, lambda step: ("backward", "step") if step < 500 else ("backward", "clip", "step"))
    assert set(range(501, 505)) <= set(found)


def test_what_comes_once_an_epoch_is_no_news_the_second_time():
    found = recorded(Pattern(), 5000, lambda step: ("backward", "step", *("zero",) * (step % 500 == 499)))
    assert len([step for step in found if step > 600]) < 15


def test_every_step_is_recorded_on_demand():
    assert len(recorded(Pattern(every_step=True), 500, lambda _: ("backward", "step"))) == 500


def train(steps: int, *, after=lambda step, net: None) -> torch.nn.Module:
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        after(step, net)
        optimizer.step()
    return net


def test_a_long_run_is_sampled_and_says_so():
    with Recorder() as recorder:
        train(300)
    trace = recorder.trace()
    assert trace.steps_run == 300
    assert len(list(trace.steps)) + sum(pause.steps for pause in trace.pauses) == 300
    assert len(list(trace.steps)) < 60
    assert any("of 300 steps" in each for each in trace.unseen)
    steps = [event.step for event in trace.events if isinstance(event, Backward | OptimizerStep)]
    assert steps == sorted(steps)


def test_a_fault_that_begins_late_is_seen():
    def freeze(step, net):
        if step == 150:
            net.bias.requires_grad_(False)
            net.bias.grad = None

    with Recorder() as recorder:
        train(200, after=freeze)
    assert next(event for event in recorder.trace().steps if event.frozen).step in (151, 152)


def test_a_loop_that_updates_by_hand_is_sampled_too():
    weight = torch.ones(2, requires_grad=True)
    with Recorder() as recorder:
        for _ in range(1500):
            (gradient,) = torch.autograd.grad((weight * 2).sum(), weight)
            with torch.no_grad():
                weight -= 0.01 * gradient
    assert len(list(recorder.trace().backwards)) < 1100


def test_the_mode_of_a_program_is_left_in_place():
    class Counting(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counting.calls += 1
            return func(*args, **kwargs or {})

    def inside(step, net):
        if 18 < step < 75:
            with Counting():
                torch.ones(1).add(1)

    with Recorder():
        train(40)
        with Counting():
            train(60)
        train(100, after=inside)
        depth = torch._C._len_torch_function_stack()
    assert depth <= 1
    assert torch._C._len_torch_function_stack() == 0
    assert Counting.calls > 60


def test_steps_ends_the_program_when_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("gan.py").write_text(
        "import torch\n"
        "d, g = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)\n"
        "opt_d = torch.optim.SGD(d.parameters(), lr=0.1)\n"
        "opt_g = torch.optim.SGD(g.parameters(), lr=0.1)\n"
        "try:\n"
        "    for step in range(1000):\n"
        "        for _ in range(2):\n"
        "            opt_d.zero_grad()\n"
        "            d(g(torch.ones(1, 2)).detach()).sum().backward()\n"
        "            opt_d.step()\n"
        "        opt_g.zero_grad()\n"
        "        d(g(torch.ones(1, 2))).sum().backward()\n"
        "        opt_g.step()\n"
        "finally:\n"
        "    print('closed at', step)\n"
    )
    report = graphscope.inspect("gan.py", steps=3)
    assert capsys.readouterr().out == "closed at 2\n"
    assert report.trace.outcome.status == 0 and report.trace.outcome.exception is None
    assert report.trace.steps_run == 9


def test_gradients_that_no_step_uses_are_told_of_after_a_pause_too() -> None:
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with graphscope.watch() as report:
        for batch in range(160):
            optimizer.zero_grad()
            (net(torch.ones(1, 2)).sum() / 4).backward()
            if batch % 4 == 3:
                optimizer.step()
    assert report.trace.pauses
    assert [finding.code for finding in report.at_least(Severity.WARNING)] == ["GS307"]
