"""Looks inside PyTorch's autograd graph and tells what is wrong with a training step."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import check, inspect, make_dot, plan, trace, watch, why
    from .archive import load
    from .errors import GraphscopeError, GraphscopeWarning
    from .findings import Finding, Severity
    from .graph import Graph
    from .report import Report

__version__ = "0.1.0"

_HOMES = {
    "check": "api",
    "inspect": "api",
    "load": "archive",
    "make_dot": "api",
    "plan": "api",
    "trace": "api",
    "watch": "api",
    "why": "api",
    "GraphscopeError": "errors",
    "GraphscopeWarning": "errors",
    "Finding": "findings",
    "Severity": "findings",
    "Graph": "graph",
    "Report": "report",
}
__all__ = [
    "Finding",
    "Graph",
    "GraphscopeError",
    "GraphscopeWarning",
    "Report",
    "Severity",
    "check",
    "inspect",
    "load",
    "make_dot",
    "plan",
    "trace",
    "watch",
    "why",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that the command line answers without importing torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphscope' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"graphscope.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


class _Package(ModuleType):
    """Keeps ``graphscope.trace`` the function: importing the module of that name would put itself in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
