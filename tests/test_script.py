"""Running a script or module under the recorder: what it is given, how it ends, and what is refused."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import graphscope
from graphscope.tracer import script


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Write a script and run it; gives its outcome, what it printed, and its errors."""
    monkeypatch.chdir(tmp_path)

    def run(source, *args):
        Path("train.py").write_text(source)
        outcome = script.run("train.py", list(args)).outcome
        return outcome, *capfd.readouterr()

    return run


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.py", "no such script: missing.py"),
        ("folder", "folder is a directory: name a script, or `-m folder` for a package"),
        ("notes.ipynb", "notes.ipynb is a notebook: `jupyter nbconvert --to script notes.ipynb` makes a script of it"),
    ],
)
def test_what_is_no_script_is_refused_in_one_line(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("notes.ipynb").write_text("{}")
    with pytest.raises(graphscope.GraphscopeError) as caught:
        graphscope.inspect(name)
    assert str(caught.value) == message


def test_missing_module_is_refused():
    with pytest.raises(graphscope.GraphscopeError, match=r"no such module: nowhere\.to\.be\.found"):
        graphscope.inspect("nowhere.to.be.found", module=True)


def test_syntax_error_is_shown_as_python_shows_it(run, tmp_path):
    outcome, out, err = run("x = 1\nif x\n    pass\n")
    assert (outcome.status, out) == (1, "")
    assert err == f"  File \"{tmp_path}/train.py\", line 2\n    if x\n        ^\nSyntaxError: expected ':'\n"


def test_null_bytes_are_no_script(run):
    try:
        outcome, _, err = run("x = 1\0")
    except graphscope.GraphscopeError as error:
        assert "is not a Python script" in str(error)  # Python 3.11.3 and older
    else:
        assert outcome.status == 1 and err.endswith("null bytes\n")


@pytest.mark.parametrize(
    ("code", "status", "shown"),
    [
        ("", 0, ""),
        ("None", 0, ""),
        ("3", 3, ""),
        ("-1", -1, ""),
        ("True", 1, ""),
        ("'why'", 1, "why\n"),
        ("2.5", 1, "2.5\n"),
    ],
)
def test_exit_status_is_the_scripts(code, status, shown, run):
    outcome, _, err = run(f"import sys\nsys.exit({code})")
    assert (outcome.status, outcome.exception, err) == (status, None, shown)


def test_interrupt_gives_the_report_so_far(run):
    outcome, out, err = run("print('begun')\nraise KeyboardInterrupt")
    assert (outcome.status, outcome.interrupted, outcome.exception) == (130, True, "KeyboardInterrupt")
    assert out == "begun\n" and err.endswith("\nKeyboardInterrupt\n")


def test_chained_exceptions_have_no_frames_of_ours(run):
    outcome, _, err = run(
        "import torch\n"
        "try:\n"
        "    torch.ones(2) @ torch.ones(3)\n"
        "except RuntimeError as error:\n"
        "    raise ValueError('second') from error\n"
    )
    assert (outcome.status, outcome.exception, outcome.location.line) == (1, "ValueError: second", 5)
    assert err.count("File ") == 2 and "direct cause" in err and "graphscope/" not in err


def test_recursion_error_is_the_scripts(run):
    outcome, _, err = run("def f():\n    f()\nf()\n")
    assert outcome.exception == "RecursionError: maximum recursion depth exceeded"
    assert "graphscope/" not in err


def test_script_sees_itself_as_main(run, tmp_path):
    _, out, _ = run(
        "import sys, pickle\n"
        "class A: pass\n"
        "print(__name__, __file__, sys.argv, sys.path[0], __spec__, __package__)\n"
        "print(sys.modules['__main__'].A is A, type(pickle.loads(pickle.dumps(A()))) is A)\n",
        "--epochs",
        "1",
    )
    assert out == (f"__main__ {tmp_path}/train.py ['train.py', '--epochs', '1'] {tmp_path} None None\nTrue True\n")


def test_annotations_are_evaluated(run):
    assert run("def f(x: int): pass\nprint(f.__annotations__)")[1] == "{'x': <class 'int'>}\n"


def test_module_is_run_with_its_name(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("package").mkdir()
    Path("package/__init__.py").touch()
    Path("package/part.py").write_text("VALUE = 7\n")
    Path("package/__main__.py").write_text(
        "import sys\nfrom .part import VALUE\nprint(VALUE, __name__, __package__, __spec__.name, sys.argv)\n"
    )
    report = graphscope.inspect("package", args=["a"], module=True)
    assert report.trace.outcome.status == 0
    main = tmp_path / "package" / "__main__.py"
    assert capfd.readouterr().out == f"7 __main__ package package.__main__ ['{main}', 'a']\n"


def test_interpreter_is_left_as_it_was(run):
    before = sys.argv[:], sys.path[:], sys.modules["__main__"], sys.excepthook, threading.excepthook
    run("import sys\nsys.argv.append('x')\nsys.path.append('y')\n1 / 0")
    assert (sys.argv, sys.path, sys.modules["__main__"], sys.excepthook, threading.excepthook) == before


def test_traceback_and_warnings_are_left_as_they_were(run):
    import traceback
    import warnings

    before = traceback.walk_tb, traceback.walk_stack, warnings.warn, warnings._showwarnmsg
    run("raise ValueError")
    assert (traceback.walk_tb, traceback.walk_stack, warnings.warn, warnings._showwarnmsg) == before


def test_threads_are_waited_for(run):
    _, out, _ = run(
        "import threading, time\n"
        "def late():\n"
        "    time.sleep(0.1)\n"
        "    print('late')\n"
        "threading.Thread(target=late).start()\n"
    )
    assert out == "late\n"


def test_failure_of_the_trace_keeps_the_scripts_status(run, monkeypatch):
    monkeypatch.setattr(script.Recorder, "_trace", lambda *_, **__: 1 / 0)
    outcome, _, err = run("import sys\nsys.exit(4)")
    assert outcome.status == 4 and "ZeroDivisionError" in err  # told, as GRAPHSCOPE_DEBUG is set


def test_number_of_threads_that_the_program_sets_too_late_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    Path("train.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '1'\n")
    (unseen,) = script.run("train.py", []).unseen
    assert unseen.startswith("what OMP_NUM_THREADS=1 would do")
