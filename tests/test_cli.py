"""The command line: what goes where, and with which exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from reports import planned, two_losses

import graphscope.api
from graphscope import cli
from graphscope.cli import _output, _rules
from graphscope.findings import Finding, Severity
from graphscope.report import Report
from graphscope.rule import Rule, all_rules
from graphscope.trace import Outcome, Trace

ROOT = Path(__file__).parent.parent


def graphscope_(*arguments: object, **options: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments], **options)


def command(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    line = [sys.executable, "-m", "graphscope", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, **options)


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A script in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("train.py")
    path.write_text("print('training')\n")
    return path


class Inspected:
    """Stands in for ``api.inspect``: keeps what it was asked, and answers with a report."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...], bool]] = []
        self.report = Report(Trace())

    def __call__(self, target, *, args, module, **_):
        self.asked.append((target, tuple(args), module))
        return self.report


@pytest.fixture
def inspected(monkeypatch):
    """Nothing is run; the test says what was found."""
    stand_in = Inspected()
    monkeypatch.setattr(graphscope.api, "inspect", stand_in)
    return stand_in


def found(*severities: Severity, status: int = 0) -> Report:
    """A report with one finding of each severity."""
    findings = tuple(Finding("GS999", "made-up", severity, "a message") for severity in severities)
    return Report(Trace(outcome=Outcome(status)), findings)


class MadeUp(Rule):
    """A fault that was made up.

    The reason for it.

    Bad::

        bad = 1  # GS999

    Good::

        good = 1
    """

    code = "GS999"
    severity = Severity.ERROR
    torch_messages = (r"made up by \w+",)

    def check(self, trace):
        return iter(())


@pytest.fixture
def one_rule(monkeypatch):
    monkeypatch.setattr(_rules, "all_rules", lambda: (MadeUp,))


# What belongs to whom


def test_what_follows_the_script_belongs_to_it(script, inspected):
    arguments = ("--epochs", "1", "--format", "json", "-o", "x", "--graph", "y", "--", "z")
    assert graphscope_("inspect", "--color", "never", script, *arguments).exit_code == 0
    assert inspected.asked == [("train.py", arguments, False)]


def test_graph_right_after_the_script_draws(script, inspected):
    graphscope_("inspect", script, "--graph", "graph.json", "--epochs", "1")
    assert inspected.asked == [("train.py", ("--epochs", "1"), False)]
    assert json.loads(Path("graph.json").read_text())["schema_version"]


def test_a_double_dash_ends_our_options(script, inspected):
    graphscope_("inspect", script, "--", "--graph", "graph.json")
    assert inspected.asked == [("train.py", ("--graph", "graph.json"), False)]


def test_a_module_takes_its_arguments_after_a_double_dash(inspected):
    graphscope_("inspect", "-m", "package.module", "--", "--epochs", "1")
    assert inspected.asked == [("package.module", ("--epochs", "1"), True)]


# Outputs


def test_the_report_goes_to_stderr(script, inspected):
    inspected.report = found(Severity.WARNING)
    result = graphscope_("inspect", script)
    assert "GS999" in result.stderr and not result.stdout


def test_a_dash_is_stdout(script, inspected):
    result = graphscope_("inspect", "--format", "json", "-o", "-", script)
    assert json.loads(result.stdout)["findings"] == [] and not result.stderr


def test_the_suffix_of_the_output_names_its_format(script, inspected):
    graphscope_("inspect", "-o", "report.json", script)
    graphscope_("inspect", "-o", "report.txt", script)
    assert json.loads(Path("report.json").read_text())
    assert "no findings" in Path("report.txt").read_text()


def test_outputs_land_where_they_were_asked_for_also_if_the_script_moves(script, inspected, monkeypatch, tmp_path):
    def moving(*arguments, **options):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        return inspected.report

    monkeypatch.setattr(graphscope.api, "inspect", moving)
    graphscope_("inspect", "-o", "report.json", "--graph", "graph.json", script)
    assert (tmp_path / "report.json").exists() and (tmp_path / "graph.json").exists()


def test_a_picture_that_cannot_be_drawn_leaves_its_dot_source(script, inspected, monkeypatch):
    monkeypatch.setattr("graphscope.renderers._engine.engines", list)
    result = graphscope_("inspect", "--graph", "graph.png", script)
    assert result.exit_code == 2
    assert "cannot draw png: no layout engine found" in result.stderr and "Traceback" not in result.stderr
    assert Path("graph.dot").read_text().startswith("digraph")


def test_color_is_for_terminals_and_for_those_who_ask(script, inspected, monkeypatch):
    inspected.report = found(Severity.ERROR)
    assert "\x1b[" not in graphscope_("inspect", script).stderr
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" in graphscope_("inspect", "--color", "always", script).stderr


@pytest.mark.parametrize(
    ("environment", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_gets_color_unless_it_says_no(environment, colored, monkeypatch):
    for name, value in {"NO_COLOR": "", "TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert _output.is_colored("auto", sys.stdout) is colored


# Exit status


@pytest.mark.parametrize(
    ("severity", "fail_on", "status"),
    [
        (Severity.ERROR, "error", 1),
        (Severity.WARNING, "error", 0),
        (Severity.WARNING, "warning", 1),
        (Severity.NOTE, "warning", 0),
        (Severity.NOTE, "note", 1),
        (Severity.ERROR, "never", 0),
    ],
)
def test_fail_on_is_the_least_severity_that_fails(severity, fail_on, status, script, inspected):
    inspected.report = found(severity)
    assert graphscope_("inspect", "--fail-on", fail_on, script).exit_code == status


def test_a_failing_script_keeps_its_status_unless_something_was_found(script, inspected):
    inspected.report = found(Severity.WARNING, status=7)
    assert graphscope_("inspect", script).exit_code == 7
    inspected.report = found(Severity.ERROR, status=7)
    assert graphscope_("inspect", script).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect"], "give a SCRIPT, or -m MODULE"),
        (["inspect", "--bogus", "train.py"], "No such option"),
        (["inspect", "--format", "none", "train.py"], "'none' is not one of"),
        (["inspect", "--graph", "graph.none", "train.py"], "cannot tell a format from 'graph.none'"),
        (["inspect", "--graph", "none/graph.json", "train.py"], "cannot write none/graph.json: No such file"),
        (["inspect", "-o", ".", "train.py"], "cannot write .: Is a directory"),
        (["inspect", "--select", "GS101,XY1", "train.py"], "no rule has the code 'XY1'"),
        (["inspect", "--ignore", "XY1", "train.py"], "no rule has the code 'XY1'"),
        (["none"], "No such command 'none'"),
        (["explain", "GS998"], "no rule has the code 'GS998'"),
        (["explain", "gibberish"], "no rule knows this message"),
    ],
)
def test_wrong_usage_is_one_line_before_anything_runs(arguments, message, script, inspected, monkeypatch):
    monkeypatch.setattr("graphscope.analyzer.all_rules", lambda: (type("Rule", (MadeUp,), {"code": "GS101"}),))
    result = graphscope_(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert not inspected.asked


def test_checking_an_output_changes_nothing(script, inspected):
    Path("old.json").write_text("old")
    graphscope_("inspect", "-o", "old.json", "--graph", "new.json", "--select", "XY1", script)
    assert Path("old.json").read_text() == "old" and not Path("new.json").exists()


# Programs that are really run


def test_a_script_prints_and_exits_as_it_would_alone(tmp_path):
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv, __name__)\nsys.exit(7)\n")
    done = command("inspect", "train.py", "--epochs", "1", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("['train.py', '--epochs', '1'] __main__\n", 7)


def test_a_syntax_error_is_shown_as_python_shows_it(tmp_path):
    (tmp_path / "train.py").write_text("def f(:\n    pass\n")
    done = command("inspect", "train.py", cwd=tmp_path)
    alone = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stderr, done.returncode) == (alone.stderr, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.py", "no such"), (".", "is a directory"), ("book.ipynb", "jupyter nbconvert --to script")],
)
def test_what_is_no_script_gets_one_line(name, message, script):
    Path("book.ipynb").write_text('{"cells": []}')
    result = graphscope_("inspect", name)
    assert result.exit_code == 2
    assert message in result.stderr and result.stderr.count("\n") == 1


# Rules


def test_explain_gives_reason_and_examples_by_code_or_name(one_rule):
    for subject in ("GS999", "gs999", "made-up"):
        page = graphscope_("explain", subject).output
        assert page.startswith("GS999 made-up (error)\n\nA fault that was made up.\n\nThe reason for it.\n\nBad:\n\n")
        assert "    good = 1\n" in page


def test_explain_recognises_a_message_of_torch(one_rule):
    result = graphscope_("explain", "RuntimeError: this was made\n   up by torch (...)")
    assert "GS999 made-up: A fault that was made up." in result.output
    assert "graphscope inspect SCRIPT" in result.output and "graphscope explain GS999" in result.output


def test_explain_reads_a_traceback_and_names_its_script(one_rule):
    traceback = (
        'Traceback (most recent call last):\n  File "run/train.py", line 3, in <module>\nError: made up by torch\n'
    )
    assert "graphscope inspect run/train.py" in graphscope_("explain", "-", input=traceback).output


def test_rules_are_listed_as_table_and_as_json(one_rule):
    assert graphscope_("rules").output == "GS999  error     made-up  A fault that was made up.\n"
    summary = "A fault that was made up."
    row = {"code": "GS999", "severity": "error", "name": "made-up", "summary": summary}
    assert json.loads(graphscope_("rules", "--format", "json").output) == [row]


def test_every_rule_has_a_page():
    for rule in all_rules():
        assert graphscope_("explain", rule.code).exit_code == 0


def test_the_message_that_everyone_knows_leads_to_its_rule():
    assert "GS101" in graphscope_("explain", "Trying to backward through the graph a second time ...").output


def test_the_table_of_rules_in_the_readme_is_current(request):
    readme, table = ROOT / "README.md", graphscope_("rules", "--format", "markdown").output
    if request.config.getoption("--update-golden"):
        readme.write_text(re.sub(r"(?m)^\| code \|(?:.*\n\|)+.*\n", lambda _: table, readme.read_text()))
    assert table in readme.read_text()


def test_help_tells_examples_codes_and_exit_status():
    assert "GS2xx" in graphscope_("--help").output
    page = graphscope_("inspect", "--help").output
    assert "graphscope inspect train.py --epochs 1" in page and "Exit status:" in page


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A directory with two saved traces."""
    monkeypatch.chdir(tmp_path)
    two_losses().save("before.trace")
    planned().save("after.trace")
    return tmp_path


def test_render_draws_a_part_of_a_saved_trace(saved):
    assert graphscope_("render", "before.trace", "-o", "g.svg", "--path", "net1.0.weight").exit_code == 0
    drawn = (saved / "g.svg").read_text()
    assert "the gradient" in drawn and "net2.0.weight" in drawn
    assert graphscope_("render", "before.trace", "-o", "g.svg", "--focus", "net1").exit_code == 0
    drawn = (saved / "g.svg").read_text()
    assert "net1.0.weight" in drawn and "net2.0.weight" not in drawn
    assert graphscope_("render", "before.trace", "-o", "g.mmd", "--depth", "1").exit_code == 0
    assert "3 operators" in (saved / "g.mmd").read_text()


def test_render_prints_the_report_or_an_outline_of_a_part(saved):
    assert graphscope_("render", "before.trace").stdout == str(two_losses())
    assert "net2 | Sequential | 3 operators" in graphscope_("render", "before.trace", "--depth", "1").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--focus", "net3"), "nothing was computed in a module called 'net3'; did you mean 'net2' or 'net1'"),
        (("--path", "net1.0.wight"), "no parameter is called 'net1.0.wight'; did you mean 'net1.0.weight'"),
        (("--around", "tensor:999"), "nothing that is drawn is called 'tensor:999': give tensor:ID, node:ID or a name"),
    ],
)
def test_what_is_not_there_to_be_shown_is_told_with_what_is(saved, arguments, said):
    result = graphscope_("render", "before.trace", "-o", "g.svg", *arguments)
    assert result.exit_code == 2 and said in result.stderr
    assert not (saved / "g.svg").exists()


def test_compare_tells_what_is_fixed_and_fails_for_what_is_new(saved):
    fixed = graphscope_("compare", "before.trace", "after.trace", "-o", "changes.svg")
    assert fixed.exit_code == 0 and "fixed:" in fixed.stdout and "GS101" in fixed.stdout
    assert "before.trace and after.trace (2 findings fixed, 0 new)" in (saved / "changes.svg").read_text()
    assert graphscope_("compare", "after.trace", "before.trace").exit_code == 1


def test_what_is_no_saved_trace_is_told_in_one_line(saved):
    (saved / "bad.trace").write_text("{}")
    for arguments in (("render", "bad.trace"), ("compare", "before.trace", "bad.trace")):
        result = graphscope_(*arguments)
        assert result.exit_code == 2 and "bad.trace is not a saved trace" in result.stderr
        assert "Traceback" not in result.stderr


def test_inspect_prints_an_outline_when_asked(script, inspected):
    inspected.report = two_losses()
    result = graphscope_("inspect", "--tree", "--depth", "1", script)
    assert "net2 | Sequential | 3 operators" in result.stderr and "error GS101" in result.stderr
