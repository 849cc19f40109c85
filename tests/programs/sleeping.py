"""Runs long enough for the recording to fall asleep, in which modes, devices, threads and compiled code come and go."""

import threading
import warnings

import torch
from _said import end, living, say
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

seen = []


class Log(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(function.__name__)
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))


class Shaky(torch.optim.SGD):
    broken = False

    @torch.no_grad()
    def step(self, closure=None):
        if self.broken:
            raise RuntimeError("broken step")
        return super().step(closure)


def train(steps, net, optimizer, before=lambda step: None):
    for step in range(steps):
        before(step)
        optimizer.zero_grad()
        net(torch.ones(2, 3)).square().mean().backward()
        optimizer.step()


def made(kind=torch.optim.SGD, **options):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(3, 1))
    return net, kind(net.parameters(), lr=0.01, **options)


def told(title):
    print(title, len(seen), hash(tuple(seen)), *dict.fromkeys(seen))
    seen.clear()


def opened(*modes):
    """Enter and leave modes between steps, not in a block."""
    modes, entered = list(modes), []

    def before(step):
        if step in (27, 33, 50):
            entered.append(modes.pop(0))
            entered[-1].__enter__()
        if step in (30, 45, 57):
            entered.pop().__exit__(None, None, None)

    return before


net, optimizer = made()
train(40, net, optimizer)
with Log():
    train(3, net, optimizer)
told("a mode while asleep")
train(60, net, optimizer, opened(Log(), Dispatched(), torch.device("cpu")))
told("modes between steps")
with Log():
    other = made(torch.optim.Adam)
    train(30, *other)
    train(30, net, optimizer)
told("woken inside a mode")
train(10, net, optimizer)
told("nothing is left on")
with torch.device("cpu"):
    train(30, *made(torch.optim.RMSprop))
with Log():
    train(30, *made(torch.optim.Adagrad))
told("a mode in the place of a device")
train(3, net, optimizer)
told("nothing is left on")
torch.set_default_device("meta")
train(30, *made(torch.optim.SGD, momentum=0.5))
torch.set_default_device(None)
with Dispatched(), Log():
    train(50, *made(torch.optim.Adamax))
told("after a default device")

net, optimizer = made(Shaky)
for step in range(60):
    optimizer.broken = step in (3, 25, 29, 40)
    with warnings.catch_warnings():
        try:
            train(1, net, optimizer)
        except RuntimeError as error:
            with Log():
                print(error)
                net(torch.ones(1, 3)).sum().backward()
            told("after a step that failed")
told("nothing is left on")


def work(number, results):
    weight = torch.full((3,), number / 2, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.1)
    with Log() if number else torch.no_grad(), torch.enable_grad():
        for _ in range(40):
            optimizer.zero_grad()
            weight.exp().sum().backward()
            optimizer.step()
    results[number] = weight


results = {}
threads = [threading.Thread(target=work, args=(number, results)) for number in range(2)]
for each in threads:
    each.start()
train(40, net, optimizer)
for each in threads:
    each.join()
told("threads")


@torch.compile(backend="aot_eager")
def compiled(x):
    return net(x).square().mean()


def compiled_in_a_thread():
    results["compiled"] = torch.compile(lambda x: x.sin() * 2, backend="eager")(torch.ones(2))


for step in range(50):
    optimizer.zero_grad()
    (compiled if step % 10 > 7 or step < 3 else lambda x: net(x).square().mean())(torch.ones(2, 3)).backward()
    optimizer.step()
    if step in (2, 28, 40):
        print(step, *living())
thread = threading.Thread(target=compiled_in_a_thread)
thread.start()
thread.join()
with Log():
    print(compiled(torch.ones(2, 3)))
told("compiled in a mode")
say(net, optimizer, [results[key] for key in (0, 1, "compiled")], other)
end()
