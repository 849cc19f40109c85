"""What to write in place of an operation that has no gradient: shared by the rules that meet one."""

from __future__ import annotations

_STRAIGHT = "x + ({op}(x) - x).detach(), which lets the gradient pass beside it (straight-through)"
_FORMS = {
    "round": f"use {_STRAIGHT}",
    "division": "divide without rounding, z = x / y, and use z + (torch.floor(z) - z).detach(), which lets the "
    "gradient pass beside the rounding (straight-through)",
    "sign": f"use torch.tanh(k * x), or {_STRAIGHT}",
    "choice": "use the soft values: softmax in place of the choice, gather or a weighted sum in place of the index; "
    "or F.gumbel_softmax(..., hard=True)",
    "comparison": "use torch.sigmoid(k * (x - threshold)) in place of the comparison, or let the gradient pass beside "
    "it: soft + (hard - soft).detach()",
    "cast": "stay in floating point: a whole number has no gradient",
    "sample": "sample with rsample(), which moves noise by the parameters, or use log_prob(sample) * reward "
    "(REINFORCE)",
}
_KINDS = {
    "round": "round floor ceil trunc fix nextafter",
    "division": "floor_divide __floordiv__ __rfloordiv__ div",
    "sign": "sign sgn heaviside signbit",
    "choice": "argmax argmin max min sort argsort topk kthvalue median mode one_hot unique nonzero bucketize "
    "searchsorted histc bincount cummax cummin",
    "comparison": "gt lt ge le eq ne greater less greater_equal less_equal isclose __gt__ __lt__ __ge__ __le__ __eq__ "
    "__ne__ logical_and logical_or logical_not bool",
    "cast": "long int short byte char to type",
    "sample": "multinomial bernoulli bernoulli_ normal poisson sample binomial",
}
_FORM_OF = {op: kind for kind, ops in _KINDS.items() for op in ops.split()}


def soft_form(op: str) -> str:
    """What to type in place of it."""
    kind = _FORM_OF.get(op)
    if kind is None:
        return f"build the value from soft values in place of `{op}`"
    return _FORMS[kind].format(op=f"torch.{op}" if kind in ("round", "sign") else op)
