"""What a torch function does that a recorder must know: which calls to look at, and how."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any


class Kind(Enum):
    """How a call of a torch function is treated."""

    SKIP = auto()  # asks about a tensor; no value flows
    CALL = auto()  # values in, values out
    LEAVE = auto()  # a value leaves torch: numpy, a list, a number
    ENTER = auto()  # a value comes into torch
    DATA = auto()  # `.data`: the same memory under a new version counter
    SET_DATA = auto()  # `x.data = y`, `x.set_(y)`: other memory under the same tensor
    BATCH_NORM = auto()  # its running statistics, when it trains, are written uncounted
    READ_GRAD = auto()
    SET_GRAD = auto()
    SET_MODE = auto()  # gradients are switched on or off
    SET_REQUIRES_GRAD = auto()


_LEAVE = {
    "numpy",
    "__array__",
    "tolist",
    "item",
    "__float__",
    "__int__",
    "__bool__",
    "__index__",
    "__complex__",
    "__dlpack__",
}
_ENTER = {"tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "scalar_tensor", "from_dlpack"}
_SKIP = {
    "backward",
    "grad",
    "size",
    "dim",
    "ndimension",
    "numel",
    "nelement",
    "stride",
    "storage_offset",
    "data_ptr",
    "element_size",
    "is_contiguous",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "is_inference",
    "is_same_size",
    "get_device",
    "type",
    "untyped_storage",
    "storage",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "retain_grad",
    "share_memory_",
    "is_shared",
    "is_set_to",
    "_is_view",
    "__len__",
    "__repr__",
    "__str__",
    "__format__",
    "__hash__",
    "__dir__",
    "__reduce_ex__",
    "__setstate__",
    "__contains__",
    "__dlpack_device__",
    "__array_priority__",
    "is_grad_enabled",
    "set_grad_enabled",
    "result_type",
    "can_cast",
    "_has_compatible_shallow_copy_type",
    "_record_function_enter_new",
    "zeros_like",  # of a tensor these take the shape only
    "ones_like",
    "empty_like",
    "full_like",
    "rand_like",
    "randn_like",
    "randint_like",
    "new_zeros",
    "new_ones",
    "new_empty",
    "new_full",
    "new_tensor",
}
_DERIVED = {"T", "mT", "H", "mH", "real", "imag"}  # attributes that are new tensors with a history
_SET = {"set_", "swap_tensors"}
_SETTERS = {"data": Kind.SET_DATA, "grad": Kind.SET_GRAD, "requires_grad": Kind.SET_REQUIRES_GRAD}


def name_of(function: Any) -> str:
    """The function's name; for an attribute the attribute's (``data``), read or set."""
    name = getattr(function, "__name__", None) or type(function).__name__
    if name in ("__get__", "__set__", "__delete__"):
        return str(getattr(function.__self__, "__name__", name))
    return str(name)


def classify(function: Any) -> Kind:
    """How calls of this function are treated."""
    access, name = getattr(function, "__name__", ""), name_of(function)
    if access == "__get__":
        return {"data": Kind.DATA, "grad": Kind.READ_GRAD}.get(name, Kind.CALL if name in _DERIVED else Kind.SKIP)
    if access in ("__set__", "__delete__"):
        return _SETTERS.get(name, Kind.SKIP)
    if name == "requires_grad_":
        return Kind.SET_REQUIRES_GRAD
    if name in _LEAVE:
        return Kind.LEAVE
    if name in _ENTER:
        return Kind.ENTER
    if name == "batch_norm" and getattr(function, "__module__", None) == "torch.nn.functional":
        return Kind.BATCH_NORM
    if name == "_set_grad_enabled":
        return Kind.SET_MODE
    if name in _SET:
        return Kind.SET_DATA
    if name in _SKIP or type(function).__name__ in ("OpOverload", "OpOverloadPacket", "TorchBindOpOverload"):
        return Kind.SKIP
    return Kind.CALL
