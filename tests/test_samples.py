"""Every sample gives what its docstring and its marks say, and does the same watched as unwatched."""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from pathlib import Path

import pytest
from programs import both, said

import graphscope
from graphscope.findings import Severity

ROOT = Path(__file__).parent.parent
SAMPLES = sorted((ROOT / "samples").glob("*.py"))
PICTURES = Path(__file__).parent / "golden" / "samples"


def expected(sample: Path) -> set[str]:
    """The codes on the line `Expected: GS201, GS203` of the docstring; none for `Expected: nothing`."""
    line = re.search(r"^Expected: (nothing|GS\d{3}(?:, GS\d{3})*)$", sample.read_text(), re.MULTILINE)
    assert line, f"{sample.name} does not say what is expected"
    return set(re.findall(r"GS\d{3}", line[1]))


def marks(sample: Path) -> dict[str, set[int]]:
    """The lines that carry a mark, by code."""
    found = defaultdict(set)
    for number, line in enumerate(sample.read_text().splitlines(), start=1):
        if mark := re.search(r"#\s*(GS\d{3})$", line):
            found[mark[1]].add(number)
    return dict(found)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_docstring_and_marks_agree(sample: Path) -> None:
    assert set(marks(sample)) == expected(sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_sample_gives_what_it_says_and_behaves_as_unwatched(
    sample: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    bare, watched = both(sample, tmp_path)
    assert watched.out == bare.out
    assert watched.err == bare.err
    assert {finding["code"] for finding in watched.loud} == expected(sample), said(watched.loud)
    for code, lines in marks(sample).items():
        blamed = [
            {place["line"] for place in finding["locations"] if place["role"] in ("cause", "failure")}
            for finding in watched.loud
            if finding["code"] == code
        ]
        assert all(each & lines for each in blamed), said(watched.loud)
        assert lines <= set().union(*blamed), said(watched.loud)
    assert watched.report["outcome"]["status"] == bare.status
    errors = any(finding["severity"] == "error" for finding in watched.loud)
    assert watched.status == (1 if errors else bare.status)
    golden = PICTURES / f"{sample.stem}.svg"
    drawn = picture(tmp_path / "graph.svg")
    if request.config.getoption("--update-golden"):
        golden.write_text(drawn)
    assert drawn == golden.read_text()


def picture(file: Path) -> str:
    """A picture without what depends on where the samples lie, and without the words of the findings."""
    drawn = file.read_text().replace(f"{ROOT}/", "")
    return re.sub(r"<desc.*?</desc>", "", re.sub(r'href="[^"]*/', 'href="', drawn), flags=re.DOTALL)


# What ``check`` is given, in the words of the sample, just before its first backward, and the codes it finds.
CHECKS = {
    "sum_of_losses": ("reconstruction_loss + classification_loss, optimizer", set()),
    "two_backwards": (
        "denoising_loss, classification_loss, denoiser_optimizer, classifier_optimizer",
        {"GS101"},
    ),
    "operation_between_nets": ("embedding_loss, score_loss, embedder_optimizer, scorer_optimizer", {"GS101"}),
    "numpy_hop_both_losses": ("regression_loss, ranking_loss, regressor_optimizer, ranker_optimizer", set()),
    "numpy_hop_last_loss": ("loss, encoder_optimizer, head_optimizer", {"GS203"}),  # no hop in a graph alone
    "second_before_first": (
        "critic_loss, mse_loss(translation, reference), critic_optimizer, translator_optimizer",
        {"GS101"},
    ),
    "second_before_first_retain": (
        "critic_loss, translation_loss, critic_optimizer, translator_optimizer, retain_graph=True",
        set(),
    ),
    "second_before_first_detach": (
        "critic_loss, mse_loss(translation, reference), critic_optimizer, translator_optimizer",
        set(),
    ),
    "second_before_first_sum": ("critic_loss + translation_loss, critic_optimizer, translator_optimizer", set()),
    "second_before_first_detach_wrong": ("critic_loss, translation_loss, optimizer", {"GS204"}),
    "gan_step": (
        "real_loss + fake_loss, discriminator(fake).mean(), discriminator_optimizer, generator_optimizer",
        {"GS101"},
    ),
    "gan_step_detached": (
        "real_loss + fake_loss, discriminator(fake).mean(), discriminator_optimizer, generator_optimizer",
        set(),
    ),
    "losses_over_heads": ("*(mse_loss(heads[name](features), targets[name]) for name in heads), optimizer", {"GS101"}),
    "gradient_accumulation": ("loss, optimizer", set()),
    "running_total": ("loss, optimizer", set()),
    "backward_argument_swapped": ("z.sum(), encoder_optimizer, decoder_optimizer", set()),
    "inplace_residual": ("loss, optimizer", {"GS102"}),
    "focal_loss": ("loss, optimizer", set()),
    "actor_critic": ("loss, optimizer", set()),
    "resnet": ("loss, optimizer", set()),
    "gpt": ("loss, optimizer", set()),
}


@pytest.mark.parametrize("name", CHECKS)
def test_check_says_it_before_backward(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = next(sample for sample in SAMPLES if sample.stem == name)
    given, codes = CHECKS[name]
    monkeypatch.chdir(sample.parent)
    program = ast.parse(sample.read_text())
    program.body = [*until_backward(program.body), *ast.parse(f"report = graphscope.check({given})").body]
    names = {"__name__": "__main__", "graphscope": graphscope}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphscope.GraphscopeWarning)
        exec(compile(ast.fix_missing_locations(program), str(sample), "exec"), names)
    loud = names["report"].at_least(Severity.WARNING)
    assert {finding.code for finding in loud} == codes, [finding.message for finding in loud]


def until_backward(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements before the first call of backward; loops around it are left in their first round."""
    before: list[ast.stmt] = []
    for statement in body:
        if not any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(statement)):
            before.append(statement)
        elif isinstance(statement, ast.For):
            statement.body = [*until_backward(statement.body), ast.Break()]
            return [*before, statement]
        else:
            break
    return before
