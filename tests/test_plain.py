"""The dataclasses that are quick to define do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable

import pytest

from graphscope._plain import dataclass


def defined(make: Callable[..., Callable[[type], type]], **options: bool) -> type:
    """A dataclass with a default, a default factory and a field that is not compared."""

    class Point:
        x: int
        y: float = 0.5
        tags: tuple[str, ...] = dataclasses.field(default_factory=tuple)
        note: str = dataclasses.field(default="", compare=False, repr=False)

    return make(**options)(Point)


OPTIONS = [
    {},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"slots": True},
    {"frozen": True, "eq": False},
    {"frozen": True, "slots": True, "order": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_shown_compared_hashed_and_ordered_as_a_standard_dataclass(options: dict[str, bool]) -> None:
    for make in (dataclass, dataclasses.dataclass):
        kind, other = defined(make, **options), defined(make, **options)
        one, same, more = kind(1), kind(1, note="a"), kind(1, 0.75, ("b",))
        has_equality = options.get("eq", True)
        assert repr(more).endswith("Point(x=1, y=0.75, tags=('b',))")
        assert (one == same) is has_equality and one != more and one != other(1)
        assert dataclasses.replace(one, y=0.75, tags=("b",)).y == more.y
        assert [each.name for each in dataclasses.fields(kind)] == ["x", "y", "tags", "note"]
        assert hasattr(one, "__dict__") is not options.get("slots", False)
        if options.get("frozen") and has_equality:
            assert hash(one) == hash(same) and len({one, same, more}) == 2
        if has_equality and not options.get("frozen"):
            with pytest.raises(TypeError, match="unhashable"):
                hash(one)
        if options.get("order"):
            assert sorted([more, one]) == [one, more] and one <= same and more > one and more >= one
        else:
            with pytest.raises(TypeError, match="not supported"):
                one < more  # noqa: B015
        with pytest.raises(TypeError, match="missing 1 required"):
            kind()


@dataclass(frozen=True, slots=True)
class Pair:
    """One that pickle finds by its name."""

    left: int
    right: int = 2


def test_is_copied_and_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pair(1))) == copy.deepcopy(Pair(1)) == Pair(1, 2)


def test_equality_that_a_class_writes_itself_is_kept() -> None:
    @dataclass(frozen=True)
    class Same:
        id: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Same)

        def __hash__(self) -> int:
            return 7

    assert Same(1) == Same(2) and hash(Same(3)) == 7
