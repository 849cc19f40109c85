"""Marked cases kept beside the repository, if there are any: the faults are found at their lines, the clean ones pass.

A faulty case is found when one finding of severity error or warning has a location on a line marked as the cause and,
where torch raises, one on the line that fails. A clean case is silent when no finding is an error or a warning.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from programs import inspected, said

FOLDER = Path(__file__).parent.parent.parent / "shared" / "cases"
FAMILIES_WHERE_TORCH_RAISES = {"second-backward", "carried-state", "in-place", "stale-weights"}


def cases() -> list[dict[str, Any]]:
    """The clean cases, and those of the families whose rules exist."""
    index = FOLDER / "INDEX.json"
    known = json.loads(index.read_text()) if index.exists() else []
    return [
        case
        for case in known
        if case["clean"] or (case["family"] in FAMILIES_WHERE_TORCH_RAISES and case["torch_outcome"] != "silent")
    ]


@pytest.mark.skipif(not FOLDER.exists(), reason="no cases beside the repository")
@pytest.mark.parametrize("case", cases(), ids=lambda case: Path(case["file"]).stem)
def test_case_is_judged_right(case: dict[str, Any], tmp_path: Path) -> None:
    loud = inspected(FOLDER / case["file"], tmp_path).loud
    if case["clean"]:
        assert not loud, said(loud)
        return
    failing = set() if case["fail_line"] is None else {case["fail_line"]}
    places = [{place["line"] for place in finding["locations"]} for finding in loud]
    assert any(lines & set(case["cause_lines"]) and failing <= lines for lines in places), said(loud)
