"""What a rule has to say: a fault or a fact, where it is, and what to type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from ._plain import dataclass
from .graph import NodeId
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


class Action(Enum):
    """What an edit does to the statement at its location."""

    RETAIN_GRAPH = "retain_graph"  # pass retain_graph=True to the backward or grad call there
    SUM = "sum"  # drop the backward there and backpropagate its loss together with the one at `other`
    MOVE_AFTER = "move_after"  # move the statement behind the one at `other`
    MOVE_BEFORE = "move_before"  # move the statement in front of the one at `other`
    COMPUTE_AGAIN = "compute_again"  # repeat the statement in front of the one at `other`
    DETACH = "detach"  # detach `name` before the statement uses it
    CLONE = "clone"  # write to a clone of `name`
    OUT_OF_PLACE = "out_of_place"  # the out-of-place form of the write there
    NO_GRAD = "no_grad"  # put the statement under torch.no_grad()


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the source that a fix asks for; ``other`` and ``name`` as its action says."""

    action: Action
    location: Location
    other: Location | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """A way to mend it: ``title`` says what to type, at ``location`` where one line is meant.

    ``changes_gradients`` and ``checked`` are None where that was not examined; ``works`` is False for
    a popular remedy that would not help, with ``reason`` saying why. ``bytes`` is what it keeps in memory, and
    ``until`` the call that no longer needs it then.
    ``edits`` are what to change in the source, where that can be told; all of them belong together.
    ``verified`` is whether the program, so edited, ran to its end without the finding, None where it was not run;
    ``agrees`` whether the gradients of its first step then were those of the fixes that keep the gradients.
    """

    title: str
    location: Location | None = None
    changes_gradients: bool | None = None
    checked: bool | None = None
    works: bool = True
    reason: str | None = None
    bytes: int | None = None
    until: Location | None = None
    edits: tuple[Edit, ...] = ()
    verified: bool | None = None
    agrees: bool | None = None


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
    nodes: tuple[NodeId, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def location(self) -> Location | None:
        """Where it is reported."""
        return self.places[0].location if self.places else None


@dataclass(frozen=True, slots=True)
class Cleared:
    """Something that looked like the fault of a rule and was judged right: the rule's ``code``, where, and why."""

    code: str
    message: str
    location: Location


def size(bytes: int) -> str:
    """A number of bytes for a reader: ``768 B``, ``2.0 KiB``."""
    if bytes < 1024:
        return f"{bytes} B"
    value = float(bytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"
