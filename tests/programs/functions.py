"""Custom Functions, hooks of every kind, and what their failures look like."""

import logging
import sys
import traceback

import torch
from _said import end, living, say
from torch.autograd.function import once_differentiable
from torch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks

logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(funcName)s %(lineno)d %(message)s")
torch.manual_seed(0)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad * 2


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise KeyError("broken backward")


x = torch.randn(4, requires_grad=True)
say(torch.autograd.grad(torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)[0].sum(), x))
for attempt in (
    lambda: torch.autograd.grad(Once.apply(x).sum(), x, create_graph=True)[0].sum().backward(),
    lambda: Broken.apply(x).sum().backward(),
    lambda: torch.nn.Linear(3, 3)(torch.ones(2)),
    lambda: x.add_(1),
    lambda: x.sum().backward(torch.ones(3)),
    lambda: torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([5, 1])),
    lambda: torch.optim.SGD([x * 2], lr=0.1),
    lambda: Cube.apply(x).numpy(),
):
    try:
        attempt()
    except Exception:
        traceback.print_exc()
        print(traceback.format_exc())
        logging.exception("caught")
try:
    Broken.apply(x).sum().backward()
except KeyError as error:
    print([frame.name for frame in traceback.extract_tb(error.__traceback__)])


def shown(grad):
    print("hook", "".join(traceback.format_stack(limit=2)))
    return grad * 2


net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
net[0].register_forward_hook(lambda module, inputs, output: output * 1.5)
net[0].register_full_backward_hook(lambda module, given, taken: print("module", *map(len, (given, taken))))
net[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
net[2].weight.register_post_accumulate_grad_hook(lambda parameter: print("accumulated", parameter.grad.shape))
register_multi_grad_hook(list(net.parameters()), lambda grads: print("all", len(grads)))
hidden = net(x)
hidden.register_hook(shown)
hidden.grad_fn.register_hook(lambda inputs, outputs: print("node", len(inputs), len(outputs)))
hidden.grad_fn.register_prehook(lambda outputs: print("before node", len(outputs)))
hidden.retain_grad()
hidden.backward()
say(net, hidden.grad, x.grad)

packed = []
with saved_tensors_hooks(lambda tensor: packed.append(tensor.shape) or tensor, lambda saved: packed.append(0) or saved):
    loss = (net[2](torch.relu(net[0](x))) ** 2).sum()
print(packed)
loss.backward()
print(packed, living())
x.register_hook(lambda grad: 1 / 0)
end()
try:
    raise ValueError("first")
except ValueError:
    try:
        (x * x).sum().backward()
    except ZeroDivisionError as second:
        raise RuntimeError("the last") from second
