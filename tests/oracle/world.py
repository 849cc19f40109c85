"""What the random programs may use: the namespace in which their statements are executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint


class Reads(torch.autograd.Function):
    """Reads what it saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x  # type: ignore[no-any-return]


class Ignores(Reads):
    """Saves, and never looks."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class Doubtful(Reads):
    """Reads what it saved, where the recorder does not look."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return Reads.backward(ctx, grad)


class ReadsNothing(Reads):
    """Reads, though it saved nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * (2 + len(ctx.saved_tensors))


class Pair(torch.autograd.Function):
    """Two inputs, two outputs; saves an input and an output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x * y, x + y
        ctx.save_for_backward(x, first)
        return first, second

    @staticmethod
    def backward(ctx: Any, grad: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        x, first = ctx.saved_tensors
        return grad * first + other, grad * x + other


def backward(roots: list[Tensor], **options: Any) -> None:
    torch.autograd.backward(roots, [torch.ones_like(root) for root in roots], **options)


def grad(roots: list[Tensor], inputs: list[Tensor], **options: Any) -> Tensor:
    ones = [torch.ones_like(root) for root in roots]
    found = torch.autograd.grad(roots, inputs, ones, allow_unused=True, **options)
    return next((each for each in found if each is not None), torch.ones(2, 2))


def step(optimizer: torch.optim.Optimizer) -> None:
    """Step on all parameters, with or without gradients: variants of a program then write to the same ones."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def hop(tensor: Tensor) -> Tensor:
    return torch.from_numpy(tensor.detach().numpy().copy())


def numpy_add(tensor: Tensor) -> None:
    tensor.detach().numpy()[...] += 1


def whole(tensor: Tensor) -> Tensor:
    """Refuse a view: what an in-place operator saves is hidden in CopySlices then, out of Python's sight."""
    if tensor._is_view():
        raise TypeError("a view")
    return tensor


def on_cpu(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    with save_on_cpu():
        return function(*inputs)


def again(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return checkpoint(function, *inputs, use_reentrant=False)  # type: ignore[no-any-return]


def again_reentrant(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return checkpoint(function, *inputs, use_reentrant=True)  # type: ignore[no-any-return]


class Twice(nn.Sequential):
    """Gives its input twice to the module in it."""

    def forward(self, x: Tensor) -> Tensor:
        return self[0](x, x)  # type: ignore[no-any-return]


class Thrice(nn.Sequential):
    """Gives its input three times to the attention in it."""

    def forward(self, x: Tensor) -> Tensor:
        return self[0](x, x, x)[0].clone()  # type: ignore[no-any-return]


class First(nn.Module):
    """The first of several results."""

    def forward(self, results: tuple[Tensor, Tensor]) -> Tensor:
        return results[0]


NETS: dict[str, Callable[[], list[nn.Module]]] = {
    "linear": lambda: [nn.Linear(2, 2)],
    "deep": lambda: [nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)],
    "relu": lambda: [nn.Linear(2, 2), nn.ReLU(inplace=True)],
    "norm": lambda: [nn.LayerNorm(2), nn.Linear(2, 2, bias=False)],
    "dropout": lambda: [nn.Linear(2, 2), nn.Dropout(0.5), nn.GELU()],
    "batch": lambda: [nn.BatchNorm1d(2), nn.Linear(2, 2)],
    "bilinear": lambda: [Twice(nn.Bilinear(2, 2, 2)), nn.Sigmoid()],
    "attention": lambda: [Thrice(nn.MultiheadAttention(2, 1)), nn.Linear(2, 2)],
    "recurrent": lambda: [nn.GRU(2, 2), First()],
    "softmax": lambda: [nn.Linear(2, 3), nn.Softmax(-1), nn.Linear(3, 2)],
}


class Net(nn.Sequential):
    """Takes any tensor of the programs; a linear layer would give a view for one of one dimension, see ``whole``."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.expand(2, 2))  # type: ignore[no-any-return,no-untyped-call]


def net(kind: str) -> nn.Module:
    return Net(*NETS[kind]())


def optimizer(kind: str, *nets: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for each in nets for parameter in each.parameters()]
    make: dict[str, Callable[[Iterable[Any]], torch.optim.Optimizer]] = {
        "sgd": lambda held: torch.optim.SGD(held, 0.1),
        "momentum": lambda held: torch.optim.SGD(held, 0.1, momentum=0.9, foreach=False),
        "adam": lambda held: torch.optim.Adam(held),
    }
    return make[kind](parameters)


def leaf() -> Tensor:
    return torch.rand(2, 2, requires_grad=True)


def data() -> Tensor:
    return torch.rand(2, 2)


def namespace() -> dict[str, Any]:
    """A fresh one, with the same random numbers every time."""
    torch.manual_seed(0)
    names = (backward, grad, step, hop, numpy_add, whole, on_cpu, again, again_reentrant, net, optimizer, leaf, data)
    classes = (Reads, Ignores, ReadsNothing, Pair, Doubtful)
    return {"torch": torch, "no_grad": torch.no_grad} | {each.__name__: each for each in (*names, *classes)}
