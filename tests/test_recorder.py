"""What a recording holds, and what it leaves behind in the program: nothing."""

from __future__ import annotations

import contextlib
import gc
import inspect
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer

import graphscope
from graphscope.events import (
    Backward,
    BackwardCut,
    BackwardWrite,
    GradRead,
    InPlaceWrite,
    OptimizerStep,
    RequiresGradSet,
    ZeroGrad,
)
from graphscope.tracer import recorder
from graphscope.tracer.backwards import BackwardWatch
from graphscope.tracer.calls import CallWatch
from graphscope.tracer.optimizers import OptimizerWatch
from graphscope.tracer.recorder import Recorder
from graphscope.tracer.recording import Recording
from graphscope.tracer.writes import WriteWatch


def line() -> int:
    """The line of the caller."""
    return inspect.currentframe().f_back.f_lineno


def of_kind(report, kind):
    return [event for event in report.trace.events if isinstance(event, kind)]


def net_and_optimizer():
    net = nn.Linear(2, 1)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def test_training_step_is_recorded_at_the_users_lines():
    net, optimizer = net_and_optimizer()
    with graphscope.watch() as report:
        loss = net(torch.ones(1, 2)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last = line()
    kinds = [(type(event), event.location.line) for event in report.trace.events]
    assert kinds == [(ZeroGrad, last - 3), (Backward, last - 2), (OptimizerStep, last - 1)]
    assert {event.location.file.rpartition("/")[2] for event in report.trace.events} == {"test_recorder.py"}
    (backward,) = report.trace.backwards
    assert backward.roots[0].name == "loss" and [optimizer.name for optimizer in report.trace.optimizers] == [
        "optimizer"
    ]


def test_grad_is_a_backward_that_does_not_accumulate():
    x = torch.ones(2, requires_grad=True)
    with graphscope.watch() as report:
        torch.autograd.grad((x * x).sum(), x, create_graph=True)
    (event,) = report.trace.backwards
    assert (event.accumulates, event.create_graph, len(event.inputs)) == (False, True, 1)


def test_failed_backward_has_its_error_and_the_program_gets_it():
    x = torch.ones(2, requires_grad=True)
    with graphscope.watch() as report:
        loss = x.exp().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()
    first, second = report.trace.backwards
    assert first.error is None and second.error.startswith("RuntimeError: Trying to backward")


def test_reading_grad_is_recorded():
    x = torch.ones(2, requires_grad=True)
    with graphscope.watch() as report:
        _ = x.grad
        x.sum().backward()
        _ = x.grad
    assert [event.present for event in of_kind(report, GradRead)] == [False, True]


def data(x):
    x.data.add_(1)


def own_loop(x):
    x.data -= 0.1


def item(x):
    x[0] = 5


def sliced(x):
    x[0:1].mul_(2)


def detached(x):
    x.detach().zero_()


def out(x):
    torch.add(torch.ones(3), 1, out=x)


def augmented(x):
    x += 1


def shared_array(x):
    x.numpy()[0] = 3


def shared_ufunc(x):
    array = x.numpy()
    np.multiply(array, 2, out=array)


def foreach(x):
    torch._foreach_add_([x], 1)


def copied(x):
    x.copy_(torch.zeros(3))


def filled(x):
    nn.init.ones_(x)


VISIBLE = [item, sliced, detached, out, augmented, foreach, copied, filled]
HIDDEN = [data, own_loop, shared_array, shared_ufunc]


@pytest.mark.parametrize("write", VISIBLE + HIDDEN, ids=lambda write: write.__name__)
def test_write_to_a_saved_tensor_is_recorded(write):
    weight = torch.ones(3, requires_grad=True)
    with graphscope.watch() as report:
        saved = torch.ones(3)
        loss = (weight * saved).sum()
        with torch.no_grad():
            write(saved)
        with contextlib.suppress(RuntimeError):
            loss.backward()
    event, *again = of_kind(report, InPlaceWrite)
    assert len(again) == (write is own_loop)  # `x.data -= y` writes, then assigns
    assert event.location.line == write.__code__.co_firstlineno + (2 if write is shared_ufunc else 1)
    assert event.write.hidden is (write in HIDDEN)
    (node,) = (node for node in report.trace.graph.nodes if node.op == "MulBackward0")
    assert event.write.storage in {each.storage for each in node.saved}


def test_step_says_which_parameters_it_wrote():
    net, optimizer = net_and_optimizer()
    with graphscope.watch() as report:
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    (event,) = report.trace.steps
    names = {report.trace.graph.tensor(write.tensor).name for write in event.writes}
    assert names == {"net.weight", "net.bias"}
    assert all(write.after == write.before + 1 for write in event.writes)


@pytest.mark.parametrize("kwargs", [False, True])
def test_batch_norm_statistics_are_writes_where_a_graph_was_given_them(kwargs):
    norm = nn.BatchNorm1d(2)

    def normalized(x):
        if not kwargs:
            return norm(x)
        return F.batch_norm(x, running_mean=norm.running_mean, running_var=norm.running_var, training=norm.training)

    with graphscope.watch() as report:
        normalized(torch.randn(4, 2, requires_grad=True)).sum().backward()  # works with the batch's own
        normalized(torch.randn(4, 2))
        loss = normalized(torch.randn(4, 2, requires_grad=True)).sum()
        normalized(torch.randn(4, 2))
        loss.backward()
        with torch.no_grad():
            norm.eval()(torch.randn(4, 2))
        norm.train()(torch.randn(4, 2))
    assert not of_kind(report, InPlaceWrite)
    with graphscope.watch() as report:
        loss = normalized(torch.randn(4, 2, requires_grad=True)).pow(2).sum()
        norm.eval()
        saving = normalized(torch.randn(4, 2, requires_grad=True)).pow(2).sum()
        norm.train()
        normalized(torch.randn(4, 2))
        loss.backward()
        saving.backward()
    written = of_kind(report, InPlaceWrite)
    assert [report.trace.tensors[event.write.tensor].shape for event in written] == [(2,), (2,)]
    assert all(event.write.hidden and event.op == "batch_norm" for event in written)
    (finding,) = report.findings
    assert (finding.code, finding.facts["saved"]) == ("GS105", "running_mean")
    assert "saving.backward()" in finding.message


def test_zero_grad_names_its_owner_and_kind():
    net, optimizer = net_and_optimizer()
    with graphscope.watch() as report:
        net(torch.ones(1, 2)).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        net.zero_grad()
        net.weight.grad = None
    assert [(event.optimizer, event.to_none, len(event.tensors)) for event in of_kind(report, ZeroGrad)] == [
        (0, False, 2),
        (None, True, 2),
        (None, True, 1),
    ]


PATCHED = [
    (torch.autograd, "_engine_run_backward"),
    (Optimizer, "zero_grad"),
    (nn.Module, "zero_grad"),
    (Optimizer, "__init__"),
    (torch, "from_numpy"),
    (torch.autograd.Function, "apply"),
]


def installed() -> list[object]:
    hooks = torch.optim.optimizer if hasattr(torch.optim, "optimizer") else recorder.optim
    return [
        *(inspect.getattr_static(owner, name) for owner, name in PATCHED),
        len(hooks._global_optimizer_pre_hooks),
        len(hooks._global_optimizer_post_hooks),
        torch._C._len_torch_function_stack(),
    ]


def raising():
    raise ValueError("in the block")


def failing_step():
    net, optimizer = net_and_optimizer()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.param_groups[0]["lr"] = "fast"
    optimizer.step()


def failing_backward():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


@pytest.mark.parametrize("block", [list, raising, failing_step, failing_backward], ids=lambda block: block.__name__)
def test_nothing_stays_installed(block):
    before = installed()
    with contextlib.suppress(Exception), graphscope.watch():
        assert installed() != before
        block()
    assert installed() == before


def test_mode_is_back_after_a_step_that_fails():
    with graphscope.watch() as report:
        with contextlib.suppress(Exception):
            failing_step()
        failing = torch.ones(2, requires_grad=True)
        failing.exp().sum().backward()
    assert len(list(report.trace.backwards)) == 2


def test_exception_in_the_block_is_kept():
    with pytest.raises(ValueError, match="in the block"), graphscope.watch() as report:
        raising()
    assert report.trace.outcome.exception == "ValueError: in the block"


def test_tensors_die_as_unwatched():
    def step():
        x = torch.ones(1000, requires_grad=True)
        hidden = x.exp()
        loss = hidden.sum()
        loss.backward()
        array = hidden.detach().numpy()
        return [weakref.ref(each) for each in (x, hidden, loss, array)]

    gc.disable()  # by reference counts alone, as unwatched
    try:
        with graphscope.watch():
            assert [ref() for ref in step()] == [None] * 4
    finally:
        gc.enable()


def test_backward_releases_buffers_as_unwatched():
    x = torch.ones(1000, requires_grad=True)
    with graphscope.watch():
        hidden = x.exp()
        storage = torch.multiprocessing.reductions.StorageWeakRef(hidden.untyped_storage())
        loss = hidden.sum()
        del hidden
        loss.backward()
        assert storage.expired()


def test_local_variables_of_a_function_die_with_del():
    net = nn.Linear(2, 2)

    def step():
        big = torch.ones(100, 2)
        ref = weakref.ref(big)
        loss = net(big).sum()
        loss.backward()
        del big, loss
        return ref()

    with graphscope.watch():
        assert step() is None


@pytest.mark.parametrize(
    ("owner", "part"),
    [
        (CallWatch, "_record"),
        (BackwardWatch, "_backward"),
        (Recording, "refused"),
        (Recording, "note_nodes"),
        (WriteWatch, "wrote"),
        (OptimizerWatch, "look"),
        (OptimizerWatch, "known"),
    ],
)
def test_failure_inside_the_recorder_does_not_reach_the_program(owner, part, monkeypatch):
    def broken(*_, **__):
        raise AssertionError("ours")

    monkeypatch.setattr(owner, part, broken)
    before = installed()
    with graphscope.watch() as report:
        net, optimizer = net_and_optimizer()
        x = torch.ones(1, 2)
        loss = net(x).sum()
        optimizer.zero_grad()
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            loss.backward()
        with pytest.raises(RuntimeError):
            x @ torch.ones(3)
        optimizer.step()
    assert installed() == before
    (unseen,) = report.trace.unseen
    assert unseen.startswith("what came after an internal error of graphscope: AssertionError: ours (at ")
    assert f"torch {torch.__version__}, Python" in unseen and "run it again with GRAPHSCOPE_DEBUG=1" in unseen


def test_calls_of_other_threads_are_left_alone_and_said():
    import threading

    def train():
        x = torch.ones(2, requires_grad=True)
        x.exp().sum().backward()
        grads.append(x.grad)

    grads = []
    with graphscope.watch() as report:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert len(grads) == 1
    assert report.trace.unseen == ("the calls of threads other than the main one",)


def test_report_is_not_there_before_the_block_ends():
    with (
        graphscope.watch() as report,
        pytest.raises(graphscope.GraphscopeError, match="filled when the block ends"),
    ):
        _ = report.findings


def test_an_item_assignment_from_a_view_of_what_is_written_is_recorded() -> None:
    x = torch.ones(3)
    with Recorder() as recorder:
        hidden = x.data
        scalar = hidden[1]  # it shares the counter, so that it looks written too
        hidden[0] = scalar
    assert recorder.failure is None


def test_optimizers_at_the_address_of_one_that_is_gone_are_others() -> None:
    net = nn.Linear(2, 1)
    with Recorder() as recorder:
        for _ in range(8):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            del optimizer
    trace = recorder.trace()
    assert [optimizer.id for optimizer in trace.optimizers] == list(range(8))
    assert [step.optimizer for step in trace.steps] == list(range(8))


def test_a_loop_that_freezes_is_one_event() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with graphscope.watch() as report:
        for parameter in net.parameters():
            parameter.requires_grad = False
        at = line() - 1
        net[0].requires_grad_(True)
    frozen, thawed = of_kind(report, RequiresGradSet)
    assert (frozen.location.line, frozen.value, len(frozen.tensors)) == (at, False, 4)
    assert (thawed.value, thawed.tensors) == (True, frozen.tensors[:2])


@pytest.mark.parametrize(("make", "moved"), [(torch.optim.Adam, 2), (torch.optim.SGD, 0)])
def test_step_says_which_frozen_parameters_it_moved(make, moved) -> None:
    net = nn.Linear(2, 1)
    optimizer = make(net.parameters(), lr=0.1)
    with graphscope.watch() as report:
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        net.requires_grad_(False)
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()
    first, second = of_kind(report, OptimizerStep)
    assert (len(first.moved), len(second.frozen), len(second.moved)) == (0, 2, moved)


class Aside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Linear(2, 2)
        self.layers = [nn.Linear(2, 2)]
        self.scale = torch.ones(1, requires_grad=True)
        self.shift = torch.ones(1)
        self.requires_grad = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0](self.seen(x)) * self.scale


def test_module_that_died_with_its_function_is_remembered_with_what_it_hid() -> None:
    def train() -> None:
        aside = Aside()
        optimizer = torch.optim.SGD(aside.parameters(), lr=0.1)
        aside(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    with graphscope.watch() as report:
        train()
    (module,) = report.trace.modules
    assert [path for path, _ in module.parameters] == ["seen.weight", "seen.bias"] and not module.gone
    assert [path for path, _ in module.hidden] == ["layers[0].weight", "layers[0].bias", "scale"]
    assert [(flag.attribute, flag.value) for flag in module.flags] == [("requires_grad", False)]


def test_module_that_died_before_the_next_step_is_gone() -> None:
    with graphscope.watch() as report:
        for width in (3, 4):
            net = nn.Linear(2, width)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert [(len(module.parameters), module.gone) for module in report.trace.modules] == [(2, True), (2, False)]


class Scribble(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad.mul_(2)
        return grad + 1


def test_write_in_the_backward_of_a_custom_function_is_recorded() -> None:
    x = torch.ones(3, requires_grad=True)
    with graphscope.watch() as report:
        Scribble.apply(x * 2).exp().sum().backward()
    (write,) = of_kind(report, BackwardWrite)
    assert (write.op, write.function, write.is_grad) == ("mul_", "ScribbleBackward", True)
    assert torch.overrides._get_current_function_mode_stack() == []


class Detached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x.detach() ** 2


@pytest.mark.parametrize("create_graph", [True, False])
def test_history_dropped_in_a_backward_is_an_event_if_that_is_differentiated(create_graph: bool) -> None:
    w = torch.ones(3, requires_grad=True)
    with graphscope.watch() as report:
        torch.autograd.grad(Detached.apply(w.exp()).sum(), w, create_graph=create_graph)
    cuts = of_kind(report, BackwardCut)
    graph = report.trace.graph
    told = [("detach", "DetachedBackward", "ExpBackward0")] if create_graph else []
    assert [(cut.op, graph.ops[cut.node], graph.ops[cut.source]) for cut in cuts] == told
    assert all(cut.time == next(report.trace.backwards).time for cut in cuts)


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2))


def test_birth_of_a_parameter_tells_what_made_its_module_outside_of_constructors() -> None:
    with graphscope.watch() as report:
        (Gain().gain * 2).sum().backward()
        made = line() - 1
    (gain,) = (each for each in report.trace.tensors if each.birth is not None)
    assert gain.birth.locations[0].function.endswith("__init__") and gain.made_at == gain.birth.locations[0]
    assert gain.birth.location.line == made
