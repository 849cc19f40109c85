"""A module that is run with -m, and imports relatively."""

import sys

import torch

from .part import PLACE

print(PLACE, __name__, __package__, __spec__.name, sys.argv[1:], sys.argv[0] == __file__, sys.path[0])
weight = torch.ones(2, requires_grad=True)
(weight * weight).sum().backward()
print(weight.grad, sys.modules["__main__"].weight is weight)
torch.ones(2) @ torch.ones(3)
