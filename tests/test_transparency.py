"""A watched program prints, computes, raises and leaves behind what it does bare, to the byte."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
SAMPLES = sorted((HERE.parent / "samples").glob("*.py"))
ALONE = [  # these need no process of their own
    PROGRAMS / f"{name}.py"
    for name in ["functions", "modes", "arrays", "checkpoints", "patched", "schedules", "sleeping", "subclasses"]
]
CASES = sorted((HERE.parent.parent / "shared" / "cases").glob("*.py"))
PATHS = os.pathsep.join(filter(None, (str(PROGRAMS), os.environ.get("PYTHONPATH"))))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": PATHS}
WATCHED = ("-m", "graphscope", "inspect", "--fail-on", "never", "--format", "json", "-o")


class Ran:
    """One run of a program: all that someone outside can see of it."""

    def __init__(self, status: int, out: bytes, err: bytes, files: dict[str, bytes]) -> None:
        self.seen = (status, out.decode(), err.decode(), files)


def compare(*program: object, folder: Path, given: bytes = b"", **variables: str) -> dict:
    """Run a program bare and watched, side by side, and assert that they look the same; the report."""
    folders = folder / "bare", folder / "watched"
    report = folder / "report.json"
    commands = [sys.executable, *map(str, program)], [sys.executable, *WATCHED, str(report), *map(str, program)]
    running = []
    for place, command in zip(folders, commands, strict=True):
        (place / "a place").mkdir(parents=True)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        running.append(subprocess.Popen(command, cwd=place / "a place", env=ENVIRONMENT | variables, **pipes))
    bare, watched = (ended(process, given, place) for process, place in zip(running, folders, strict=True))
    assert watched.seen == bare.seen
    return json.loads(report.read_text())


def ended(process: subprocess.Popen[bytes], given: bytes, folder: Path) -> Ran:
    out, err = process.communicate(given, timeout=200)
    here = str(folder).encode()
    err = b"".join(line for line in err.splitlines(True) if b"<frozen runpy>" not in line)  # what -m shows bare
    written = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return Ran(process.returncode, out.replace(here, b"HERE"), err.replace(here, b"HERE"), written)


def fully_recorded(report: dict) -> bool:
    return not any("internal error" in unseen for unseen in report["unseen"])


@pytest.mark.parametrize("name", ["threads", "workers", "functional", "optimizers"])
def test_program_does_the_same(name: str, tmp_path: Path) -> None:
    assert fully_recorded(compare(PROGRAMS / f"{name}.py", folder=tmp_path))


def test_arguments_stdin_paths_and_files_are_the_programs_own(tmp_path: Path) -> None:
    script = tmp_path / "träin it.py"
    shutil.copy(PROGRAMS / "arguments.py", script)
    options = ["-m", "net", "-o", "out", "--format", "x", "--select", "a", "b", "--fail-on", "never"]
    assert fully_recorded(compare(script, *options, folder=tmp_path, given="zwölf\n1 2".encode()))


def test_module_is_run_with_its_package(tmp_path: Path) -> None:
    assert fully_recorded(compare("-m", "package.module", folder=tmp_path))


def test_warnings_that_are_errors_are_raised_at_the_same_place(tmp_path: Path) -> None:
    script = tmp_path / "strict.py"
    script.write_text("import torch\ntorch.nn.functional.softmax(torch.ones(3))\n")
    compare(script, folder=tmp_path, PYTHONWARNINGS="error::UserWarning:__main__")


ENDINGS = [  # programs without torch
    "import sys\nprint('out')\nsys.exit()",
    "import sys\nsys.exit('why')",
    "import sys\nsys.exit(300)",
    "raise SystemExit(2.5)",
    "raise KeyError('missing') from ValueError('first')",
    "try:\n    1 / 0\nfinally:\n    [][1]",
    "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError from None",
    "import sys\nsys.excepthook = lambda *error: print(error[0])\n1 / 0",
    "import sys, threading\nprint(len(threading.enumerate()), sys.getrecursionlimit())\nassert False, 'nö'",
    "import atexit\natexit.register(print, 'last')\nimport os\nif not os.fork():\n    raise SystemExit(3)\nos.wait()",
    "from dataclasses import dataclass, fields\n@dataclass\nclass A:\n    a: int\nprint(fields(A)[0].type)",
    "number: int = 3\nprint(__annotations__)",
    "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f), __file__, __loader__.name)",
    "print(__builtins__.print)",
    "import traceback\ndef f():\n    traceback.print_stack()\nf()",
    "import os\nprint('lost')\nos.close(1)",
    "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])"
    if sys.version_info >= (3, 11)
    else "raise ValueError('alone')",
    "class A:\n    def __str__(self):\n        return 'own'\nimport sys\nsys.exit(A())",
    "class A:\n    def __del__(self):\n        print('gone')\nimport atexit\na = A()\natexit.register(print, 'last')",
    "def f():\n    try:\n        yield 1\n    finally:\n        print('closed')\na = f()\nnext(a)\nraise SystemExit(4)",
    "import sys\nsys.stdout.close()",
    "import sys\nsys.stderr.close()",
    "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: exit(4))\nos.kill(os.getpid(), signal.SIGTERM)",
    "import signal\ndef late(*_):\n    raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\n"
    "signal.setitimer(signal.ITIMER_REAL, 0.1)\nwhile True:\n    pass",
    "import runpy\nopen('b.py', 'w').write('print(__name__, __file__)\\n1 / 0')\n"
    "try:\n    runpy.run_path('b.py', run_name='x')\n"
    "except ZeroDivisionError:\n    import traceback\n    traceback.print_exc()",
    "exec(compile('print(__name__)\\n1 / 0', '<made>', 'exec'))",
    "import sys\nlines = []\ndef trace(frame, *_):\n    if frame.f_code.co_filename == __file__:\n"
    "        lines.append(frame.f_lineno)\n        return trace\nsys.settrace(trace)\ndef f(x):\n    return x\n"
    "f(1)\nsys.settrace(None)\nprint(lines)",
    "# -*- coding: latin-1 -*-\nprint('\u00e9')\nraise ValueError('\u00e9')",
    "\ufeffprint('with a mark')\nraise ValueError",
    "from multiprocessing import Process\ndef work():\n    raise SystemExit(3)\nif __name__ == '__main__':\n"
    "    p = Process(target=work)\n    p.start()\n    p.join()\n    print(p.exitcode)",
    "from concurrent.futures import ProcessPoolExecutor\ndef f(n):\n    return n * n\nif __name__ == '__main__':\n"
    "    with ProcessPoolExecutor(2) as pool:\n        print(list(pool.map(f, range(4))))",
    "import pickle, __main__\nclass A:\n    pass\nprint(type(pickle.loads(pickle.dumps(A()))), __main__.A is A)",
    'import subprocess, sys\nask = \'import sys; print({0, *sys.modules} & {"torch", "graphscope"})\'\n'
    "print(subprocess.run([sys.executable, '-c', ask], capture_output=True).stdout)",
    "import asyncio\nasync def main():\n    raise ValueError('in a task')\nasyncio.run(main())",
    "import logging\ndef f():\n    logging.getLogger('a').error('x', stack_info=True)\nf()",
    "raise type('Own', (BaseException,), {})('base')",
    "import sys\ndef f(n):\n    return n and f(n - 1)\nfor n in range(900, 1100):\n    try:\n        f(n)\n"
    "    except RecursionError:\n        break\nprint(n, sys.getrecursionlimit())\nsys.setrecursionlimit(500)\n"
    "print(sys.getrecursionlimit())\nf(1000)",
    "import sys, signal, gc\nprint(sys.gettrace(), signal.getsignal(signal.SIGINT), gc.get_threshold())",
]
UNREPORTED = [  # no report is written of these, as Python runs nothing more
    "import os\nprint('said', flush=True)\nos._exit(7)",
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
]


def test_endings_are_the_same(tmp_path: Path) -> None:
    scripts = []
    for number, source in enumerate(ENDINGS + UNREPORTED):
        scripts.append(tmp_path / f"ending_{number}.py")
        scripts[-1].write_bytes((source + "\n").encode("latin-1" if "latin-1" in source else "utf-8"))
    (watched,) = forked(scripts, tmp_path, True)
    for script, seen in zip(scripts, watched, strict=True):
        bare = subprocess.run([sys.executable, script], capture_output=True, cwd=tmp_path, stdin=subprocess.DEVNULL)
        assert seen[:3] == (bare.returncode, bare.stdout.decode(), bare.stderr.decode()), script.read_bytes()
    reports = [path.parent.name for path in tmp_path.glob("True*/report.json")]
    assert len(reports) == len(ENDINGS)


def test_recursion_ends_in_the_same_error(tmp_path: Path) -> None:
    script = tmp_path / "deep.py"
    script.write_text("def f():\n    f()\n\nf()\n")
    ((watched,),) = forked([script], tmp_path, True)
    bare = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert without_counts(watched[2]) == without_counts(bare.stderr)
    assert watched[0] == bare.returncode == 1


def without_counts(text: str) -> list[str]:
    return [line for line in text.splitlines() if "more times" not in line]


def test_program_from_stdin_does_the_same(tmp_path: Path) -> None:
    source = (
        "import sys, torch\nprint(sys.argv, repr(sys.path[0]), sorted(globals()), __file__, sys.stdin.read())\n"
        "loss = torch.ones(2, requires_grad=True).exp().sum()\nloss.backward()\ntry:\n    loss.backward()\n"
        "except RuntimeError:\n    print('refused')\n"
    )
    report = compare("-", "given", folder=tmp_path, given=source.encode())
    (finding,) = report["findings"]
    place = finding["locations"][0]
    assert (finding["code"], place["file"], place["line"]) == ("GS101", "<stdin>", 6)


def test_an_alarm_of_the_program_is_raised_wherever_it_rings(tmp_path: Path) -> None:
    script = tmp_path / "alarm.py"
    script.write_text(
        "import signal, torch\n"
        "class Alarm(Exception): pass\n"
        "def ring(*_): raise Alarm\n"
        "signal.signal(signal.SIGALRM, ring)\n"
        "x, rung = torch.ones(1, requires_grad=True), 0\n"
        "for _ in range(200):\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.002)\n"
        "        for _ in range(10**6): x.add(1)\n"
        "    except Alarm:\n"
        "        rung += 1\n"
        "x.exp().sum().backward()\n"
        "print(rung, x.grad)\n"
    )
    assert fully_recorded(compare(script, folder=tmp_path))


@pytest.mark.parametrize("scripts", [SAMPLES, CASES, ALONE], ids=["samples", "cases", "programs"])
def test_scripts_compute_the_same(scripts: list[Path], tmp_path: Path) -> None:
    if not scripts:
        pytest.skip("none here")
    bare, watched = forked(scripts, tmp_path, False, True)
    different = [script.name for script, *two in zip(scripts, bare, watched, strict=True) if two[0] != two[1]]
    assert not different
    reports = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("True*/report.json"))]
    assert len(reports) == len(scripts)
    assert all(map(fully_recorded, reports))


def forked(scripts: list[Path], folder: Path, *watched: bool) -> list[list[tuple[int, str, str, str]]]:
    """What the scripts did, bare and watched: status, output, errors and final state, each in a fork of one process."""
    servers = []
    for each in watched:
        requests = []
        for number, script in enumerate(scripts):
            place = folder / f"{each}{number}"
            place.mkdir()
            requests.append({"script": str(script.resolve()), "folder": str(place), "watched": each})
        command = [sys.executable, PROGRAMS / "_server.py"]
        servers.append(subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=ENVIRONMENT))
        servers[-1].stdin.write(json.dumps(requests))
        servers[-1].stdin.close()
    assert [server.wait(timeout=600) for server in servers] == [0] * len(servers)
    return [[left(folder / f"{each}{number}") for number in range(len(scripts))] for each in watched]


def left(place: Path) -> tuple[int, str, str, str]:
    state = place / "state"
    out, err = ((place / name).read_text() for name in ("out", "err"))
    return int((place / "status").read_text()), out, err, state.read_text() if state.exists() else ""


def listens_to_interrupts() -> None:
    """Undo what a child of a suite in the background inherits from its shell: Ctrl-C ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupt_is_reported_with_status_130(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        "import torch, time\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "w.sum().backward()\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    report = tmp_path / "report.json"
    process = subprocess.Popen(
        [sys.executable, *WATCHED, report, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listens_to_interrupts,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[0] == "Traceback (most recent call last):" and err.splitlines()[-1] == "KeyboardInterrupt"
    assert "graphscope" not in err
    seen = json.loads(report.read_text())
    assert seen["outcome"]["interrupted"] and [event["kind"] for event in seen["events"]] == ["backward"]
