"""torch.func, inference mode, forward mode, complex, sparse, nested, meta and quantized tensors."""

import warnings

import torch
import torch.autograd.forward_ad as forward_ad
from _said import end, say
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
weights = dict(net.named_parameters())
x = torch.randn(5, 3)


def loss(weights, sample):
    return functional_call(net, weights, (sample,)).square().sum()


say(vmap(grad(loss), in_dims=(None, 0))(weights, x))
say(jacrev(torch.sin)(x[0]), hessian(lambda y: (y**3).sum())(x[0]), jvp(torch.exp, (x,), (x,)), vjp(torch.cos, x)[0])
say(torch.autograd.functional.jacobian(torch.exp, x[0]), vmap(lambda a: a.mul_(2).add(1))(x.clone()))
with forward_ad.dual_level():
    say(forward_ad.unpack_dual(torch.sin(forward_ad.make_dual(x, x)))[1])
with torch.inference_mode():
    inferred = net(x)
    inferred.add_(1)
    say(inferred, inferred.is_inference())
try:
    (inferred * weights["0.weight"].sum()).sum().backward()
except RuntimeError as error:
    print(type(error).__name__, error)

signal = torch.randn(6, dtype=torch.complex64, requires_grad=True)
torch.fft.fft(signal).abs().sum().backward()
say(torch.view_as_real(signal.grad))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    table = torch.nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 1, 4])).sum().backward()
    torch.optim.SparseAdam(table.parameters()).step()
    say(table.weight, table.weight.grad.to_dense())
    ragged = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], requires_grad=True)
    torch.nested.to_padded_tensor(ragged.sin(), 0.0).sum().backward()
    say([each.detach() for each in ragged.grad.unbind()])
    print(torch.nn.Linear(3, 3, device="meta")(torch.ones(2, 3, device="meta")).shape)
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    say(quantized.dequantize(), quantized.int_repr())
    scripted = torch.jit.script(torch.nn.Linear(3, 2))
    scripted(x).sum().backward()
    print(type(scripted).__name__, tuple(scripted.weight.grad.shape))
print(*sorted({each.category.__name__ for each in caught}))
end()
