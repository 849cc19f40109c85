"""What a program says of its state, to the bit."""

import gc
import hashlib
import random
import types

import numpy
import torch


def reset():
    random.seed(1)
    numpy.random.seed(2)
    torch.manual_seed(3)


reset()


def digest(value):
    """A hash of a tensor, an array, or a nest of them."""
    if isinstance(value, torch.Tensor):
        with torch.no_grad(), torch._C.DisableTorchFunction():  # unseen by modes, the program's and ours
            plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            return hashlib.sha256(plain.numpy().tobytes()).hexdigest()[:12]
    if isinstance(value, dict):
        return {str(key): digest(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [digest(each) for each in value]
    if isinstance(value, torch.nn.Module):
        return [digest(value.state_dict()), [digest(each.grad) for each in value.parameters()]]
    if isinstance(value, torch.optim.Optimizer):
        return digest(value.state_dict()["state"])
    return repr(value)


def living():
    """How many tensors are alive, and the bytes of their storages."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    plain = [each.untyped_storage() for each in tensors if each.layout is torch.strided and not each.is_nested]
    return len(tensors), sum({storage._cdata: storage.nbytes() for storage in plain}.values())


def held():
    """How many tensors Python objects hold, and the bytes of their storages.

    A look at what a node saved makes a Python object that lives as long as the node: it is not counted.
    """
    gc.collect()
    objects = (each for each in gc.get_objects() if not isinstance(each, types.FrameType))
    found = {id(each): each for each in gc.get_referents(*objects) if issubclass(type(each), torch.Tensor)}
    plain = [each.untyped_storage() for each in found.values() if each.layout is torch.strided and not each.is_nested]
    return len(found), sum({storage._cdata: storage.nbytes() for storage in plain}.values())


def randomness():
    """The states of the random generators."""
    states = torch.get_rng_state(), numpy.random.get_state()[1].tolist(), random.getstate()
    return [digest(states[0]), *(hashlib.sha256(repr(each).encode()).hexdigest()[:12] for each in states[1:])]


def say(*values):
    print(*(digest(value) for value in values))


def end():
    print("living", *living(), "random", *randomness())
