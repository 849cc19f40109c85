"""What a rule has to say: a fault or a fact, where it is, and what to type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .location import Location


class Severity(Enum):
    """How bad it is.

    *error*: torch raises, or something meant to train does not, or a gradient is wrong; *warning*: legal, but
    seldom meant; *note*: worth knowing.
    """

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for a note, 1 for a warning, 2 for an error."""
        return list(Severity).index(self)


class Confidence(Enum):
    """*certain*: follows from graph and events; *likely*: rests on a match by value, or on what was not seen."""

    CERTAIN = "certain"
    LIKELY = "likely"


class Role(Enum):
    """What a location is to a finding."""

    CAUSE = "cause"
    FAILURE = "failure"
    RELATED = "related"


@dataclass(frozen=True, slots=True)
class Place:
    """A location that takes part in a finding, with what happened there."""

    location: Location
    role: Role
    label: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A way to mend it: ``title`` says what to type, at ``location`` where one line is meant.

    ``changes_gradients`` and ``checked`` are None where that was not examined; ``works`` is False for
    a popular remedy that would not help, with ``reason`` saying why. ``bytes`` is what it keeps in memory.
    """

    title: str
    location: Location | None = None
    changes_gradients: bool | None = None
    checked: bool | None = None
    works: bool = True
    reason: str | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of one rule, complete in itself.

    ``facts`` holds the names, lines and counts that ``message`` is made of, for tests and translations.
    ``nodes`` are the graph nodes to highlight; the first of ``places`` is the one it is reported at.
    """

    code: str
    name: str
    severity: Severity
    message: str
    places: tuple[Place, ...] = ()
    confidence: Confidence = Confidence.CERTAIN
    fixes: tuple[Fix, ...] = ()
    nodes: tuple[int, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def location(self) -> Location | None:
        """Where it is reported."""
        return self.places[0].location if self.places else None
