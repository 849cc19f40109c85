"""Every example in every rule's docstring gives what its marks say, and the good ones nothing."""

from __future__ import annotations

import linecache
import warnings
from pathlib import Path

import pytest

import graphscope.api
from graphscope.findings import Finding, Severity
from graphscope.report import Report
from graphscope.rule import Example, Rule, all_rules, explanation

EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{'good' if example.good else 'bad'}-{number}")
    for rule in all_rules()
    for number, example in enumerate(explanation(rule).examples)
]


def loud(report: Report) -> tuple[Finding, ...]:
    return report.at_least(Severity.WARNING)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run an example as a file of its own, and give the reports that it made."""
    reports: list[Report] = []
    analyze = graphscope.api.analyze

    def remember(*args, **options) -> Report:
        reports.append(analyze(*args, **options))
        return reports[-1]

    def run(source: str) -> list[Report]:
        file = tmp_path / "example.py"
        file.write_text(source)
        linecache.checkcache()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(graphscope.api, "analyze", remember)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, str(file), "exec"), {"__name__": "__main__", "__file__": str(file)})
        return reports

    return run


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example_gives_what_its_marks_say(rule: type[Rule], example: Example, run) -> None:
    reports = run(example.source)
    findings = [finding for report in reports for finding in report.findings]
    for line, code in example.expected.items():
        assert any(f.code == code and line in {p.location.line for p in f.places} for f in findings), findings
    # Another rule may see the same fault from another side, but a bad example shows its own.
    assert {code for code in example.expected.values()} <= {finding.code for finding in findings}
    if example.good:
        assert not [finding for report in reports for finding in loud(report)]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_rule_explains_itself(rule: type[Rule]) -> None:
    text = explanation(rule)
    assert text.summary.endswith(".")
    assert text.reason
    assert any(example.good for example in text.examples)
    assert any(not example.good and rule.code in example.expected.values() for example in text.examples)
    assert rule.__module__.rpartition(".")[2] == rule.name().replace("-", "_")


def test_codes_are_unique() -> None:
    codes = [rule.code for rule in all_rules()]
    assert len(codes) == len(set(codes))
