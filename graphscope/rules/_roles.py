"""Which of two opponents a name speaks of: the one that acts (actor, generator) or the one that judges it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from ..events import Backward
from ..trace import Trace

Role = Literal["acts", "judges"]
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("actor", "policy", "pi", "g", "gen", "generator"), "acts"),
    **dict.fromkeys(("critic", "value", "vf", "v", "qf", "q", "d", "dis", "disc", "discriminator"), "judges"),
}


def role_of(name: str) -> Role | None:
    """The role that the words of a name tell of, None where they tell of none or of both."""
    roles = {_ROLES[word] for each in _WORD.findall(name) if (word := each.lower()) in _ROLES}
    return roles.pop() if len(roles) == 1 else None


def parameter_role(trace: Trace, parameters: Iterable[int]) -> Role | None:
    """The role that all of these parameters have, by their names."""
    roles = {role_of((trace.graph.tensor(id).name or "").rpartition(".")[0]) for id in parameters}
    return roles.pop() if len(roles) == 1 else None


def loss_role(event: Backward) -> Role | None:
    """Whom a backward is for, by the names of its losses."""
    roles = {role_of(root.name) for root in event.roots}
    return roles.pop() if len(roles) == 1 else None
