"""Forked and spawned loaders, a worker that fails, a spawned process, a fork that reaches the script's end."""

import os
import pickle
import sys

import torch
import torch.multiprocessing
from _said import end, say
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, broken=None):
        self.broken = broken

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == self.broken:
            torch.ones(2) @ torch.ones(3)
        return torch.full((3,), float(index)) + torch.rand(3)


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right


def square(queue, value):
    x = torch.tensor(float(value), requires_grad=True)
    (x * x).backward()
    queue.put(x.grad.item())


if __name__ == "__main__":
    torch.manual_seed(1)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in DataLoader(Numbers(), batch_size=3, shuffle=True, num_workers=2):
        loss = net(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(batch, loss)
    for batch in DataLoader(Numbers(), batch_size=6, num_workers=1, multiprocessing_context="spawn"):
        net(batch).mean().backward()
        optimizer.step()
        say(batch)
    try:
        list(DataLoader(Numbers(broken=5), batch_size=3, num_workers=2))
    except RuntimeError as error:
        print(error)

    pair = pickle.loads(pickle.dumps(Pair(net.weight.detach().numpy(), [1])))
    print(type(pair), type(pair).__module__, pair.left)

    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=square, args=(queue, 3))
    process.start()
    print(queue.get())
    process.join()
    say(net)
    end()
    sys.stdout.flush()
    child = os.fork()
    if child:
        print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    else:
        print("in the fork")
        sys.exit(5)
