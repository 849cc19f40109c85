"""Run a program once more with each fix that is an edit of its source, and say which of them hold."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ._plain import dataclass
from .analyzer import analyze
from .edits import Changed, changed, diff
from .findings import Action, Finding, Fix, Severity
from .report import Report
from .trace import Outcome

_BROUGHT = {  # the faults that an edit may make
    Action.DETACH: ("GS202", "GS203", "GS204"),
    Action.NO_GRAD: ("GS202", "GS203", "GS204"),
    Action.MOVE_AFTER: ("GS302", "GS303", "GS307"),
    Action.MOVE_BEFORE: ("GS302", "GS303", "GS307"),
}
_START = "import sys; sys.path.append(sys.argv[2]); from graphscope import verify; verify.child(sys.argv[1])"


def verify(
    report: Report,
    args: Sequence[str] = (),
    *,
    module: bool = False,
    limit: float = 60.0,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """The report with each fix tried: its edits are made in a copy, and the program is run with that.

    ``args`` and ``module`` are as the program was inspected with, ``limit`` is how many seconds a run may
    take. The files of the program stay as they are; what it writes, it writes again.
    """
    trials = _Trials(report, args, module, limit)
    wanted = [fix for finding in report.findings for fix in finding.fixes if fix.works and fix.edits]
    findings = []
    for finding in report.findings:
        tried = []
        for fix in finding.fixes:
            if fix in wanted:
                progress(f"trying a fix for {finding.code}: {fix.title}")
            tried.append(trials.tried(finding, fix) if fix in wanted else (fix, None))
        fixes = _compared(tried, trials)
        findings.append(replace(finding, fixes=tuple(sorted(fixes, key=lambda fix: not fix.works))))
    trace = replace(report.trace, unseen=(*report.trace.unseen, *trials.unseen))
    return replace(report, trace=trace, findings=tuple(findings))


def best(report: Report) -> tuple[bytes, int]:
    """The first fix of each finding that works and can be made, as one diff; and how many do not go with the others."""
    root = report.trace.root
    wanted = []
    for finding in report.findings:
        found = (fix for fix in finding.fixes if fix.works and fix.edits and changed(root, fix.edits))
        wanted += [fix.edits for fix in found][:1]
    return diff(root, wanted)


@dataclass(frozen=True)
class _Run:
    """What came of one run: how it ended, what was found where, and the gradients of the first steps."""

    outcome: Outcome
    found: tuple[tuple[str, bool, list[tuple[str, int]]], ...] = ()  # the code, whether it is no note, and the places
    gradients: tuple[Any, ...] = ()
    key: tuple[Changed, ...] = ()


class _Trials:
    """Runs of one program with several edits; the same edits are run once."""

    def __init__(self, report: Report, args: Sequence[str], module: bool, limit: float) -> None:
        self._report, self._args, self._module, self._limit = report, list(args), module, limit
        self._runs: dict[tuple[Changed, ...], _Run | None] = {}
        self.unseen: dict[str, None] = {}

    def tried(self, finding: Finding, fix: Fix) -> tuple[Fix, _Run | None]:
        """The fix with what came of it, and the run if it went well."""
        files = changed(self._report.trace.root, fix.edits)
        if files is None:
            return fix, None
        if files not in self._runs:
            self._runs[files] = self.run(files)
        run = self._runs[files]
        if run is None:
            said = f"whether this fix holds, as the program with it was still running after {self._limit:.0f} s"
            self.unseen[f"{said}: {fix.title}"] = None
            return fix, None
        problem = _problem(run, finding, files, self._report.trace.outcome) or self._new_fault(run, fix, files)
        if problem is not None:
            return replace(fix, works=False, verified=False, reason=problem), None
        return replace(fix, verified=True), run

    def _new_fault(self, run: _Run, fix: Fix, files: tuple[Changed, ...]) -> str | None:
        """What an edit of this sort is known to bring, where it is found at the lines of the fix, and was not before.

        Other faults were there, and only come to light as the program gets further.
        """
        ends = [end for edit in fix.edits for end in (edit.location, edit.other) if end is not None]
        edited = {(end.file, line) for end in ends for line in range(end.line, end.end_line + 1)}
        brought = {code for edit in fix.edits for code in _BROUGHT.get(edit.action, ())}
        known = {(each.code, _start_of(each)) for each in self._report.findings}
        for code, is_loud, places in run.found:
            before = [_before(place, files) for place in places]
            if is_loud and code in brought and (code, before[0]) not in known and not edited.isdisjoint(before):
                return f"{code} is found in its place"
        return None

    def run(self, files: tuple[Changed, ...]) -> _Run | None:
        """Run the program with these files in the place of its own; None if it does not end in time."""
        root = self._report.trace.root
        with tempfile.TemporaryDirectory(prefix="graphscope-") as folder:
            copies = {}
            for number, each in enumerate(files):
                copies[os.path.abspath(os.path.join(root, each.file))] = str(number)
                Path(folder, str(number)).write_bytes(each.after)
            spec = {"target": self._report.trace.script, "args": self._args, "module": self._module, "files": copies}
            Path(folder, "spec.json").write_text(json.dumps(spec))
            status = _start(folder, root, self._limit)
            if status is None:
                return None
            try:
                result = json.loads(Path(folder, "result.json").read_text())
            except (OSError, ValueError):
                return _Run(Outcome(status or 1, f"it ended with status {status} before it could be examined"))
        outcome = Outcome(result["status"], result["exception"])
        return _Run(outcome, tuple(map(tuple, result["found"])), tuple(result["gradients"]), files)


def _start(folder: str, root: str, limit: float) -> int | None:
    """Run ``child`` in a process of its own, quietly; its status, None if it does not end within the limit."""
    command = [sys.executable, "-c", _START, folder, str(Path(__file__).parent.parent)]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    group = {"start_new_session": True} if os.name == "posix" else {}
    with subprocess.Popen(command, cwd=root or None, **quiet, **group) as process:  # type: ignore[call-overload]
        try:
            return int(process.wait(limit))
        except BaseException as error:
            with contextlib.suppress(OSError):  # also what the program started itself
                os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
    return None


def child(folder: str) -> None:
    """In the process of a run: run the program as the specification says, and leave the result beside it."""
    from .tracer import trial

    spec = json.loads(Path(folder, "spec.json").read_text())
    files = {path: Path(folder, copy).read_bytes() for path, copy in spec["files"].items()}
    trace, gradients = trial.run(spec["target"], spec["args"], module=spec["module"], files=files)
    found = [
        (f.code, f.severity is not Severity.NOTE, [(place.location.file, place.location.line) for place in f.places])
        for f in analyze(trace).findings
        if f.places
    ]
    result = {
        "status": trace.outcome.status,
        "exception": trace.outcome.exception,
        "found": found,
        "gradients": gradients,
    }
    Path(folder, "result.json").write_text(json.dumps(result))


def _problem(run: _Run, finding: Finding, files: tuple[Changed, ...], before: Outcome) -> str | None:
    """Why a fix does not hold, None if it does."""
    outcome = run.outcome
    if outcome.exception is not None:
        return textwrap.shorten(outcome.exception, 140, placeholder=" ...")
    if outcome.status not in (0, before.status if before.exception is None else 0):
        return f"the program ends with status {outcome.status}"
    for code, _, places in run.found:
        if code == finding.code and _before(places[0], files) == _start_of(finding):
            return f"{code} is found again"
    return None


def _start_of(finding: Finding) -> tuple[str, int] | None:
    """Where it is reported."""
    return None if finding.location is None else (finding.location.file, finding.location.line)


def _before(place: tuple[str, int], files: tuple[Changed, ...]) -> tuple[str, int]:
    """Where a place of the edited program was before."""
    file, line = place
    edited = next((each for each in files if each.file == file), None)
    return file, edited.line_before(line) if edited else line


def _compared(tried: Sequence[tuple[Fix, _Run | None]], trials: _Trials) -> Iterator[Fix]:
    """The fixes, with whether those that keep the gradients, and which others, have the same at the first steps."""
    runs = [(fix, run) for fix, run in tried if run is not None and run.gradients]
    keeping = [run for fix, run in runs if fix.changes_gradients is False]
    reference = max(keeping, key=lambda run: sum(_agree(run, each) for each in keeping), default=None)
    if reference is None or len(runs) < 2 or not _is_repeatable(reference, keeping, trials):
        yield from (fix for fix, _ in tried)
        return
    alone = sum(_agree(run, reference) for _, run in runs) == 1
    for fix, run in tried:
        if run is None or not run.gradients or (alone and run is reference):
            yield fix
        elif _agree(run, reference):
            yield replace(fix, agrees=True)
        elif fix.changes_gradients is False:
            reason = "the gradients of the first step differ from those of the other fixes"
            yield replace(fix, works=False, verified=False, agrees=False, reason=reason)
        else:
            yield replace(fix, agrees=False)


def _is_repeatable(reference: _Run, keeping: Sequence[_Run], trials: _Trials) -> bool:
    """Whether the program computes the same when it is run twice; asked only where gradients differ."""
    if all(_agree(reference, each) for each in keeping):
        return True
    again = trials.run(reference.key)
    return again is not None and _agree(reference, again)


def _agree(one: _Run, other: _Run) -> bool:
    """Whether two runs had the same gradients at the first step of each optimizer, up to rounding."""
    if [len(each) for each in one.gradients] != [len(each) for each in other.gradients]:
        return False
    pairs = zip(chain(*one.gradients), chain(*other.gradients), strict=True)
    return all(_close(a, b) for a, b in pairs)


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    if any(math.isnan(each) for each in (*one, *other)):
        return [math.isnan(each) for each in one] == [math.isnan(each) for each in other]
    room = max(1e-3, 30 * one[3]) * max(one[0], other[0]) + 1e-12
    return all(a == b or abs(a - b) <= room for a, b in zip(one[:3], other[:3], strict=True))
