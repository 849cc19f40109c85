"""What a rule is: one file with the explanation, the examples and the logic."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from typing import ClassVar

from ._plain import dataclass
from .discovery import modules
from .findings import Cleared, Confidence, Finding, Fix, Place, Severity
from .location import Location
from .trace import Trace


class Rule:
    """A kind of fault that can be recognised in a trace.

    A subclass sets ``code`` and ``severity``, explains itself in its docstring (first line what, then
    why, then *Bad* and *Good* examples) and implements ``check``. Rules hold no state.
    """

    code: ClassVar[str]
    severity: ClassVar[Severity]

    def check(self, trace: Trace) -> Iterator[Finding]:
        """Yield what this rule finds in the trace."""
        raise NotImplementedError

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """Yield what looks like this rule's fault and is right, one for each line, with the reason."""
        yield from ()

    @classmethod
    def name(cls) -> str:
        """The printed name: ``UnreachedOptimizer`` is ``unreached-optimizer``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def finding(
        self,
        message: str,
        *,
        places: Iterable[Place],
        fixes: Iterable[Fix] = (),
        severity: Severity | None = None,
        confidence: Confidence = Confidence.CERTAIN,
        nodes: Iterable[int] = (),
        **facts: object,
    ) -> Finding:
        """A finding of this rule; ``facts`` are the names and numbers that the message is made of."""
        return Finding(
            code=self.code,
            name=self.name(),
            severity=severity or self.severity,
            message=message,
            places=tuple(dict.fromkeys(places)),
            confidence=confidence,
            fixes=tuple(dict.fromkeys(fixes)),
            nodes=tuple(nodes),
            facts=facts,
        )

    def clear(self, message: str, at: Location) -> Cleared:
        """Something at this location that looks like this rule's fault, and why it is none."""
        return Cleared(self.code, message, at)


@dataclass(frozen=True, slots=True)
class Example:
    """A program from a rule's docstring: ``good`` ones are silent, bad ones give the codes at the lines."""

    title: str
    source: str
    good: bool

    @property
    def expected(self) -> dict[int, str]:
        """The code that each marked line earns: ``loss.backward()  # GS101`` on line 4 gives ``{4: "GS101"}``."""
        lines = enumerate(self.source.splitlines(), start=1)
        return {number: mark[1] for number, line in lines if (mark := re.search(r"#\s*(GS\d{3})\s*$", line))}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A rule's docstring, taken apart."""

    summary: str
    reason: str
    examples: tuple[Example, ...]


def explanation(rule: type[Rule]) -> Explanation:
    """The summary, the reason and the examples that a rule's docstring gives."""
    text = inspect.getdoc(rule) or ""
    prose, *blocks = re.split(r"^((?:Bad|Good)[^\n]*)::\n", text, flags=re.MULTILINE)
    summary, _, reason = prose.strip().partition("\n\n")
    examples = tuple(
        Example(title, textwrap.dedent(source).strip("\n") + "\n", good=title.startswith("Good"))
        for title, source in zip(blocks[::2], blocks[1::2], strict=True)
    )
    return Explanation(" ".join(summary.split()), reason.strip(), examples)


@cache
def all_rules() -> tuple[type[Rule], ...]:
    """Every rule there is, ordered by code."""
    found = {
        value
        for module in modules("rules").values()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module.__name__
    }
    return tuple(sorted(found, key=lambda rule: rule.code))
