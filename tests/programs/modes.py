"""Subclasses and modes of the program's own, which log what they see."""

import os

import torch
from _said import end, say
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

torch.manual_seed(0)
seen = []


class Metered(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        seen.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


class Log(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(torch.overrides.resolve_name(function) or function.__name__)
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))


def told(title):
    print(title, len(seen), *seen)
    seen.clear()


def train():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(torch.ones(2, 3)), torch.zeros(2, 1))
        loss.backward()
        optimizer.step()
    values = torch.FloatTensor([loss.item(), 0.25]) * 2
    return net, values.numpy().sum(), loss.detach().tolist()


weight = torch.randn(3, requires_grad=True)
metered = torch.ones(3).as_subclass(Metered)
(weight * metered).exp().sum().backward()
say(weight.grad)
told("subclass")
with Log():
    say(*train())
told("mode")
with Dispatched():
    say(*train())
told("dispatch")
with Log(), Dispatched(), Log():
    train()
told("nested")
with torch.device("meta"):
    print(torch.ones(2).device, torch.nn.Linear(2, 2).weight.device)
torch.set_default_device("cpu")
say(*train())
mode = Log()
mode.__enter__()
train()
mode.__exit__(None, None, None)
told("by hand")
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the profiler prints the time
with torch.autograd.profiler.profile() as profile:
    train()
print(sorted((each.key, each.count) for each in profile.key_averages()))
end()
