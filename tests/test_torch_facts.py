"""The private parts of torch that the tracer leans on: one test for each, to name what an upgrade breaks."""

from __future__ import annotations

import gc
import resource
import warnings

import pytest
import torch
from torch.autograd.graph import save_on_cpu
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from graphscope.tracer import _torch


@pytest.fixture
def x():
    return torch.ones(2, 3, requires_grad=True)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0]


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


def test_sequence_number_tells_which_nodes_a_call_made(x):
    first = _torch.next_sequence()
    y = x.exp().sin()
    assert _torch.next_sequence() == first + 2
    assert (y.grad_fn._sequence_nr(), y.grad_fn.next_functions[0][0]._sequence_nr()) == (first + 1, first)


def test_accumulate_grad_holds_its_variable(x):
    node = x.exp().grad_fn.next_functions[0][0]
    assert type(node).__name__ == "AccumulateGrad" and node.variable is x


def test_wrapper_of_a_node_stays_the_same_object(x):
    y = x.exp()
    assert y.grad_fn is y.grad_fn and y.sin().grad_fn.next_functions[0][0] is y.grad_fn


def test_input_metadata_describes_the_outputs_of_the_operator(x):
    (meta,) = x.sum(0).grad_fn._input_metadata
    assert (tuple(meta.shape), meta.dtype, meta.device.type) == ((3,), torch.float32, "cpu")


def test_raw_saved_names_of_a_node_and_of_a_custom_function(x):
    assert _torch.raw_saved_names(type((x * x).grad_fn)) == ("_raw_saved_other", "_raw_saved_self")
    assert _torch.raw_saved_names(type(x.sum().grad_fn)) == ()
    assert _torch.raw_saved_names(type(Double.apply(x).grad_fn)) == ("_raw_saved_tensors",)


def test_raw_saved_tensor_gives_data_without_hooks(x):
    y = x.exp()
    raw = y.grad_fn._raw_saved_result
    assert raw.data.data_ptr() == y.data_ptr() and raw.unpack_hook is None
    with save_on_cpu():
        assert x.exp().grad_fn._raw_saved_result.unpack_hook is not None


def test_python_functions_are_known_by_their_type(x):
    assert _torch.is_python_function(type(Double.apply(x).grad_fn))
    assert not _torch.is_python_function(type(x.exp().grad_fn))
    assert type(Double.apply(x).grad_fn)._forward_cls is Double


def test_version_counts_writes_and_is_0_for_inference_tensors():
    plain = torch.ones(2)
    plain[0].add_(1)
    with torch.inference_mode():
        inferred = torch.ones(2)
    assert (_torch.version(plain), _torch.version(inferred)) == (1, 0)


@pytest.mark.parametrize("writes", [0, 1, 3])
def test_expected_version_is_the_one_when_it_was_saved(writes, x):
    y = torch.ones(2, 3)
    y.add_(1)
    node = (x * y).grad_fn
    for _ in range(writes):
        y.add_(1)
    assert _torch.expected_version(node, "_raw_saved_other", y) == 1


def test_expected_version_of_a_custom_function(x):
    y = x.clone()
    node = Double.apply(y).grad_fn
    with torch.no_grad():
        y.add_(1)
    assert _torch.expected_version(node, "_raw_saved_tensors", y) == 0


class SavesBoth(Double):
    @staticmethod
    def forward(ctx, x):
        result = x * 2
        ctx.save_for_backward(x, result)
        return result


@pytest.mark.parametrize(("before", "after"), [((1, 0), (0, 1)), ((1, 0), (1, 1)), ((0, 0), (2, 1)), ((2, 0), (0, 0))])
def test_expected_version_of_one_of_several_is_not_that_of_another(before, after, x):
    y = x.clone()

    def write(*times):
        with torch.no_grad():
            for tensor, count in zip((y, result), times, strict=False):
                for _ in range(count):
                    tensor.add_(1)

    result = None
    write(before[0])
    result = SavesBoth.apply(y)
    node = result.grad_fn
    write(*after)
    found = [_torch.expected_version(node, "_raw_saved_tensors", s.data, s) for s in node._raw_saved_tensors]
    assert found == [before[0], 0]
    assert (y._version, result._version) == (before[0] + after[0], after[1])


def test_freed_is_told_from_never_needed(x):
    product = x * torch.ones(2, 3)  # of the two factors, one is not needed
    assert product.grad_fn._raw_saved_self.data is None
    assert not _torch.was_freed(product.grad_fn, "_raw_saved_self")
    product.sum().backward()
    assert _torch.was_freed(product.grad_fn, "_raw_saved_other")


def test_a_refused_root_frees_nothing_and_an_unused_input_all(x):
    hidden = x.exp()
    loss = hidden.sum()
    with torch.no_grad():
        hidden.data = loss.clone()
    with pytest.raises(RuntimeError, match=r"^invalid gradient at index 1"):
        torch.autograd.backward([loss, hidden])
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.autograd.grad(loss, [x, torch.ones(2, requires_grad=True)])
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(loss, [x])


def test_storage_start_is_shared_by_views_and_0_without_memory():
    base = torch.arange(6.0)
    assert _torch.storage_start(base) == _torch.storage_start(base[2:]) == base.data_ptr()
    assert _torch.storage_start(torch.ones(2, device="meta")) == 0
    assert _torch.storage_start(torch.eye(2).to_sparse()) == 0


def test_extent_is_shape_bytes_and_offset_in_bytes():
    assert _torch.extent(torch.ones(4, 2)[1:]) == ((3, 2), 24, 8)


def test_storage_watch_tells_its_death_and_does_not_delay_it():
    base = torch.ones(3)
    view, gone = base[1:], _torch.storage_watch(base)
    del base
    assert not gone()
    del view
    gc.collect()
    assert gone()


def test_first_numbers_call_no_operator():
    calls = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            calls.append(function)
            return function(*args, **(kwargs or {}))

    tensor = torch.arange(4.0) / 8
    with Seen(), _torch.without_modes():
        assert _torch.first_numbers(tensor[1:], 2) == [0.125, 0.25]
        assert _torch.first_numbers(tensor[::2], 2) == []
    assert _torch.first_numbers(torch.ones(2, device="meta"), 2) == _torch.first_numbers(torch.ones(2).int(), 2) == []
    assert not calls
    torch.func.vmap(lambda row: calls.append(_torch.first_numbers(row, 2)) or row)(torch.ones(2, 2))
    assert calls == [[]]


def test_without_modes_hides_from_modes_and_subclasses(x):
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise AssertionError(function)

    loud = torch.ones(2).as_subclass(Loud)
    with Counting() as mode, _torch.without_modes():
        x.exp()
        assert loud.requires_grad is False
    assert mode.calls == 0


def test_mode_is_pushed_and_popped_only_if_innermost(x):
    outer, inner = Counting(), Counting()
    _torch.push_mode(outer)
    _torch.push_mode(inner)
    assert not _torch.pop_mode_if_innermost(outer)
    assert _torch.pop_mode_if_innermost(inner) and _torch.pop_mode_if_innermost(outer)
    assert not _torch.pop_mode_if_innermost(outer)
    x.exp()
    assert outer.calls == inner.calls == 0


def test_stack_grows_for_deep_graphs_only():
    before = resource.getrlimit(resource.RLIMIT_STACK)
    assert _torch.survive_deep_graph(100)
    assert resource.getrlimit(resource.RLIMIT_STACK) == before


def test_engine_has_one_entry_in_python(x, monkeypatch):
    calls = []
    original = torch.autograd._engine_run_backward
    monkeypatch.setattr(
        torch.autograd, "_engine_run_backward", lambda *args, **options: calls.append(1) or original(*args, **options)
    )
    x.exp().sum().backward()
    torch.autograd.grad(x.exp().sum(), x)
    torch.autograd.backward(x.exp().sum())
    assert len(calls) == 3


def test_called_node_applies_its_formula_and_runs_no_hook(x):
    y, seen = x.exp(), []
    for register in (y.register_hook, y.grad_fn.register_prehook, y.grad_fn.register_hook):
        register(lambda *given: seen.append(given))
    with torch.no_grad():
        assert torch.equal(y.grad_fn(torch.ones(2, 3)), y.detach()) and not seen
    y.sum().backward()
    assert len(seen) == 3 and torch.equal(x.grad, y.detach())


def test_plain_formula_is_one_that_runs_no_code_of_the_program(x):
    assert _torch.is_plain_formula(x.exp().grad_fn) and _torch.is_plain_formula((x * 2).grad_fn)
    assert not _torch.is_plain_formula(Double.apply(x).grad_fn)
    with save_on_cpu():
        assert not _torch.is_plain_formula(x.exp().grad_fn)


def test_called_node_refuses_when_its_buffers_are_freed(x):
    freed = x.exp()
    freed.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        freed.grad_fn(torch.ones(2, 3))


def test_engine_at_work_is_noticed(x):
    seen = []
    x.register_hook(lambda grad: seen.append(_torch.is_in_backward()))
    x.sum().backward()
    assert seen == [True] and not _torch.is_in_backward()


def test_autocast_is_off_where_we_say_so(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with _torch.without_autocast():
            assert (x @ x.T).dtype == torch.float32
        assert (x @ x.T).dtype == torch.bfloat16


def test_scheduler_tells_that_it_is_made_and_that_it_skips_its_first_rates(monkeypatch) -> None:
    told = []
    kind = torch.optim.lr_scheduler.LRScheduler
    original = kind._update_lr

    def update(self, *args):
        told.append((_torch.is_being_made(self), _torch.skips_first_rates(self), args))
        original(self, *args)

    monkeypatch.setattr(kind, "_update_lr", update)
    for early in (True, False):
        optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        if not early:
            optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule.step()
            schedule.step(3)
    assert told == [
        *[(True, False, (None,)), (False, True, (None,)), (False, False, (3,))],
        *[(True, False, (None,)), (False, False, (None,)), (False, False, (3,))],
    ]
