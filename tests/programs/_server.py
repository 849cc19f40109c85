"""Runs programs in forks of a process that has imported torch already: bare, or under `graphscope inspect`.

Reads a list of requests as JSON from stdin. Each run leaves ``out``, ``err``, ``status`` and ``state`` in its folder.
"""

import atexit
import builtins
import contextlib
import gc
import json
import os
import sys
import threading
import traceback
import types
from pathlib import Path

import _said
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from graphscope import api, cli  # noqa: F401
from graphscope.tracer.recorder import Recorder

LOOKS = 4  # steps after which the living tensors are counted


def main():
    gc.freeze()  # what was there before is no program's
    for request in json.load(sys.stdin):
        child = os.fork()
        if not child:
            leave_quickly(run, request)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        Path(request["folder"], "status").write_text(str(status))


def leave_quickly(run, request):
    """Run and exit as Python does, but without taking torch down, which takes longest."""
    status = 1
    try:
        run(**request)
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.modules.pop("__main__", None)
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status & 255)


def run(script, folder, watched):
    os.chdir(folder)
    for number, name in enumerate(("out", "err"), 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _said.reset()
    living = []

    def count(optimizer, *rest):
        if len(living) < LOOKS:
            living.append(_said.held())

    counting = register_optimizer_step_post_hook(count)

    def leave(namespace):
        counting.remove()
        state = {"living": living, "random": _said.randomness()}
        state |= {name: _said.digest(value) for name, value in sorted(namespace.items()) if tells(value)}
        Path("state").write_text(json.dumps(state, indent=1))

    if watched:
        trace = Recorder.trace

        def traced(recorder, *, namespace, **options):
            leave(namespace)
            return trace(recorder, namespace=namespace, **options)

        Recorder.trace = traced
        cli.main(["inspect", "--fail-on", "never", "--format", "json", "-o", "report.json", script])
    bare(script, leave)


def tells(value):
    return isinstance(value, torch.Tensor | torch.nn.Module | torch.optim.Optimizer)


def bare(script, leave):
    namespace = types.ModuleType("__main__")
    namespace.__dict__.update(__file__=script, __builtins__=builtins)
    sys.modules["__main__"], sys.argv, sys.path[0] = namespace, [script], os.path.dirname(script)
    status = 0
    try:
        exec(compile(Path(script).read_bytes(), script, "exec", dont_inherit=True), namespace.__dict__)
    except SystemExit as error:
        status = error.code
    except BaseException as error:
        traceback.print_exception(type(error), error, error.__traceback__.tb_next)
        status = 1
    leave(namespace.__dict__)
    sys.exit(status)


if __name__ == "__main__":
    main()
