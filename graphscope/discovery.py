"""Rules and formats are found by looking into their folders: adding one is adding a file."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType


@cache
def modules(package: str) -> dict[str, ModuleType]:
    """The public modules of a package of graphscope (``"rules"``, ``"renderers"``), by name."""
    found = importlib.import_module(f"graphscope.{package}")
    names = sorted(info.name for info in pkgutil.iter_modules(found.__path__) if not info.name.startswith("_"))
    return {name: importlib.import_module(f"{found.__name__}.{name}") for name in names}


def names(package: str) -> tuple[str, ...]:
    """The names of the public modules of a package, without importing them."""
    found = importlib.import_module(f"graphscope.{package}")
    return tuple(sorted(info.name for info in pkgutil.iter_modules(found.__path__) if not info.name.startswith("_")))


def module(package: str, name: str) -> ModuleType:
    """One module of a package, imported on its own."""
    return importlib.import_module(f"graphscope.{package}.{name}")


def higher(name: str) -> ModuleType:
    """A module of a higher layer, for a method that only forwards to it (``graph.save``)."""
    return importlib.import_module(f"graphscope.{name}")
