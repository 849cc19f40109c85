"""Tensors that are not plain: wrappers, parameters and modules of other kinds; programs that are traced."""

import copy
import pickle
import warnings

import torch
import torch.utils._pytree as pytree
from _said import end, say
from torch.autograd.graph import GradientEdge, allow_mutation_on_saved_tensors, get_gradient_edge, increment_version
from torch.fx.experimental.proxy_tensor import make_fx

torch.manual_seed(0)
calls = []


class Wrapped(torch.Tensor):
    """Holds a plain tensor, has no memory of its own."""

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            dtype=inner.dtype,
            device=inner.device,
            requires_grad=requires_grad,
        )

    def __init__(self, inner, requires_grad=False):
        self.inner = inner

    def __repr__(self):
        return f"Wrapped({self.inner})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        calls.append(str(function))

        def bare(value):
            return value.inner if isinstance(value, cls) else value

        result = function(*pytree.tree_map(bare, args), **pytree.tree_map(bare, kwargs or {}))
        return pytree.tree_map(lambda value: cls(value) if isinstance(value, torch.Tensor) else value, result)


def told(title):
    print(title, len(calls), *calls)
    calls.clear()


x = Wrapped(torch.randn(3, 3), requires_grad=True)
y = Wrapped(torch.randn(3, 3))
loss = ((x @ y).relu() * y).sum()
loss.backward()
told("wrapped")
say(x.grad.inner)
optimizer = torch.optim.SGD([x], lr=0.1, momentum=0.9)
optimizer.step()
optimizer.zero_grad()
print(x, x[0], x.detach().clone(), x.shape, x.requires_grad)
told("stepped")
with torch.no_grad():
    x.mul_(2)
    x[0] = 0
told("written")


class Quiet(torch.Tensor):
    """Counts what it is asked, keeps its kind."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        calls.append(getattr(function, "__name__", "?"))
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
        return result.as_subclass(cls) if type(result) is torch.Tensor else result

    def backward(self, *args, **kwargs):
        print("own backward")
        return super().backward(*args, **kwargs)


q = torch.randn(3).as_subclass(Quiet).requires_grad_()
(q * 2).exp().sum().backward()
print(type(q.grad), q.tolist(), float(q[0]), bool(q[0] > 0), len(q), [float(each) for each in q])
q.grad.zero_()
told("function")


class Unset:
    """No tensor, but takes part in torch functions."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return f"{function.__name__} of {len(args)}"


print(
    torch.add(Unset(), 1), torch.ones(2) * Unset() if hasattr(Unset, "__rmul__") else torch.mul(torch.ones(2), Unset())
)
print(torch.stack([Unset(), torch.ones(2)]))


class Scaled(torch.nn.Parameter):
    pass


class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = Scaled(torch.randn(3))
        self.lazy = torch.nn.LazyLinear(2)

    def forward(self, x):
        return self.lazy(x * self.weight)

    def __getattr__(self, name):
        calls.append(name)
        return super().__getattr__(name)


slow = Slow()
slow(torch.ones(2, 3)).sum().backward()
print(type(slow.weight), type(copy.deepcopy(slow).weight), type(pickle.loads(pickle.dumps(slow)).lazy))
told("getattr")
torch.nn.utils.parametrizations.weight_norm(slow.lazy)
slow(torch.ones(2, 3)).sum().backward()
say(slow)
calls.clear()

net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
traced = torch.fx.symbolic_trace(net)
traced(torch.ones(2, 3)).sum().backward()
print(traced.code, traced.graph)
print(torch.jit.trace(net, torch.ones(2, 3)).code)


@torch.jit.script
def scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x.sin() + 1
    return x.sum()


w = torch.ones(3, requires_grad=True)
scripted(w, 3).backward()
print(w.grad)
print(make_fx(lambda x: (x.sin() * 2).sum())(torch.ones(3)).code)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    exported = torch.export.export(net, (torch.ones(2, 3),), strict=False)
    print(exported.graph)
    strict = torch.export.export(net, (torch.ones(2, 3),), strict=True)
    print(strict.graph)
say(exported.module()(torch.ones(2, 3)))

edge = get_gradient_edge(w * 2)
print(isinstance(edge, GradientEdge), torch.autograd.grad(edge, w, grad_outputs=torch.ones(3)))
with allow_mutation_on_saved_tensors():
    z = w * 1
    square = z * z
    z.mul_(0)
    square.sum().backward()
print(w.grad)
increment_version(z)
print(z._version, square._version)
with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
    (w * w).sum().backward()
with torch.autograd.set_multithreading_enabled(False):
    (w * w).sum().backward()
print(torch.autograd.gradcheck(lambda t: t.sin() * t, torch.ones(2, dtype=torch.float64, requires_grad=True)))
say(net, w)
del x, y, loss, optimizer, q
end()
