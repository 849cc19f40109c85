"""LBFGS, foreach, fused, AMP with a scaler, schedulers, anomaly mode, and a warning at every line."""

import warnings

import torch
from _said import end, living, say

torch.manual_seed(0)


def train(make, closure=False, amp=False):
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    optimizer = make(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=amp, init_scale=16.0)
    x, y = torch.randn(16, 3), torch.randn(16, 1)
    counts = []

    def loss():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            value = torch.nn.functional.mse_loss(net(x), y)
        scaler.scale(value).backward()
        return value

    for _ in range(5):
        if closure:
            value = optimizer.step(loss)
        else:
            value = loss()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        counts.append(living())
    say(net, optimizer, value, scheduler.get_last_lr(), scaler.get_scale())
    print(counts)


train(lambda p: torch.optim.LBFGS(p, line_search_fn="strong_wolfe", max_iter=5), closure=True)
train(lambda p: torch.optim.Adam(p, foreach=True))
train(lambda p: torch.optim.AdamW(p, fused=True))
train(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), amp=True)
train(lambda p: torch.optim.RMSprop(p), closure=True)

cube = torch.ones(2, 2, 2)
print(cube.T.shape)
for _ in range(2):
    torch.nn.functional.softmax(cube, None)
    torch.nn.functional.softmax(torch.ones(3))
torch.tensor(torch.ones(2))
torch.tensor(torch.ones(2))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.nn.functional.softmax(torch.ones(3))
    torch.tensor(torch.ones(2))
print([(each.filename[-13:], each.lineno, each.category.__name__) for each in caught])
warnings.warn("of our own", stacklevel=1)
end()

torch.autograd.set_detect_anomaly(True)
x = torch.zeros(2, requires_grad=True)
y = torch.sqrt(x - x) * 0
y.sum().backward()
