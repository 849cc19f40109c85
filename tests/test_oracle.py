"""What graphscope says of random programs, recorded as they run, against what torch did.

Always the same 2,000; ``GRAPHSCOPE_PROGRAMS=50000 pytest tests/test_oracle.py`` tries that many others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.programs import Statement, text, write
from oracle.runner import LIBRARY, Run, culprits, execute, run

from graphscope.engine import Verdict, simulate
from graphscope.events import Event
from graphscope.tracer import frames
from graphscope.tracer.recorder import Recorder

PROGRAMS = int(os.environ.get("GRAPHSCOPE_PROGRAMS", "2000"))


@st.composite
def programs(draw: st.DrawFn) -> list[Statement]:
    return write(lambda below: draw(st.integers(0, below - 1)))


def compare(program: list[Statement]) -> list[str]:
    """The ways in which graphscope and torch disagree about a program."""
    recorder = Recorder()
    recorder.frames.edge = execute.__code__
    outcome = run(program, recorder)
    verdicts: dict[int, Verdict] = {}
    for verdict in simulate(recorder.trace()):
        verdicts.setdefault(position_of(verdict.event), verdict)  # a reentrant checkpoint has calls in its call
    assert recorder.failure is None, recorder.failure
    wrong = []
    for position, kind in outcome.outcomes.items():
        verdict = verdicts[position]
        said = f"line {position}: {program[position].source}: "
        if not verdict.certain:
            if not is_unsure(program):
                wrong.append(f"{said}uncertain {verdict.kind}")
            break  # it is unknown how this ended, and what it freed
        if verdict.kind != kind and not (kind and verdict.kind and is_unsure(program)):
            wrong.append(f"{said}torch says {kind}, graphscope {verdict.kind}: {outcome.messages[position][:300]}")
        elif kind is not None:
            wrong += [said + each for each in differences(program, outcome, position, verdict)]
    return wrong


def position_of(event: Event) -> int:
    """The statement that an event belongs to."""
    return event.location.line - 1


def is_unsure(program: list[Statement]) -> bool:
    """Whether it is unknown if a node reads what it saved: graphscope then names what fails without that."""
    return "Doubtful" in text(program)


def differences(program: list[Statement], outcome: Run, position: int, verdict: Verdict) -> list[str]:
    found = culprits(program, outcome, position)
    named = frozenset(position_of(culprit.event) for culprit in verdict.culprits)
    if is_unsure(program):  # what may be a cause is not named where another certainly is
        if found is not None and not named <= found:
            return [f"torch finds the culprits {sorted(found)}, graphscope {sorted(named)}"]
        return []
    if found is not None and found != named:
        return [f"torch finds the culprits {sorted(found)}, graphscope {sorted(named)}"]
    if verdict.kind == "stale" and verdict.saved is not None and "expected version" in outcome.messages[position]:
        words = f"is at version {verdict.version}; expected version {verdict.saved.version} instead"
        if words not in outcome.messages[position]:
            return [f"torch says {outcome.messages[position][:300]}, graphscope {words}"]
    return []


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def programs_are_all_the_user_wrote() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_LIBRARIES", (*frames._LIBRARIES, LIBRARY))
        yield


@settings(
    max_examples=PROGRAMS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    derandomize="GRAPHSCOPE_PROGRAMS" not in os.environ,
)
@given(programs())
def test_model_and_torch_agree(program: list[Statement]) -> None:
    wrong = compare(program)
    assert not wrong, "\n".join([*wrong, "", text(program)])
