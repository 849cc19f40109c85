"""The model of the engine against torch itself, on random programs.

``GRAPHSCOPE_PROGRAMS=50000 pytest tests/test_oracle.py`` tries more of them.
"""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.programs import Statement, text, write
from oracle.runner import Run, culprits, run
from oracle.tracing import Tracer

from graphscope.engine import Verdict, simulate

PROGRAMS = int(os.environ.get("GRAPHSCOPE_PROGRAMS", "2000"))


@st.composite
def programs(draw: st.DrawFn) -> list[Statement]:
    return write(lambda below: draw(st.integers(0, below - 1)))


def compare(program: list[Statement]) -> list[str]:
    """The ways in which model and torch disagree about a program."""
    tracer = Tracer()
    outcome = run(program, tracer)
    verdicts = {verdict.event.location.line: verdict for verdict in simulate(tracer.trace())}
    wrong = []
    for position, kind in outcome.outcomes.items():
        verdict = verdicts[position]
        said = f"line {position}: {program[position].source}: "
        if not verdict.certain:
            break  # the model cannot know how this ended, nor what it freed
        if verdict.kind != kind and not (kind and verdict.kind and is_unsure(program)):
            wrong.append(f"{said}torch says {kind}, the model {verdict.kind}: {outcome.messages[position][:300]}")
        elif kind is not None:
            wrong += [said + each for each in differences(program, outcome, position, verdict)]
    return wrong


def is_unsure(program: list[Statement]) -> bool:
    """Whether it is unknown if a node reads what it saved: the model then names what fails without that."""
    return "Doubtful" in text(program)


def differences(program: list[Statement], outcome: Run, position: int, verdict: Verdict) -> list[str]:
    found = culprits(program, outcome, position)
    named = frozenset(culprit.event.location.line for culprit in verdict.culprits)
    if is_unsure(program):  # what may be a cause is not named where another certainly is
        if found is not None and not named <= found:
            return [f"torch finds the culprits {sorted(found)}, the model {sorted(named)}"]
        return []
    if found is not None and found != named:
        return [f"torch finds the culprits {sorted(found)}, the model {sorted(named)}"]
    if verdict.kind == "stale" and verdict.saved is not None and "expected version" in outcome.messages[position]:
        words = f"is at version {verdict.version}; expected version {verdict.saved.version} instead"
        if words not in outcome.messages[position]:
            return [f"torch says {outcome.messages[position][:300]}, the model {words}"]
    return []


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@settings(max_examples=PROGRAMS, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
@given(programs())
def test_model_and_torch_agree(program: list[Statement]) -> None:
    wrong = compare(program)
    assert not wrong, "\n".join([*wrong, "", text(program)])
