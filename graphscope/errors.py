"""What graphscope raises and warns with."""

from __future__ import annotations


class GraphscopeError(Exception):
    """graphscope was asked for something it cannot do; the message names the call that works."""


class GraphscopeWarning(UserWarning):
    """A finding of ``graphscope.check``, also emitted as a Python warning so that filters apply to it."""
