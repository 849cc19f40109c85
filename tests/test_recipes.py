"""Correct programs that look suspicious give no error and no warning: every recipe is a guard against false alarms."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

import graphscope
from graphscope.findings import Severity

RECIPES = sorted((Path(__file__).parent / "recipes").glob("*.py"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_recipe_is_silent(recipe: Path) -> None:
    linecache.checkcache()
    report = graphscope.inspect(recipe)
    assert report.trace.outcome.status == 0, report.trace.outcome.exception
    assert not report.at_least(Severity.WARNING), str(report)
