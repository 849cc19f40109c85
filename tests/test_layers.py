"""The house keeps its shape: who imports whom, and who imports torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parent.parent


def test_modules_import_those_below_them_only(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


def loaded_by(*arguments: str) -> str:
    """Which of torch and networkx a command imports."""
    program = (
        "import runpy, sys; sys.argv[0] = 'graphscope'\n"
        "try: runpy.run_module('graphscope', run_name='__main__') if sys.argv[1:] else __import__('graphscope')\n"
        "finally: print([name for name in ('torch', 'networkx') if name in sys.modules], file=sys.stderr)"
    )
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True).stderr


def test_import_graphscope_imports_no_torch():
    assert loaded_by() == "[]\n"


def test_help_rules_and_explain_import_no_torch():
    for command in (["--help"], ["inspect", "--help"], ["rules"]):
        assert loaded_by(*command) == "[]\n", command


def test_usage_mistakes_are_told_before_torch_is_imported():
    assert loaded_by("inspect", "--format", "none", "train.py").endswith("[]\n")


def test_public_names_are_what_they_say_whatever_was_imported_first():
    program = (
        "import graphscope.trace, graphscope; assert all(callable(getattr(graphscope, n)) for n in graphscope.__all__)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
