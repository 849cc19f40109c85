"""Both checkpoints, save_on_cpu, deep copies, compiled functions: how often they run."""

import copy
import io

import torch
from _said import end, living, say
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)
calls = []


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.dropout = torch.nn.Dropout(0.3)
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x):
        calls.append(x.requires_grad)
        return x + self.norm(self.dropout(torch.relu(self.linear(x))))


net = torch.nn.ModuleList(Block() for _ in range(3))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(8, 6, requires_grad=True)
    if step % 2:
        with save_on_cpu():
            y = net[0](x)
    else:
        y = checkpoint(net[0], x, use_reentrant=True)
    y = checkpoint(net[1], y, use_reentrant=False)
    y = checkpoint_sequential([net[2]], 1, y, use_reentrant=False)
    before = living()
    optimizer.zero_grad()
    y.square().mean().backward()
    optimizer.step()
    print(step, len(calls), before, living())
    del y
try:
    checkpoint(
        lambda x: x.exp() if torch.is_grad_enabled() and len(calls) % 2 else x, x, use_reentrant=False
    ).sum().backward()
    calls.append(0)
except RuntimeError as error:
    print(type(error).__name__)

twin = copy.deepcopy(net)
file = io.BytesIO()
torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
twin.load_state_dict(torch.load(file)["net"])
say(net, twin, optimizer)


@torch.compile(backend="aot_eager")
def compiled(x):
    return (x.sin() * x).sum()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@torch.compile(backend="aot_eager")
def broken_in_two(x):
    y = Double.apply(x)
    print("eager", tuple(y.shape))
    return y.sum()


x = torch.ones(3, requires_grad=True)
compiled(x).backward()
broken_in_two(x).backward()
compiled(x * 2).backward()
say(x.grad)
end()
