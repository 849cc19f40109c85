"""What the functions that watching replaces look like: names, docs, signatures, pickles, identity, errors."""

import inspect
import pickle
import traceback

import torch
from torch.nn import utils
from torch.nn.utils import clip_grad
from torch.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_

PLACES = {
    "zero_grad": torch.optim.Optimizer.zero_grad,
    "init": torch.optim.Optimizer.__init__,
    "module": torch.nn.Module.zero_grad,
    "norm": utils.clip_grad_norm_,
    "value": utils.clip_grad_value_,
    "scale": torch.amp.GradScaler.scale,
    "unscale": torch.amp.GradScaler.unscale_,
    "step": torch.amp.GradScaler.step,
    "update": torch.amp.GradScaler.update,
    "from_numpy": torch.from_numpy,
    "compile": torch.compile,
    "apply": torch.autograd.Function.apply,
    "backward": torch.autograd.backward,
}
for name, function in PLACES.items():
    try:
        signature = str(inspect.signature(function))
    except ValueError as error:
        signature = str(error)
    try:
        pickled = pickle.loads(pickle.dumps(function)) is function
    except Exception as error:
        pickled = repr(error)
    print(
        name, function.__name__, function.__module__, len(function.__doc__ or ""), signature.split(" at ")[0], pickled
    )
print(
    utils.clip_grad_value_ is clip_grad.clip_grad_value_ is clip_grad_value_, utils.clip_grad_norm_ is clip_grad_norm_
)
print(
    torch.optim.SGD.zero_grad is torch.optim.Optimizer.zero_grad,
    torch.optim.SGD.zero_grad == torch.optim.Adam.zero_grad,
)

weight = torch.ones(2, requires_grad=True)
other = torch.ones(2, requires_grad=True)


def graded():
    for each in (weight, other):
        each.grad = None
    (weight * other).sum().backward()


graded()
print(clip_grad_norm_((each for each in (weight, other)), 0.1), weight.grad)
graded()
print(
    utils.clip_grad_norm_(weight, max_norm=0.1, norm_type=float("inf"), error_if_nonfinite=True, foreach=True),
    weight.grad,
)
clip_grad_value_(parameters=iter([weight, other]), clip_value=0.01)
utils.clip_grad_value_(map(lambda each: each, [weight, other]), 0.001)
print(weight.grad, other.grad, utils.get_total_norm([weight.grad, other.grad]))
utils.clip_grads_with_norm_([weight], 0.1, torch.tensor(2.0))
print(weight.grad)


class Mine(torch.optim.SGD):
    def zero_grad(self, set_to_none=True):
        print("mine", set_to_none)
        return super().zero_grad(set_to_none)

    def step(self, closure=None):
        print("step")
        return super().step(closure)


optimizer = Mine([weight, other], lr=0.1)
scaler = torch.amp.GradScaler(device="cpu", init_scale=4.0, growth_interval=1)
for number in range(3):
    optimizer.zero_grad(set_to_none=number == 1)
    loss = (weight * other).sum() * (float("inf") if number == 1 else 1)
    one, (two, three) = scaler.scale(outputs=[loss, (loss * 2, loss * 3)])
    one.backward()
    scaler.unscale_(optimizer=optimizer)
    print(scaler.step(optimizer=optimizer), scaler.get_scale())
    scaler.update()
    print(weight, weight.grad, scaler.get_scale(), scaler.state_dict())
for attempt in (
    lambda: scaler.unscale_(optimizer) or scaler.unscale_(optimizer),
    lambda: scaler.update(new_scale="x"),
    lambda: scaler.scale(),
    lambda: scaler.scale(3),
    lambda: clip_grad_norm_([weight], 1.0, error_if_nonfinite=1, nothing=2),
    lambda: utils.clip_grad_value_([weight], "x"),
    lambda: torch.from_numpy([1]),
    lambda: torch.from_numpy(),
    lambda: torch.optim.SGD([], lr=1),
    lambda: torch.optim.Optimizer([weight]),
    lambda: optimizer.zero_grad(1, 2),
    lambda: torch.nn.Linear(1, 1).zero_grad(wrong=1),
    lambda: torch.autograd.Function.apply(1),
    lambda: torch.autograd.backward(weight.sum(), wrong=1),
    lambda: torch.compile(backend="no such"),
    lambda: torch.autograd.grad(weight.sum(), other),
):
    try:
        attempt()
    except Exception:
        traceback.print_exc()
restored = torch.amp.GradScaler("cpu")
restored.load_state_dict(scaler.state_dict())
print(pickle.loads(pickle.dumps(optimizer.state_dict())), restored.get_scale())
