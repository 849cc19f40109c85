"""Threads that train, one that fails, and one that outlives the script."""

import threading
import time

import torch
from _said import end, say

barrier = threading.Barrier(2)


def train(number, nets):
    net = nets[number] = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.1 * (number + 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(20):
        barrier.wait()
        optimizer.zero_grad()
        net(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()


def fail():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("broken in a thread")

    Broken.apply(torch.ones(2, requires_grad=True)).sum().backward()


def late():
    time.sleep(0.3)
    x = torch.ones(2, requires_grad=True)
    (x * x).sum().backward()
    print("late", x.grad.tolist(), flush=True)


nets = {}
running = [threading.Thread(target=train, args=(number, nets)) for number in range(2)]
for each in running:
    each.start()
weight = torch.ones(3, requires_grad=True)
for _ in range(50):
    (weight * weight).exp().sum().backward()
for each in running:
    each.join()
say(nets[0], nets[1], weight.grad)
failing = threading.Thread(target=fail, name="failing")
failing.start()
failing.join()
end()
threading.Thread(target=late).start()
