"""Programs run in processes of their own: as Python runs them, and as `graphscope inspect` does."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """What a program did: exit status, what it printed, and where it was inspected, the report."""

    status: int
    out: str
    err: str
    report: dict[str, Any] | None = None

    @property
    def loud(self) -> list[dict[str, Any]]:
        """The findings of severity error or warning."""
        assert self.report is not None, self.err
        return [finding for finding in self.report["findings"] if finding["severity"] != "note"]


def both(script: Path, folder: Path) -> tuple[Run, Run]:
    """Run a script bare and inspected, side by side; the report and the picture go to files in ``folder``."""
    file = folder / "report.json"
    bare = _start(script)
    graph = ("--graph", folder / "graph.svg")
    watched = _start("-m", "graphscope", "inspect", "--format", "json", "-o", file, *graph, script)
    return _end(bare), _end(watched, file)


def inspected(script: Path, folder: Path) -> Run:
    """Run a script as `graphscope inspect` does."""
    file = folder / "report.json"
    return _end(_start("-m", "graphscope", "inspect", "--format", "json", "-o", file, script), file)


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _end(process: subprocess.Popen[str], file: Path | None = None) -> Run:
    out, err = process.communicate(timeout=300)
    report = json.loads(file.read_text()) if file is not None and file.exists() else None
    return Run(process.returncode, out, err, report)


def said(findings: list[dict[str, Any]]) -> str:
    """Findings in a line each, for the message of a failed assertion."""
    return "\n".join(
        f"{f['code']} {f['severity']} at lines {[place['line'] for place in f['locations']]}: {f['message']}"
        for f in findings
    )
