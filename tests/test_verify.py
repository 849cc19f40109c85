"""Fixes are tried on the program itself, which stays as it is; the best ones come out as a diff."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphscope import api, cli
from graphscope.edits import changed, diff
from graphscope.findings import Action, Edit, Fix
from graphscope.location import Location
from graphscope.report import Report
from graphscope.verify import verify

SAMPLES = Path(__file__).parent.parent / "samples"
FAILING = sorted(path.stem for path in SAMPLES.glob("*.py") if "\nExpected: GS10" in path.read_text())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload,no-any-return]


def inspected(source: str, *args: str) -> Report:
    """The report on a script ``train.py`` here."""
    Path("train.py").write_text(textwrap.dedent(source).lstrip("\n"))
    return api.inspect("train.py", args=args)


def at(line: int, file: str = "train.py") -> Location:
    return Location(file, line, line)


def proposing(report: Report, *fixes: Fix) -> Report:
    """The report with other fixes for its one finding."""
    return replace(report, findings=tuple(replace(finding, fixes=fixes) for finding in report.findings))


def fixes(report: Report) -> dict[str, Fix]:
    return {fix.title: fix for finding in report.findings for fix in finding.fixes}


@pytest.mark.parametrize("name", FAILING)
def test_a_failing_sample_has_a_fix_that_holds_and_none_that_fails(name: str, home: Path) -> None:
    sample = home / "train.py"
    shutil.copy(SAMPLES / f"{name}.py", sample)
    command = (sys.executable, "-m", "graphscope", "inspect", "--verify", "--diff", "--format", "json", "-o", "r.json")
    done = run(*command, sample)
    assert sample.read_bytes() == (SAMPLES / f"{name}.py").read_bytes()
    findings = json.loads(Path("r.json").read_text())["findings"]
    assert done.returncode == any(finding["severity"] == "error" for finding in findings), done.stderr
    for finding in findings:
        tried = [fix for fix in finding["fixes"] if fix["verified"] is not None]
        assert any(fix["verified"] for fix in tried), finding["fixes"]
        assert all(fix["verified"] and fix["works"] for fix in tried), finding["fixes"]
    run("patch", "-p1", input=done.stdout)
    mended = run(sys.executable, sample)
    assert mended.returncode == 0, done.stdout + mended.stderr


STEP_TOO_EARLY = """
    import torch
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(5, 3)
    for turn in range(2):
        mid = net(x)
        first, second = mid.mean(), mid.pow(2).mean()
        first.backward(retain_graph=True)
        opt.step()
        opt.zero_grad()
        second.backward()
    """
OWN_WRITE = """
    import torch
    h = torch.nn.Linear(3, 4)(torch.randn(5, 3)).exp()
    h += 1
    loss = h.sum()
    loss.backward()
    """
HIDDEN_STATE = """
    import torch
    cell = torch.nn.RNNCell(3, 4)
    opt = torch.optim.SGD(cell.parameters(), lr=0.1)
    h = torch.zeros(5, 4)
    for turn in range(3):
        h = cell(torch.randn(5, 3), h)
        loss = h.pow(2).mean()
        loss.backward()
        opt.step()
    """
FEATURES_ONCE = """
    import torch
    encoder, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
    opt = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    features = encoder(torch.randn(5, 3)).tanh()
    for turn in range(3):
        loss = head(features).pow(2).mean()
        loss.backward()
        opt.step()
    """
RUNNING_TOTAL = """
    import torch
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    total = 0
    for turn in range(3):
        total = total + net(torch.randn(5, 3)).pow(2).mean()
        total.backward()
        opt.step()
    """
SHOWN = {
    STEP_TOO_EARLY: {
        "move opt.step() after second.backward()": True,
        "call second.backward() before opt.step()": True,
        "compute second again after train.py:9": True,
    },
    OWN_WRITE: {
        "write `h = h + ...`, out of place": True,
        "write to a copy: `h = h.clone()` before it": True,
    },
    HIDDEN_STATE: {
        "detach() what this statement takes from the earlier graph": True,
        "pass retain_graph=True": None,
    },
    FEATURES_ONCE: {
        "pass retain_graph=True": True,
        "compute what train.py:4 gives anew for each loss.backward()": None,
    },
    RUNNING_TOTAL: {
        "detach() what this statement takes from the earlier graph": True,
        "pass retain_graph=True": None,
    },
}
"""Programs that fail: their fixes, in order, and whether a run with the fix shows that it holds."""


@pytest.mark.parametrize("source", SHOWN, ids=["step", "write", "state", "features", "total"])
def test_the_fixes_shown_for_a_program_hold(source: str, home: Path) -> None:
    tried = verify(inspected(source))
    assert [(title, fix.verified) for title, fix in fixes(tried).items()] == list(SHOWN[source].items())


def test_a_retained_graph_that_the_next_turn_would_find_overwritten_is_struck(home: Path) -> None:
    for source in (HIDDEN_STATE, RUNNING_TOTAL):
        retain = fixes(inspected(source))["pass retain_graph=True"]
        assert not retain.works and "would have been modified by an inplace operation" in (retain.reason or "")
    assert fixes(inspected(FEATURES_ONCE))["pass retain_graph=True"].works


def test_what_a_fix_keeps_it_keeps_until_the_failing_call(home: Path) -> None:
    kept = {title: (fix.bytes, fix.until) for title, fix in fixes(inspected(OWN_WRITE)).items()}
    assert set(kept.values()) == {(80, at(5))}


TWO_LOSSES = """
    import torch
    net, opt = torch.nn.Linear(2, 2), None
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    h = net(torch.ones(1, 2)).exp()
    a, b = h.sin().sum(), h.cos().sum()
    a.backward()
    b.backward()
    opt.step()
"""
SUM = Fix("sum", changes_gradients=False, edits=(Edit(Action.SUM, at(6), at(7)),))
RETAIN = Fix("retain", changes_gradients=False, edits=(Edit(Action.RETAIN_GRAPH, at(6)),))
CUT = Fix("cut", changes_gradients=False, edits=(Edit(Action.DETACH, at(5), name="h"),))
HALF = (Edit(Action.RETAIN_GRAPH, at(6)), Edit(Action.MOVE_AFTER, at(7), at(8)))


def test_fixes_that_keep_the_gradients_agree(home: Path) -> None:
    report = proposing(inspected(TWO_LOSSES), SUM, RETAIN, Fix("half", changes_gradients=True, edits=HALF))
    found = fixes(verify(report))
    assert [(fix.verified, fix.agrees) for fix in found.values()] == [(True, True), (True, True), (True, False)]


def test_a_fix_that_claims_to_keep_the_gradients_and_does_not_fails(home: Path) -> None:
    report = proposing(inspected(TWO_LOSSES), Fix("half", changes_gradients=False, edits=HALF), SUM, RETAIN, CUT)
    tried = verify(report)
    found = fixes(tried)
    assert list(found) == ["sum", "retain", "half", "cut"]
    assert (found["half"].works, found["half"].verified) == (False, False)
    assert "differ from those of the other fixes" in (found["half"].reason or "")
    assert (found["cut"].reason or "").startswith("RuntimeError: element 0 of tensors does not require grad")
    assert "fix (fails: RuntimeError: element 0" in str(tried)
    assert "fix (verified): sum [same gradients, the first step's" in str(tried)


def test_gradients_of_a_program_that_never_repeats_itself_are_not_compared(home: Path) -> None:
    source = TWO_LOSSES.replace("import torch", "import os, torch; torch.manual_seed(int.from_bytes(os.urandom(4)))")
    found = fixes(verify(proposing(inspected(source), SUM, RETAIN)))
    assert [(fix.verified, fix.agrees) for fix in found.values()] == [(True, None), (True, None)]


def test_what_cannot_be_edited_or_does_not_end_is_not_verified(home: Path) -> None:
    forever = proposing(inspected(TWO_LOSSES + "    import time\n    time.sleep(600)\n"), RETAIN)
    tried = verify(forever, limit=3)
    assert tried.findings == forever.findings
    assert tried.trace.unseen == ("whether this fix holds, as the program with it was still running after 3 s: retain",)
    refused = proposing(forever, Fix("both", edits=(*SUM.edits, *RETAIN.edits)))
    assert verify(refused).findings == refused.findings
    assert not verify(refused).trace.unseen


def test_the_program_runs_as_it_did(home: Path) -> None:
    Path("data").mkdir()
    Path("part.py").write_text("def double(x):\n    x *= 2\n    return x\n")
    source = """
        import json, os, sys, torch
        from part import double
        w = torch.ones(2, requires_grad=True)
        double(w.exp()).sum().backward()
        seen = [sys.argv, sys.path[0], __file__, os.getcwd(), __name__]
        json.dump(seen, open("data/seen.json", "w"))
        sys.exit(0 if len(sys.argv) == 3 else 3)
        """
    report = inspected(source, "--epochs", "1")
    before = {path: path.read_bytes() for path in home.glob("*.py")}
    found = verify(report, ("--epochs", "1"))
    assert [fix.verified for fix in fixes(found).values() if "write" in fix.title] == [True, True]
    here = str(home)
    expected = [["train.py", "--epochs", "1"], here, str(home / "train.py"), here, "__main__"]
    assert json.loads(Path("data/seen.json").read_text()) == expected
    assert {path: path.read_bytes() for path in home.glob("*.py")} == before
    wrong = fixes(verify(report, ()))
    assert {fix.reason for fix in wrong.values() if fix.verified is False} == {"the program ends with status 3"}


def test_a_silent_fault_is_looked_for_again(home: Path) -> None:
    source = """
        import torch
        p = torch.ones(2, requires_grad=True).sigmoid()
        p.data.clamp_(0.4, 0.6)
        p.sum().backward()
        """
    report = inspected(source)
    other = Fix("elsewhere", edits=(Edit(Action.RETAIN_GRAPH, at(4)),))
    first, second = fixes(verify(proposing(report, *report.findings[0].fixes, other))).values()
    assert first.verified
    assert (second.verified, second.reason) == (False, "GS105 is found again")


def test_progress_names_each_fix(home: Path) -> None:
    lines: list[str] = []
    verify(proposing(inspected(TWO_LOSSES), RETAIN), progress=lines.append)
    assert lines == ["trying a fix for GS101: retain"]


def test_a_diff_holds_all_fixes_and_the_file_s_line_ends(home: Path) -> None:
    source = "a.backward()\r\nx += 1\r\n" + "pass\r\n" * 9 + "b.backward()"
    Path("my train.py").write_bytes(source.encode())
    wanted = [
        [Edit(Action.RETAIN_GRAPH, at(1, "my train.py"))],
        [Edit(Action.OUT_OF_PLACE, at(2, "my train.py"))],
        [Edit(Action.RETAIN_GRAPH, at(12, "my train.py"))],
        [Edit(Action.SUM, at(1, "my train.py"), at(12, "my train.py"))],
    ]
    text, left_out = diff(str(home), wanted)
    assert left_out == 1
    subprocess.run(["git", "apply"], input=text, check=True, cwd=home)
    mended = source.replace("backward()", "backward(retain_graph=True)").replace("x += 1", "x = x + 1")
    assert Path("my train.py").read_bytes() == mended.encode()


def test_the_encoding_of_a_file_is_kept(home: Path) -> None:
    Path("train.py").write_bytes("# coding: latin-1\nlösung.backward()\n".encode("latin-1"))
    found = changed(str(home), [Edit(Action.RETAIN_GRAPH, at(2))])
    assert found is not None and found[0].after == found[0].before.replace(b"()", b"(retain_graph=True)")


def test_a_line_after_edits_is_traced_back(home: Path) -> None:
    Path("train.py").write_text("import torch\nw -= 1\nf()\nx += 1\n")
    found = changed(str(home), [Edit(Action.NO_GRAD, at(2)), Edit(Action.OUT_OF_PLACE, at(4))])
    assert found is not None
    assert [found[0].line_before(line) for line in range(1, 6)] == [1, 2, 2, 3, 4]


def test_without_libcst_one_line_says_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("train.py").write_text("print('it ran')\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for option in ("--verify", "--diff"):
        result = CliRunner().invoke(cli.main, ["inspect", option, "train.py"])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == "Error: --verify and --diff need libcst: pip install 'torch-graphscope[fix]'\n"


def test_a_fix_that_makes_another_fault_fails(home: Path) -> None:
    source = """
        import torch
        encoder, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
        opt = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
        for turn in range(3):
            code = encoder(torch.ones(5, 3)).exp()
            code += 1
            loss = head(code).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    copied = Fix("copy", edits=(Edit(Action.OUT_OF_PLACE, at(6)),))
    detached = Fix("detach", edits=(*copied.edits, Edit(Action.DETACH, at(7), name="code")))
    found = fixes(verify(proposing(inspected(source), detached, copied)))
    assert (found["copy"].verified, found["detach"].verified) == (True, False)
    assert found["detach"].reason == "GS204 is found in its place"


def test_what_moves_takes_the_zeroing_along_that_would_undo_it(home: Path) -> None:
    source = """
        import torch
        torch.manual_seed(0)
        trunk = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Tanh())
        value, policy = torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)
        value_opt = torch.optim.SGD([*trunk.parameters(), *value.parameters()], lr=0.1)
        policy_opt = torch.optim.SGD([*trunk.parameters(), *policy.parameters()], lr=0.1)
        for turn in range(2):
            h = trunk(torch.ones(5, 3))
            value_loss, policy_loss = value(h).pow(2).mean(), policy(h).pow(2).mean()
            value_opt.zero_grad()
            value_loss.backward(retain_graph=True)
            value_opt.step()
            policy_opt.zero_grad()
            policy_loss.backward()
            policy_opt.step()
        """
    found = fixes(verify(inspected(source)))
    moved = (
        "move value_opt.step() after policy_loss.backward(), and policy_opt.zero_grad() before value_loss.backward()"
    )
    assert list(found) == [moved, "compute policy_loss again after train.py:12"]
    assert all(fix.verified and fix.works for fix in found.values())


def test_a_step_is_not_moved_to_where_it_would_follow_the_loss_of_a_critic(home: Path) -> None:
    source = """
        import torch
        torch.manual_seed(0)
        generator = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
        critic = torch.nn.Linear(4, 1)
        g_opt = torch.optim.SGD(generator.parameters(), lr=0.1)
        c_opt = torch.optim.SGD(critic.parameters(), lr=0.1)
        for turn in range(2):
            fake = generator(torch.ones(5, 3))
            g_opt.zero_grad()
            g_loss = -critic(fake).mean()
            g_loss.backward()
            g_opt.step()
            c_opt.zero_grad()
            c_loss = critic(fake).mean() - critic(torch.zeros(5, 4)).mean()
            c_loss.backward()
            c_opt.step()
        """
    titles = [title for title, fix in fixes(inspected(source)).items() if fix.works]
    assert titles[0] == "detach() what this statement takes from the earlier graph"
    assert not [title for title in titles if "g_opt.step()" in title]


def test_a_buffer_that_is_filled_from_itself_is_named_as_its_statement_does(home: Path) -> None:
    source = """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        def rollout(start):
            states = torch.zeros(4, 3, 2)
            states[0] = start
            for t in range(3):
                states[t + 1] = states[t] + net(states[t])
            return states
        prediction = rollout(torch.ones(3, 2))
        prediction.pow(2).mean().backward()
        """
    found = [title for title, fix in fixes(inspected(source)).items() if fix.works]
    assert found == ["collect the values in a list, and torch.stack it, in place of writing into `states`"]
    mask = "import torch\nh = torch.ones(3, requires_grad=True).exp()\nh[0] = 0\nloss = h.sum()\nloss.backward()\n"
    found = [title for title, fix in fixes(verify(inspected(mask))).items() if fix.verified]
    assert found == ["write to a copy: `h = h.clone()` before it"]
