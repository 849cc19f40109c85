"""Layout engines: programs that draw DOT, run apart, under a time and a memory limit."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys

from .._plain import dataclass
from ..errors import GraphscopeError

SECONDS = 10.0
MEMORY = 2 << 30

# The child drops the working directory from its path: a json.py there is the user's, not Python's.
_PYGRAPHVIZ = """
import sys
sys.path[:] = [path for path in sys.path if path]
format, memory = sys.argv[1], int(sys.argv[2])
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
except (ImportError, ValueError, OSError):
    pass
import pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
sys.stdout.buffer.write(graph.draw(format=format, prog="dot"))
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """A way to draw: a command that reads DOT and writes the picture."""

    name: str
    command: tuple[str, ...]

    def draw(self, dot: str, format: str, seconds: float) -> bytes:
        """The picture; raises GraphscopeError with one line where the engine fails."""
        command = [part.format(format=format) for part in self.command]
        try:
            done = subprocess.run(command, input=dot.encode(), capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise GraphscopeError(f"{self.name} did not finish in {seconds:g} s") from None
        except OSError as error:
            raise GraphscopeError(f"{self.name} did not start: {error.strerror or error}") from None
        if done.returncode < 0:
            raise GraphscopeError(f"{self.name} crashed with signal {-done.returncode}")
        if done.returncode or not done.stdout:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise GraphscopeError(f"{self.name} failed: {said[-1] if said else f'status {done.returncode}'}")
        return done.stdout


def engines() -> list[Engine]:
    """The engines there are, best first."""
    found = []
    if importlib.util.find_spec("pygraphviz"):
        found.append(Engine("pygraphviz", (sys.executable, "-c", _PYGRAPHVIZ, "{format}", str(MEMORY))))
    if dot := shutil.which("dot"):
        found.append(Engine("dot", (dot, "-T{format}")))
    return found


def draw(dot: str, format: str, *, seconds: float = SECONDS) -> bytes:
    """The picture of this DOT source, by the first engine that can draw it."""
    failures = []
    for engine in engines():
        try:
            return engine.draw(dot, format, seconds)
        except GraphscopeError as failure:
            failures.append(str(failure))
    raise GraphscopeError(
        f"cannot draw {format}: {'; '.join(failures) or 'no layout engine found, `pip install pygraphviz` brings one'}"
    )
